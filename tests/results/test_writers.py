"""The output folder: when it is refused, and what is in its files."""

import json
import os
import pathlib

import numpy as np
import pytest

import fedjax_opt
from fedjax_opt.base import STREAMS
from fedjax_opt.results import writers
from fedjax_opt.results.environment import PACKAGES
from fedjax_opt.results.history import History
from fedjax_opt.results.metrics_file import read_metrics
from fedjax_opt.results.selection import Criterion
from tests.file_limits import limited
from tests.results.histories import random, two_points

CRITERION = Criterion()
ABOUT = {"timing": {"run_seconds": 2.0}, "padding_waste": np.float32(0.25)}
POINTS = ({"client_lr": 0.1, "seed": 0}, {"client_lr": 1.0, "seed": 0})


def strict(path: pathlib.Path):
  def refuse(constant):
    raise AssertionError(f"{constant} is not JSON")

  return json.loads(path.read_text(), parse_constant=refuse)


# Folders that are refused: tests/experiments/test_run.py.


def test_new_and_empty_folders_are_fine(tmp_path):
  new = tmp_path / "a" / "b"
  assert writers.check_output_dir(new) == new
  assert not (tmp_path / "a").exists()
  assert writers.check_output_dir(tmp_path) == tmp_path


def test_a_folder_that_may_not_be_written(tmp_path, monkeypatch):
  monkeypatch.setattr(os, "access", lambda *_: False)
  with pytest.raises(ValueError, match=r"output_dir=.*cannot be written"):
    writers.check_output_dir(tmp_path / "run")


def test_config_has_versions_and_plain_values(tmp_path):
  flags = {
    "client_lr": [np.float32(0.5), 1.0],
    "max_step": float("inf"),
    "data_dir": None,
    "output_dir": tmp_path,
  }
  writers.RunWriter(tmp_path, flags, POINTS).close()
  config = strict(tmp_path / "config.json")
  versions = config.pop("versions")
  assert set(versions) == {*("python", "fedjax_opt", *PACKAGES)}
  assert versions["fedjax_opt"] == fedjax_opt.__version__
  assert versions["numpy"] == np.__version__
  assert set(config.pop("device")) == {"platform", "kind", "count"}
  assert config == {
    "client_lr": [0.5, 1.0],
    "max_step": "inf",
    "data_dir": None,
    "output_dir": str(tmp_path),
    "streams": STREAMS,
  }


class TestMetricsCsv:
  def test_rows_appear_whole_as_rounds_finish(self, tmp_path):
    writer = writers.RunWriter(tmp_path, {}, POINTS)
    whole = two_points()
    history = History()
    path = tmp_path / "metrics.csv"
    for column, round_number in enumerate(whole.rounds):
      history.append(
        round_number, {n: v[:, column] for n, v in whole.metrics.items()}
      )
      writer.write(history)
      # Read while the writer still holds the file, as after a kill.
      text = path.read_text()
      assert text.endswith("\n")
      assert len(text.splitlines()) == 1 + 2 * (column + 1)
    writer.write(history)
    assert path.read_text() == text
    writer.close()

  def test_a_column_for_each_hyperparameter_that_varies_and_the_seed(
    self, tmp_path
  ):
    points = [
      {"seed": seed, "client_lr": rate, "server_lr": 1.0, "name": "a,b"[:n]}
      for n, (seed, rate) in enumerate([(3, 0.1), (4, 1e-5)], start=2)
    ]
    writer = writers.RunWriter(tmp_path, {}, points)
    writer.write(two_points())
    writer.close()
    text = (tmp_path / "metrics.csv").read_text()
    assert text.startswith("point,round,client_lr,name,seed,train_loss,")
    # Without the values of a point that has diverged.
    assert text.endswith('\n1,20,1e-05,"a,b",4,,,\n')
    read, history = read_metrics(tmp_path / "metrics.csv")
    assert read == [
      {"client_lr": 0.1, "name": "a,", "seed": 3},
      {"client_lr": 1e-5, "name": "a,b", "seed": 4},
    ]
    assert [type(p["seed"]) for p in read] == [int, int]
    assert history.rounds == [10, 20]
    for name in two_points().metrics:
      np.testing.assert_array_equal(
        history.metrics[name], two_points().values(name)
      )

  def test_a_full_disk_leaves_whole_rows(self, tmp_path):
    """And rows that come later, where there is space again, are whole too."""
    path, history, one = tmp_path / "metrics.csv", random(20), History()
    file = writers.RunWriter(tmp_path, {}, [{"seed": s} for s in range(20)])
    add = lambda column: one.append(
      history.rounds[column],
      {name: values[:, column] for name, values in history.metrics.items()},
    )
    add(0)
    file.write(one)
    whole = path.read_bytes()
    for _ in range(2):
      add(len(one.rounds))
      with limited(len(whole) + 100), pytest.raises(OSError, match="too large"):
        file.write(one)
      assert path.read_bytes() == whole
    file.write(one)
    assert read_metrics(path)[1].rounds == one.rounds
    whole = path.read_bytes()
    add(3)
    with limited(len(whole) + 100), pytest.raises(OSError, match="too large"):
      file.write(one)
    file.close()
    assert path.read_bytes() == whole

  def test_a_metric_named_as_a_hyperparameter(self, tmp_path):
    points = [{**point, "train_loss": i} for i, point in enumerate(POINTS)]
    writer = writers.RunWriter(tmp_path, {}, points)
    with pytest.raises(ValueError, match=r"metrics: 'train_loss' is the name"):
      writer.write(two_points())
    assert not (tmp_path / "metrics.csv").exists()

  def test_rows_of_a_round_that_is_not_whole_are_not_read(self, tmp_path):
    writer = writers.RunWriter(tmp_path, {}, POINTS)
    writer.write(two_points())
    writer.close()
    path = tmp_path / "metrics.csv"
    whole = path.read_bytes()
    ends = [i + 1 for i, byte in enumerate(whole) if byte == ord("\n")]
    assert len(ends) == 5
    for size in range(ends[2], len(whole)):  # The first rows come at once.
      path.write_bytes(whole[:size])
      _, history = read_metrics(path)
      assert history.rounds == [10]
      assert history.num_points == 2

  def test_refuses_another_number_of_points(self, tmp_path):
    writer = writers.RunWriter(tmp_path, {}, POINTS[:1])
    with pytest.raises(
      ValueError, match="history: has 2 points; this run has 1"
    ):
      writer.write(two_points())
    writer.close()


class TestSummary:
  def test_has_the_contract(self, tmp_path):
    writer = writers.RunWriter(tmp_path, {"task": "digits"}, POINTS)
    returned = writer.finish(two_points(), CRITERION, ABOUT)
    summary = strict(tmp_path / "summary.json")
    assert returned == summary
    assert summary["config"] == strict(tmp_path / "config.json")
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
      "hyperparameters": POINTS[0],
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
    assert sorted(path.name for path in tmp_path.iterdir()) == [
      "config.json",
      "digests.json",
      "metrics.csv",
      "summary.json",
      "tensorboard",
    ]
