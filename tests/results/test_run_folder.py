"""The folder of a run: what is in its files, and how they are read again.

Folders that are refused: tests/experiments/test_run.py.
"""

import os
import pathlib
import sys

import chex
import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_opt
from fedjax_opt import load_run
from fedjax_opt.base import STREAMS
from fedjax_opt.results import event_files, run_writer
from fedjax_opt.results.environment import PACKAGES
from fedjax_opt.results.history import History
from fedjax_opt.results.metrics_file import read_metrics
from fedjax_opt.results.model_file import encoded, read_model
from fedjax_opt.results.selection import Criterion
from tests.helpers.commands import read_json
from tests.helpers.file_limits import limited
from tests.helpers.histories import events_of, random, two_points
from tests.helpers.refusals import refusal

pytestmark = pytest.mark.quick

CONFIG = {"task": "digits", "algorithm": "fed_avg", "client": "sgd"}
CONFIG |= {"rounds": 20, "max_step": float("inf"), "data_dir": None}
CONFIG |= {"client_lr": [np.float32(0.5), 1.0], "where": pathlib.Path("/a")}
ABOUT = {"timing": {"run_seconds": 2.0}, "padding_waste": np.float32(0.25)}
POINTS = (
  {"client_lr": 0.1, "server_lr": 1.0, "max_step": np.inf, "seed": 0},
  {"client_lr": 1.0, "server_lr": 1.0, "max_step": np.inf, "seed": 0},
)
VARYING = [{n: p[n] for n in ("client_lr", "seed")} for p in POINTS]
PARAMS = {
  "Dense_0": {"kernel": jnp.arange(12.0).reshape(2, 2, 3), "bias": jnp.ones(2)},
  "scale": jnp.array([2.0, 3.0]),
}


def of_point(point):
  return {
    "Dense_0": {n: v[point] for n, v in PARAMS["Dense_0"].items()},
    "scale": PARAMS["scale"][point],
  }


def write(folder, points=POINTS, history=None, about=ABOUT):
  """A run to its end; returns its writer and summary."""
  writer = run_writer.RunWriter(folder, CONFIG, points)
  history = two_points() if history is None else history
  return writer, writer.finish(history, Criterion(), about, params=of_point)


def check_metrics(history, expected):
  assert set(history.metrics) == set(expected.metrics)
  assert history.rounds == expected.rounds
  for name in expected.metrics:
    np.testing.assert_array_equal(history.metrics[name], expected.values(name))


def test_new_and_empty_folders_are_fine(tmp_path, monkeypatch):
  new = tmp_path / "a" / "b"
  assert run_writer.checked_output_dir(new) == new
  assert not (tmp_path / "a").exists()
  assert run_writer.checked_output_dir(tmp_path) == tmp_path
  monkeypatch.setattr(os, "access", lambda *_: False)
  message = refusal(run_writer.checked_output_dir, new)
  assert message.startswith("output_dir=")
  assert "cannot be written" in message


def test_config_and_summary(tmp_path):
  _, summary_returned = write(tmp_path)
  config = read_json(tmp_path / "config.json")
  summary = read_json(tmp_path / "summary.json")
  assert summary_returned == summary
  assert summary["config"] == config
  versions = config.pop("versions")
  assert set(versions) == {*("python", "fedjax_opt", *PACKAGES)}
  assert versions["fedjax_opt"] == fedjax_opt.__version__
  assert versions["numpy"] == np.__version__
  assert set(config.pop("device")) == {"platform", "kind", "count"}
  values = {"max_step": "inf", "client_lr": [0.5, 1.0], "where": "/a"}
  assert config == CONFIG | values | {"streams": STREAMS}
  assert summary["selected"] == 0
  assert summary["criterion"]["metric"] == "test_accuracy"
  assert summary["timing"] == ABOUT["timing"]
  assert summary["padding_waste"] == 0.25
  ok, diverged = summary["points"]
  final = {
    "train_loss": 0.5,
    "test_accuracy": 2 / 3,
    "train_worst_decile_accuracy": 0.2,
  }
  assert ok == {
    "hyperparameters": POINTS[0] | {"max_step": "inf"},
    "final": final,
    "best": final,
    "best_round": dict.fromkeys(final, 20),
    "status": "ok",
  }
  assert diverged["status"] == "diverged"
  assert diverged["diverged_round"] == 20
  assert set(diverged["final"].values()) == {None}
  assert diverged["best"]["test_accuracy"] == 0.25
  # No file is left unfinished.
  assert {path.name for path in tmp_path.iterdir()} == {
    *("config.json", "digests.json", "metrics.csv", "params.safetensors"),
    *("summary.json", "tensorboard"),
  }


