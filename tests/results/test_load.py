"""The folder of a run, read again."""

import json
import sys

import chex
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_opt import load_run
from fedjax_opt.results import writers
from fedjax_opt.results.history import History
from fedjax_opt.results.model_file import encoded, read_model
from fedjax_opt.results.selection import Criterion
from tests.refusals import refusal
from tests.results.histories import random, two_points

POINTS = (
  {"client_lr": 0.1, "server_lr": 1.0, "max_step": np.inf, "seed": 0},
  {"client_lr": 1.0, "server_lr": 1.0, "max_step": np.inf, "seed": 0},
)
CONFIG = {"task": "digits", "algorithm": "fed_avg", "client": "sgd"}
CONFIG |= {"rounds": 20}
PARAMS = {
  "Dense_0": {"kernel": jnp.arange(12.0).reshape(2, 2, 3), "bias": jnp.ones(2)},
  "scale": jnp.array([2.0, 3.0]),
}


def of_point(point):
  return {
    "Dense_0": {n: v[point] for n, v in PARAMS["Dense_0"].items()},
    "scale": PARAMS["scale"][point],
  }


def write(folder, history=None, points=POINTS, **others):
  writer = writers.RunWriter(folder, CONFIG, points)
  history = two_points() if history is None else history
  writer.finish(history, Criterion(), others, params=of_point)


def test_a_run_is_what_was_written(tmp_path):
  write(tmp_path)
  run = load_run(str(tmp_path))
  assert run.is_complete
  assert run.config.items() >= CONFIG.items()
  assert run.points == list(POINTS)
  assert run.history.rounds == [10, 20]
  for name in two_points().metrics:
    np.testing.assert_array_equal(
      run.history.metrics[name], two_points().values(name)
    )
  assert run.summary == json.loads((tmp_path / "summary.json").read_text())
  assert run.selected == 0
  assert set(run.params) == {"Dense_0", "scale"}
  np.testing.assert_array_equal(
    run.params["Dense_0"]["kernel"], PARAMS["Dense_0"]["kernel"][0]
  )
  assert run.params["scale"].shape == ()
  assert run.params["scale"] == 2
  _, about = read_model(tmp_path / "params.safetensors")
  assert about == {
    "point": 0,
    "round": 20,
    "hyperparameters": {**POINTS[0], "max_step": "inf"},
  }


def test_a_run_that_was_killed_has_what_was_measured(tmp_path):
  writer = writers.RunWriter(tmp_path, CONFIG, POINTS)
  run = load_run(tmp_path)
  assert run.points == []
  assert run.history.rounds == []
  writer.write(two_points())
  run = load_run(tmp_path)
  assert not run.is_complete
  assert run.points == [
    {"client_lr": 0.1, "seed": 0}, {"client_lr": 1.0, "seed": 0}
  ]  # fmt: skip
  assert run.history.rounds == [10, 20]
  assert (run.summary, run.params, run.selected) == (None, None, None)
  assert "not complete" in repr(run)
  assert "not complete" in run._repr_html_()
  writer.close()


def test_where_all_diverged_there_is_no_model(tmp_path):
  history = random(2, diverged=[(0, 1), (1, 0)])
  (tmp_path / "params.safetensors").touch()  # Of an earlier start of the run.
  writer = writers.RunWriter(tmp_path / "run", CONFIG, POINTS)
  (tmp_path / "run" / "params.safetensors").touch()
  writer.finish(history, Criterion(), params=of_point)
  run = load_run(tmp_path / "run")
  assert run.selected is None
  assert run.params is None
  assert run.is_complete


def test_a_data_frame_has_the_rows_of_the_file(tmp_path, monkeypatch):
  pytest.importorskip("pandas")
  write(tmp_path)
  frame = load_run(tmp_path).to_pandas()
  assert list(frame.columns) == [
    "point", "round", "client_lr", "server_lr", "max_step", "seed",
    *two_points().metrics,
  ]  # fmt: skip
  assert frame["point"].tolist() == [0, 1, 0, 1]
  assert frame["round"].tolist() == [10, 10, 20, 20]
  assert frame["client_lr"].tolist() == [0.1, 1.0, 0.1, 1.0]
  last = frame[(frame["round"] == 20) & (frame["client_lr"] == 0.1)]
  assert last["test_accuracy"].item() == 2 / 3
  assert frame["train_loss"].isna().tolist() == [False, False, False, True]
  monkeypatch.setitem(sys.modules, "pandas", None)
  with pytest.raises(ImportError, match="needs pandas; install it with pip"):
    load_run(tmp_path).to_pandas()


