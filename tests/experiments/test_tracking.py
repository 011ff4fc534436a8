"""What trackers are given, by libraries that write down how they are called."""

import contextlib
import struct
import sys
import types

import pytest

from experiments import compare
from tests.experiments.commands import call

SMALL = (
  "--task=digits_logistic", "--rounds=2", "--num_clients=4",
  "--local_steps=1", "--noprogress",
)  # fmt: skip
SEEDS = ("--seed=0,1", "--report_seeds=2")


class Library(types.ModuleType):
  """Stands for wandb and for mlflow: `runs` is what they were given."""

  Settings = dict
  Image = str

  def __init__(self, name):
    super().__init__(name)
    self.runs = []

  @contextlib.contextmanager
  def init(self, **options):
    run = types.SimpleNamespace(given=options, steps=[], files=[])
    run.log = lambda values, step=None: run.steps.append((step, values))
    run.save = lambda path, base_path: run.files.append(path)
    self.runs.append(run)
    yield run

  @contextlib.contextmanager
  def start_run(self, run_name):
    with self.init(name=run_name) as run:
      yield run

  def set_tracking_uri(self, uri):
    self.uri = uri

  def get_experiment_by_name(self, name):
    return None

  def create_experiment(self, name, artifact_location):
    self.artifacts = artifact_location

  def set_experiment(self, name):
    self.project = name

  def set_tag(self, name, value):
    self.runs[-1].given[name] = value

  def log_params(self, values):
    self.runs[-1].given["config"] = values

  def log_metrics(self, values, step):
    self.runs[-1].steps.append((step, values))

  def log_artifact(self, path):
    self.runs[-1].files.append(path)


@pytest.fixture(params=["wandb", "mlflow"])
def library(request, monkeypatch):
  made = Library(request.param)
  monkeypatch.setitem(sys.modules, request.param, made)
  monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
  return made


def test_a_run(library, tmp_path):
  folder = tmp_path / "mine"
  flags = (*SMALL, "--client=sgd", "--client_lr=0.1,0.2")
  track = f"--track={library.__name__}"
  assert call(*flags, track, f"--output_dir={folder}") == 0
  assert [run.given["name"] for run in library.runs] == ["mine/0", "mine/1"]
  assert {run.given["group"] for run in library.runs} == {"mine"}
  rates = [run.given["config"]["client_lr"] for run in library.runs]
  assert [float(rate) for rate in rates] == [0.1, 0.2]
  for run in library.runs:
    measured = [s for s in run.steps if s[0] is not None]
    assert [number for number, _ in measured] == [0, 2]
    assert 0 <= measured[-1][1]["test_accuracy"] <= 1
  pictures = [*library.runs[0].files, *(v for _, v in library.runs[0].steps)]
  assert any("curves" in str(each) for each in pictures)
  if library.__name__ == "wandb":
    assert library.runs[0].given["mode"] == "offline"
  else:
    assert library.uri == f"sqlite:///{folder / 'mlflow.db'}"


def test_a_study(library, tmp_path):
  folder = tmp_path / "study"
  methods = ["--method=fed_avg client=sgd client_lr=0.1", "--method=fed_avg"]
  flags = [*SMALL, *methods, *SEEDS, f"--output_dir={folder}"]
  track = f"--track={library.__name__}"
  assert call(*flags, track, program=compare) == 0
  assert len(library.runs) == 4
  assert library.runs[0].given["name"] == "FedAvg, SGD, seed=2"


def test_what_a_tracker_refuses_is_one_line_after_the_results(
  library, monkeypatch, tmp_path, capsys
):
  def refuse(*_, **__):
    raise RuntimeError("no key\nlog in")

  for name in ("init", "start_run"):
    monkeypatch.setattr(library, name, refuse)
  name, folder = library.__name__, tmp_path / "r"
  assert call(*SMALL, f"--track={name}", f"--output_dir={folder}") == 1
  said = capsys.readouterr()
  assert "after round 2:" in said.out
  kept = f"what was complete before is kept; see {folder}"
  assert said.err == f"error: track={name!r}: no key; {kept}\n"
  assert (folder / "summary.json").exists()


def _tags(folder):
  """What a folder of events has, by sub-run."""
  event_pb2 = pytest.importorskip("tensorboardX.proto.event_pb2")
  found = {}
  for file in sorted(folder.glob("*/events*")):
    content, place = file.read_bytes(), 0
    while place < len(content):
      (size,) = struct.unpack("<Q", content[place : place + 8])
      event = event_pb2.Event.FromString(
        content[place + 12 : place + 12 + size]
      )
      place += size + 16
      tags = found.setdefault(file.parent.name, [])
      tags += [value.tag for value in event.summary.value]
  return found


def test_tensorboard_has_what_a_run_is_and_its_pictures(tmp_path):
  pytest.importorskip("tensorboardX")
  flags = (*SMALL, "--client=sgd", "--client_lr=0.1,0.2", "--track=tensorboard")
  assert call(*flags, f"--output_dir={tmp_path / 'mine'}") == 0
  found = _tags(tmp_path / "mine" / "tensorboard")
  assert sorted(found) == ["0,client_lr=0.1", "1,client_lr=0.2"]
  for tags in found.values():
    assert tags.count("config/text_summary") == 1
    assert tags.count("test_accuracy") == 2  # Of two evaluations, each once.
  assert {"curves", "clients"} <= set(found["0,client_lr=0.1"])


def test_tensorboard_has_the_cells_of_a_study(tmp_path):
  pytest.importorskip("tensorboardX")
  given = ("--method=fed_avg client=sgd client_lr=0.1", *SEEDS)
  given += ("--track=tensorboard", f"--output_dir={tmp_path}")
  assert call(*SMALL, *given, program=compare) == 0
  found = _tags(tmp_path / "tensorboard")
  assert sorted(found) == ["FedAvg,_SGD,_seed=2", "FedAvg,_SGD,_seed=3"]
  first = found["FedAvg,_SGD,_seed=2"]
  assert {"config/text_summary", "learning_curves"} <= set(first)
  assert first.count("test_accuracy") == 2
  assert "curves" not in first  # Of a run.


def test_a_tracker_that_is_missing_is_said_before_the_run(
  monkeypatch, tmp_path, capsys
):
  monkeypatch.setitem(sys.modules, "wandb", None)
  assert call(*SMALL, "--track=wandb", f"--output_dir={tmp_path / 'r'}") == 1
  assert "pip install 'wandb'" in capsys.readouterr().err
  assert not (tmp_path / "r").exists()