def test_a_run_is_what_was_written(tmp_path):
  _, summary = write(tmp_path)
  run = load_run(str(tmp_path))
  assert run.is_complete
  assert run.config == summary["config"]
  assert run.summary == summary
  assert run.points == list(POINTS)
  check_metrics(run.history, two_points())
  assert run.selected == 0
  chex.assert_trees_all_equal(run.params, of_point(0))
  assert run.params["scale"].shape == ()
  _, about = read_model(tmp_path / "params.safetensors")
  assert about == {
    "point": 0,
    "round": 20,
    "hyperparameters": {**POINTS[0], "max_step": "inf"},
  }


def test_what_a_kill_leaves(tmp_path):
  """Rows are whole as rounds finish; a part of a round does not count."""
  writer = run_writer.RunWriter(tmp_path, CONFIG, POINTS)
  run, history_2, history = load_run(tmp_path), two_points(), History()
  assert (run.points, run.history.rounds) == ([], [])
  path = tmp_path / "metrics.csv"
  for column, round_number in enumerate(history_2.rounds):
    history.append(
      round_number, {n: v[:, column] for n, v in history_2.metrics.items()}
    )
    writer.write(history)
    text = path.read_bytes()
    assert text.endswith(b"\n")
    assert len(text.splitlines()) == 1 + 2 * (column + 1)
  writer.write(history)
  assert path.read_bytes() == text
  run = load_run(tmp_path)
  assert not run.is_complete
  assert run.points == VARYING
  check_metrics(run.history, history_2)
  assert (run.summary, run.params, run.selected) == (None, None, None)
  assert "not complete" in repr(run)
  assert "not complete" in run._repr_html_()
  ends = [i + 1 for i, byte in enumerate(text) if byte == ord("\n")]
  for size in range(ends[2], len(text)):  # The first rows come at once.
    path.write_bytes(text[:size])
    _, history_read = read_metrics(path)
    assert (history_read.rounds, history_read.num_points) == ([10], 2)


def test_a_column_for_each_hyperparameter_that_varies_and_the_seed(tmp_path):
  points = [
    {"seed": seed, "client_lr": rate, "server_lr": 1.0, "name": "a,\x85\nb"[:n]}
    for n, (seed, rate) in [(2, (3, 0.1)), (5, (4, 1e-5))]
  ]
  run_writer.RunWriter(tmp_path, {}, points).write(two_points())
  text = (tmp_path / "metrics.csv").read_text()
  assert text.startswith("point,round,client_lr,name,seed,train_loss,")
  # Without the values of a point that has diverged.
  assert text.endswith('\n1,20,1e-05,"a,\x85\nb",4,,,\n')
  read, history = read_metrics(tmp_path / "metrics.csv")
  assert read == [
    {"client_lr": 0.1, "name": "a,", "seed": 3},
    {"client_lr": 1e-5, "name": "a,\x85\nb", "seed": 4},
  ]
  assert [type(p["seed"]) for p in read] == [int, int]
  check_metrics(history, two_points())