def test_what_is_shown_is_short(tmp_path):
  points = [{"client_lr": 0.5**i, "<b>": i, "seed": 0} for i in range(50)]
  writer = writers.RunWriter(tmp_path / "a", CONFIG, points)
  writer.finish(random(50), Criterion())
  run = load_run(tmp_path / "a")
  assert repr(run) == (
    f"Run('{tmp_path / 'a'}': digits, fed_avg, sgd, 40 rounds, 50 points, "
    f"selected {run.selected})"
  )
  table = run._repr_html_()
  assert "&lt;b&gt;" in table
  assert "<th>test_accuracy</th>" in table
  assert table.count("<tr>") == 21
  assert "and 30 more points" in table


def refused(folder):
  """What is said of a folder."""
  folder_of, _, what = refusal(load_run, folder).partition(": ")
  assert folder_of == f"folder={str(folder)!r}"
  return what


def test_what_is_no_folder_of_a_run(tmp_path):
  assert (
    refused(tmp_path / "x") == "there is no such folder; give that of a run"
  )
  (tmp_path / "file").touch()
  assert refused(tmp_path / "file") == "is a file; give that of a run"
  assert refused(tmp_path) == (
    "holds no run (it has no config.json); give the folder of one"
  )
  with pytest.raises(TypeError, match=r"folder=3: must be a path"):
    load_run(3)


@pytest.mark.parametrize(
  ("name", "content"),
  [
    ("config.json", b"{"),
    ("summary.json", b"[1]"),
    ("summary.json", b"{}"),
    ("summary.json", b'{"points": []}'),
    ("metrics.csv", b"a,b\n1,2\n"),
    ("metrics.csv", b"\xff\xfe\n"),
    ("params.safetensors", b"short"),
  ],
)
def test_a_file_that_cannot_be_read(tmp_path, name, content):
  write(tmp_path)
  (tmp_path / "digests.json").unlink()  # As in an older version.
  (tmp_path / name).write_bytes(content)
  message = refused(tmp_path)
  assert message.startswith(f"{name}: cannot be read (")
  assert message.endswith("; give that of a whole run")


def test_files_that_do_not_belong_together(tmp_path):
  write(tmp_path)
  (tmp_path / "digests.json").unlink()
  (tmp_path / "metrics.csv").unlink()
  assert refused(tmp_path).startswith(
    "metrics.csv has 0 points, summary.json 2"
  )


def test_before_the_first_evaluation(tmp_path):
  writer = writers.RunWriter(tmp_path, CONFIG, POINTS)
  writer.finish(History(), Criterion(), {"stopped_by": "signal"})
  run = load_run(tmp_path)
  assert not run.is_complete  # It was ended by a signal.
  assert run.points == list(POINTS)
  assert run.history.rounds == []
  assert run.selected is None
  assert [point["final"] for point in run.summary["points"]] == [{}, {}]


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
  ],
)
def test_other_models(tmp_path, params, expected):
  (tmp_path / "m").write_bytes(encoded(params, {"rounds": 2}))
  read, about = read_model(tmp_path / "m")
  assert about == {"rounds": 2}
  chex.assert_trees_all_equal(read, expected)


@pytest.mark.parametrize(
  ("params", "message"),
  [
    ({"a": {"b": np.ones(1)}, "a/b": np.ones(1)}, "two leaves have the same"),
    # Nobody could read such a file.
    ({"a": np.ones(1), "a/b": np.ones(1)}, "params: 'a' is a leaf, and holds"),
  ],
)
def test_models_that_cannot_be_written(params, message):
  with pytest.raises(ValueError, match=message):
    encoded(params, {})
