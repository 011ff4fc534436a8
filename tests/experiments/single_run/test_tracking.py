"""What trackers are given, by libraries that write down how they are called."""

import sys
from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import pytest

from experiments.single_run import tracking
from fedjax_opt.results.history import History
from tests.helpers.commands import call
from tests.helpers.histories import events_of

SMALL = (
  "--task=digits_logistic", "--rounds=2", "--num_clients=4",
  "--local_steps=1", "--noprogress",
)  # fmt: skip


@pytest.fixture(params=["wandb", "mlflow"])
def library(request, monkeypatch):
  """Stands for a tracker's library, and notes its calls."""
  module = MagicMock(__name__=request.param)
  module.get_experiment_by_name.return_value = None
  monkeypatch.setitem(sys.modules, request.param, module)
  monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
  return module


def calls_of(library):
  """What it got: names, groups and configs of runs, steps, and files."""
  calls = lambda method: method.call_args_list
  if library.__name__ == "mlflow":
    return (
      [call.kwargs["run_name"] for call in calls(library.start_run)],
      {call.args[1] for call in calls(library.set_tag)},
      [call.args[0] for call in calls(library.log_params)],
      [(c.kwargs["step"], c.args[0]) for c in calls(library.log_metrics)],
      [call.args[0] for call in calls(library.log_artifact)],
    )
  runs = [call.kwargs for call in calls(library.init)]
  logged = calls(library.init().__enter__().log)
  return (
    [run["name"] for run in runs],
    {run["group"] for run in runs},
    [run["config"] for run in runs],
    [(c.kwargs["step"], c.args[0]) for c in logged if c.kwargs],
    [name for c in logged if not c.kwargs for name in c.args[0]],
  )


@pytest.mark.slow
def test_a_run(library, tmp_path):
  folder = tmp_path / "mine"
  flags = (*SMALL, "--client=sgd", "--client_lr=0.1,0.2")
  track = f"--track={library.__name__}"
  assert call(*flags, track, f"--output_dir={folder}") == 0
  names, groups, configs, steps, files = calls_of(library)
  assert (names, groups) == (["mine/0", "mine/1"], {"mine"})
  assert [float(config["client_lr"]) for config in configs] == [0.1, 0.2]
  assert [number for number, _ in steps] == [0, 2, 0, 2]
  assert 0 <= steps[-1][1]["test_accuracy"] <= 1
  assert any("curves" in str(file) for file in files)
  if library.__name__ == "wandb":
    assert library.init.call_args_list[0].kwargs["mode"] == "offline"
  else:
    library.set_tracking_uri.assert_called_once_with(
      f"sqlite:///{folder / 'mlflow.db'}"
    )


@pytest.mark.slow
def test_what_a_tracker_refuses_is_one_line_after_the_results(
  library, tmp_path, capsys
):
  for begin in (library.init, library.start_run):
    begin.side_effect = RuntimeError("no key\nlog in")
  name, folder = library.__name__, tmp_path / "r"
  assert call(*SMALL, f"--track={name}", f"--output_dir={folder}") == 1
  captured = capsys.readouterr()
  assert "after round 2:" in captured.out
  hint = f"what was complete before is kept; see {folder}"
  assert captured.err == f"error: --track={name!r}: no key; {hint}\n"
  assert (folder / "summary.json").exists()


@pytest.mark.slow
def test_tensorboard_has_what_a_run_is_and_its_pictures(tmp_path):
  pytest.importorskip("tensorboardX")
  flags = (*SMALL, "--client=sgd", "--client_lr=0.1,0.2", "--track=tensorboard")
  assert call(*flags, f"--output_dir={tmp_path / 'mine'}") == 0
  folders = sorted((tmp_path / "mine" / "tensorboard").iterdir())
  assert [f.name for f in folders] == ["0,client_lr=0.1", "1,client_lr=0.2"]
  events = [events_of(folder) for folder in folders]
  for of_tag in events:
    assert len(of_tag["config/text_summary"]) == 1
    assert len(of_tag["test_accuracy"]) == 2  # Of two evaluations, each once.
  assert {"curves", "clients"} <= set(events[0])


def test_a_study_s_events_are_those_of_its_last_report(tmp_path):
  pytest.importorskip("tensorboardX")
  for value in (1.0, 2.0):
    history = History([0], {"x": np.array([[value]])})
    runs = SimpleNamespace(points=[{"seed": 1}], history=history)
    cell = SimpleNamespace(method="A", condition={}, report_runs=runs)
    study = SimpleNamespace(cells=[cell], about={})
    tracking.log_study("tensorboard", tmp_path, study)
  assert events_of(tmp_path / "tensorboard" / "A,_seed=1")["x"] == [(0, 2.0)]


def test_names_that_a_folder_cannot_tell_apart_are_numbered(tmp_path):
  pytest.importorskip("tensorboardX")
  entries = [tracking.Track(n, {}, [(1, {"x": 1.0})]) for n in ("A/B", "A B")]
  tracking._tensorboard(tmp_path, entries)
  folders = (tmp_path / "tensorboard").iterdir()
  assert ["x" in events_of(folder) for folder in folders] == [True, True]


def test_a_tracker_that_is_missing_is_said_before_the_run(
  monkeypatch, tmp_path, error_of
):
  monkeypatch.setitem(sys.modules, "wandb", None)
  line = error_of(*SMALL, "--track=wandb", f"--output_dir={tmp_path / 'r'}")
  assert "pip install 'wandb'" in line
  assert not (tmp_path / "r").exists()