def test_a_full_disk_leaves_whole_rows(tmp_path):
  """And rows that come later, where there is space again, are whole too."""
  path, history, rows = tmp_path / "metrics.csv", random(20), History()
  file = run_writer.RunWriter(tmp_path, {}, [{"seed": s} for s in range(20)])
  add = lambda column: rows.append(
    history.rounds[column],
    {name: values[:, column] for name, values in history.metrics.items()},
  )
  add(0)
  file.write(rows)
  content = path.read_bytes()
  for _ in range(2):
    add(len(rows.rounds))
    with limited(len(content) + 100), pytest.raises(OSError, match="too large"):
      file.write(rows)
    assert path.read_bytes() == content
  file.write(rows)
  assert read_metrics(path)[1].rounds == rows.rounds


def test_what_cannot_be_written(tmp_path):
  points = [{**point, "train_loss": i} for i, point in enumerate(POINTS)]
  writer = run_writer.RunWriter(tmp_path / "a", {}, points)
  message = refusal(writer.write, two_points())
  assert message.startswith("metrics: a metric is named 'train_loss'; must ha")
  assert not (tmp_path / "a" / "metrics.csv").exists()
  writer = run_writer.RunWriter(tmp_path / "b", {}, POINTS[:1])
  assert refusal(writer.write, two_points()) == (
    "history: has 2 points; this run has 1"
  )


def test_where_all_diverged_there_is_no_model(tmp_path):
  writer = run_writer.RunWriter(tmp_path, CONFIG, POINTS)
  (tmp_path / "params.safetensors").touch()  # Of an earlier start of the run.
  history = random(2, diverged=[(0, 1), (1, 0)])
  writer.finish(history, Criterion(), params=of_point)
  run = load_run(tmp_path)
  assert (run.selected, run.params) == (None, None)
  assert run.is_complete


def test_before_the_first_evaluation(tmp_path):
  write(tmp_path, history=History(), about={"stopped_by": "signal"})
  run = load_run(tmp_path)
  assert not run.is_complete  # It was ended by a signal.
  assert run.points == list(POINTS)
  assert (run.history.rounds, run.selected) == ([], None)
  assert [point["final"] for point in run.summary["points"]] == [{}, {}]


def test_a_data_frame_has_the_rows_of_the_file(tmp_path, monkeypatch):
  pytest.importorskip("pandas")
  write(tmp_path)
  frame = load_run(tmp_path).to_pandas()
  assert list(frame.columns) == [
    *("point", "round", "client_lr", "server_lr", "max_step", "seed"),
    *two_points().metrics,
  ]
  assert frame["point"].tolist() == [0, 1, 0, 1]
  assert frame["round"].tolist() == [10, 10, 20, 20]
  assert frame["client_lr"].tolist() == [0.1, 1.0, 0.1, 1.0]
  assert frame["test_accuracy"].tolist()[:3] == [1 / 3, 0.25, 2 / 3]
  assert frame["train_loss"].isna().tolist() == [False, False, False, True]
  monkeypatch.setitem(sys.modules, "pandas", None)
  with pytest.raises(ImportError, match="needs pandas: pip install"):
    load_run(tmp_path).to_pandas()


def test_what_is_shown_is_short(tmp_path):
  points = [{"client_lr": 0.5**i, "<b>": i, "seed": 0} for i in range(50)]
  writer = run_writer.RunWriter(tmp_path, CONFIG, points)
  writer.finish(random(50), Criterion())
  run = load_run(tmp_path)
  assert repr(run) == (
    f"Run('{tmp_path}': digits, fed_avg, sgd, 40 rounds, 50 points, "
    f"selected {run.selected})"
  )
  table = run._repr_html_()
  assert "&lt;b&gt;" in table
  assert "<th>test_accuracy</th>" in table
  assert table.count("<tr>") == 21
  assert "and 30 more points" in table


# TensorBoard events.


@pytest.mark.parametrize("live", [True, False])
def test_one_sub_run_for_each_point(tmp_path, monkeypatch, live):
  pytest.importorskip("tensorboardX")
  monkeypatch.setattr(event_files, "_MAX_OPEN", 64 if live else 1)
  writer = run_writer.RunWriter(tmp_path, {}, POINTS)
  writer.write(two_points())
  folder = tmp_path / "tensorboard"
  assert folder.exists() == live
  writer.finish(two_points(), Criterion())
  assert "TensorBoard" not in writer.closing_line()
  runs = sorted(p.name for p in folder.iterdir())
  assert runs == ["0,client_lr=0.1", "1,client_lr=1"]
  first, second = (events_of(folder / name)["test_accuracy"] for name in runs)
  assert first == [(10, pytest.approx(1 / 3)), (20, pytest.approx(2 / 3))]
  assert second == [(10, 0.25)]  # Nothing after the divergence.


def test_no_events_without_tensorboardx(tmp_path, monkeypatch):
  monkeypatch.setitem(sys.modules, "tensorboardX", None)
  writer, summary = write(tmp_path)
  assert summary["tensorboard"] is None
  assert not (tmp_path / "tensorboard").exists()
  assert "pip install 'fedjax_opt[tensorboard]'" in writer.closing_line()


# What cannot be read.


def problem_with(folder):
  """What is said of a folder."""
  folder_of, _, problem = refusal(load_run, folder).partition(": ")
  assert folder_of == f"folder={str(folder)!r}"
  return problem


def test_what_is_no_folder_of_a_run(tmp_path):
  absent, file = tmp_path / "x", tmp_path / "file"
  file.touch()
  assert problem_with(absent) == "there is no such folder; give that of a run"
  assert problem_with(file) == "is a file; give that of a run"
  assert problem_with(tmp_path) == (
    "holds no run (it has no config.json); give the folder of one"
  )
  assert refusal(load_run, 3).startswith("folder=3: must be a path")


@pytest.mark.parametrize(
  ("name", "content"),
  [
    ("config.json", b"{"),
    ("summary.json", b"[1]"),
    ("summary.json", b"{}"),
    ("summary.json", b'{"points": []}'),
    ("metrics.csv", b"a,b\n1,2\n"),
    ("metrics.csv", b"\xff\xfe\n"),
    ("metrics.csv", None),
    ("params.safetensors", b"short"),
  ],
)
def test_a_file_that_cannot_be_read(tmp_path, name, content):
  write(tmp_path)
  (tmp_path / "digests.json").unlink()  # As in an older version.
  (tmp_path / name).unlink()
  if content is None:  # Files that do not belong together.
    assert problem_with(tmp_path).startswith(
      "metrics.csv has 0 points, summary.json 2"
    )
    return
  (tmp_path / name).write_bytes(content)
  message = problem_with(tmp_path)
  assert message.startswith(f"{name}: cannot be read (")
  assert message.endswith("; give that of a whole run")


@pytest.mark.parametrize(
  ("params", "expected"),
  [
    (jnp.arange(3.0), np.arange(3.0)),
    # A dictionary of one leaf, with the name of what is one array.
    ({"params": jnp.arange(3.0)}, {"params": np.arange(3.0)}),
    (
      {"a": [jnp.arange(6.0).reshape(2, 3).T, jnp.float32(2)]},
      {"a": {"0": np.arange(6.0).reshape(2, 3).T, "1": np.float32(2)}},
    ),
    ({"a": {"b": np.ones(1)}, "a/b": np.ones(1)}, "two leaves have the same"),
    # Nobody could read such a file.
    ({"a": np.ones(1), "a/b": np.ones(1)}, "params: 'a' is a leaf, and holds"),
  ],
)
def test_other_models(tmp_path, params, expected):
  if isinstance(expected, str):
    assert expected in refusal(encoded, params, {})
    return
  (tmp_path / "m").write_bytes(encoded(params, {"rounds": 2}))
  params_read, about = read_model(tmp_path / "m")
  assert about == {"rounds": 2}
  chex.assert_trees_all_equal(params_read, expected)
