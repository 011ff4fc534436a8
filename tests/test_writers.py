import builtins
import csv
import json
import os
import pathlib
import struct

import numpy as np
import pytest

import fedjax_opt
from fedjax_opt import metrics, writers

CRITERION = metrics.Criterion()
TIMING = {"compile_seconds": 1.5, "run_seconds": 2.0, "rounds_per_second": 10.0}
COST = {"bytes_down": 400, "bytes_up": 400, "gradient_evaluations": 512}
POINTS = ({"client_lr": 0.1, "seed": 0}, {"client_lr": 1.0, "seed": 0})


def two_rounds() -> metrics.History:
  """The second point diverges in the second evaluated round."""
  return metrics.History(
    [10, 20],
    {
      "train_loss": np.array([[1.0, 0.5], [2.0, np.nan]]),
      "test_accuracy": np.array([[1 / 3, 2 / 3], [0.25, 0.1]]),
      "worst_decile_accuracy": np.array([[0.1, 0.2], [0.0, 0.0]]),
    },
  )


def strict(path: pathlib.Path):
  def refuse(constant):
    raise AssertionError(f"{constant} is not JSON")

  return json.loads(path.read_text(), parse_constant=refuse)


class TestOutputDir:
  def test_new_and_empty_folders_are_fine(self, tmp_path):
    new = tmp_path / "a" / "b"
    assert writers.check_output_dir(new) == new
    assert not (tmp_path / "a").exists()
    assert writers.check_output_dir(tmp_path) == tmp_path

  def test_another_run(self, tmp_path):
    writers.RunWriter(tmp_path / "run", {}, POINTS).close()
    with pytest.raises(ValueError, match=r"output_dir=.*holds another run"):
      writers.RunWriter(tmp_path / "run", {}, POINTS)

  def test_not_empty(self, tmp_path):
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(ValueError, match=r"is not empty \(it has 'thesis.tex'"):
      writers.RunWriter(tmp_path, {}, POINTS)
    assert os.listdir(tmp_path) == ["thesis.tex"]

  @pytest.mark.parametrize("below", ["", "run"])
  def test_a_file(self, tmp_path, below):
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"output_dir=.*is a file; give a"):
      writers.check_output_dir(tmp_path / "file" / below)

  def test_no_permission(self, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(ValueError, match=r"output_dir=.*cannot be written"):
      writers.check_output_dir(tmp_path / "run")

  def test_a_folder_that_cannot_be_made(self, tmp_path):
    name = "x" * 300
    with pytest.raises(ValueError, match=r"cannot be written \(.*too long"):
      writers.RunWriter(tmp_path / name, {}, POINTS)


class TestConfig:
  def test_has_every_flag_versions_and_device(self, tmp_path):
    flags = {
      "task": "digits",
      "client_lr": [np.float32(0.5), 1.0],
      "max_step": float("inf"),
      "data_dir": None,
      "output_dir": tmp_path,
    }
    writers.RunWriter(tmp_path, flags, POINTS).close()
    config = strict(tmp_path / "config.json")
    assert config["task"] == "digits"
    assert config["client_lr"] == [0.5, 1.0]
    assert config["max_step"] == "inf"
    assert config["data_dir"] is None
    assert config["output_dir"] == str(tmp_path)
    assert set(config["versions"]) == {
      *("python", "fedjax_opt", *writers.PACKAGES)
    }
    assert config["versions"]["fedjax_opt"] == fedjax_opt.__version__
    assert config["versions"]["numpy"] == np.__version__
    assert set(config["device"]) == {"platform", "kind", "count"}


class TestMetricsCsv:
  def test_rows_appear_whole_as_rounds_finish(self, tmp_path):
    writer = writers.RunWriter(tmp_path, {}, POINTS)
    whole = two_rounds()
    history = metrics.History()
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

  def test_numbers_are_exact_and_divergence_is_empty(self, tmp_path):
    writer = writers.RunWriter(tmp_path, {}, POINTS)
    writer.write(two_rounds())
    writer.close()
    with open(tmp_path / "metrics.csv", newline="") as file:
      rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["point", "round", *two_rounds().metrics]
    assert [(r["point"], r["round"]) for r in rows] == [
      ("0", "10"),
      ("1", "10"),
      ("0", "20"),
      ("1", "20"),
    ]
    assert float(rows[0]["test_accuracy"]) == 1 / 3
    assert rows[3]["train_loss"] == rows[3]["test_accuracy"] == ""
    assert "nan" not in (tmp_path / "metrics.csv").read_text()

  def test_refuses_another_number_of_points(self, tmp_path):
    writer = writers.RunWriter(tmp_path, {}, POINTS[:1])
    with pytest.raises(
      ValueError, match="history: has 2 points; this run has 1"
    ):
      writer.write(two_rounds())
    writer.close()


class TestSummary:
  def test_has_the_contract(self, tmp_path):
    writer = writers.RunWriter(tmp_path, {"task": "digits"}, POINTS)
    returned = writer.finish(
      two_rounds(), CRITERION, TIMING, COST, waste=np.float32(0.25)
    )
    summary = strict(tmp_path / "summary.json")
    assert returned == summary
    assert summary["config"] == strict(tmp_path / "config.json")
    assert summary["selected"] == 0
    assert summary["criterion"]["metric"] == "test_accuracy"
    assert summary["timing"] == TIMING
    assert summary["cost"] == COST
    assert summary["padding_waste"] == 0.25
    ok, diverged = summary["points"]
    assert ok == {
      "hyperparameters": POINTS[0],
      "final": {
        "train_loss": 0.5,
        "test_accuracy": 2 / 3,
        "worst_decile_accuracy": 0.2,
      },
      "best": {
        "train_loss": 0.5,
        "test_accuracy": 2 / 3,
        "worst_decile_accuracy": 0.2,
      },
      "best_round": {
        "train_loss": 20,
        "test_accuracy": 20,
        "worst_decile_accuracy": 20,
      },
      "status": "ok",
    }
    assert diverged["status"] == "diverged"
    assert diverged["diverged_round"] == 20
    assert set(diverged["final"].values()) == {None}
    assert diverged["best"]["test_accuracy"] == 0.25

  def test_leaves_no_unfinished_file(self, tmp_path):
    writer = writers.RunWriter(tmp_path, {}, POINTS)
    writer.finish(two_rounds(), CRITERION, TIMING, COST)
    files = {p.name for p in tmp_path.iterdir() if p.is_file()}
    assert files == {"config.json", "metrics.csv", "summary.json"}

  def test_before_the_first_evaluation(self, tmp_path):
    writer = writers.RunWriter(tmp_path, {}, POINTS)
    summary = writer.finish(metrics.History(), CRITERION, TIMING, COST)
    assert summary == strict(tmp_path / "summary.json")
    assert summary["selected"] is None
    assert summary["points"][0]["final"] == {}


class TestTensorBoard:
  @pytest.mark.parametrize("live", [True, False])
  def test_one_sub_run_for_each_point(self, tmp_path, monkeypatch, live):
    pytest.importorskip("tensorboardX")
    monkeypatch.setattr(writers, "_LIVE_SUB_RUNS", 64 if live else 1)
    writer = writers.RunWriter(tmp_path, {}, POINTS)
    assert writer.has_events
    writer.write(two_rounds())
    assert (tmp_path / "tensorboard").exists() == live
    writer.finish(two_rounds(), CRITERION, TIMING, COST)
    assert "TensorBoard" not in writer.closing_line()
    runs = sorted(p.name for p in (tmp_path / "tensorboard").iterdir())
    assert runs == ["0,client_lr=0.1", "1,client_lr=1"]
    first = scalars(tmp_path / "tensorboard" / runs[0])
    assert first["test_accuracy"] == [
      (10, pytest.approx(1 / 3)),
      (20, pytest.approx(2 / 3)),
    ]
    # Nothing after the divergence.
    second = scalars(tmp_path / "tensorboard" / runs[1])
    assert second["test_accuracy"] == [(10, 0.25)]

  def test_absent_without_tensorboardx(self, tmp_path, monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
      if name == "tensorboardX":
        raise ImportError(name)
      return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    writer = writers.RunWriter(tmp_path, {}, POINTS)
    summary = writer.finish(two_rounds(), CRITERION, TIMING, COST)
    assert summary["tensorboard"] is None
    assert not (tmp_path / "tensorboard").exists()
    assert "pip install 'fedjax_opt[tensorboard]'" in writer.closing_line()


def scalars(folder: pathlib.Path) -> dict[str, list[tuple[int, float]]]:
  """Reads an event file: records of length, checksum, event, checksum."""
  from tensorboardX.proto import event_pb2

  (path,) = folder.iterdir()
  content, at = path.read_bytes(), 0
  found: dict[str, list[tuple[int, float]]] = {}
  while at < len(content):
    (length,) = struct.unpack_from("<Q", content, at)
    event = event_pb2.Event.FromString(content[at + 12 : at + 12 + length])
    at += 12 + length + 4
    for value in event.summary.value:
      found.setdefault(value.tag, []).append((event.step, value.simple_value))
  return found


class TestTable:
  def test_one_row_for_each_point(self):
    assert writers.table(two_rounds(), POINTS, CRITERION) == (
      "after round 20:\n"
      "   client_lr  test_accuracy  best (round)  worst decile  status\n"
      "*        0.1        66.67 %  66.67 % (20)       20.00 %  ok\n"
      "           1              -  25.00 % (10)             -"
      "  diverged at 20\n"
      "* selected: highest test_accuracy (last)"
    )

  def test_mean_and_deviation_over_seeds(self):
    points = [{"gamma": g, "seed": s} for g in (1.0, 2.0) for s in (0, 1)]
    history = metrics.History(
      [5],
      {
        "train_loss": np.array([[1.0], [1.0], [1.0], [np.nan]]),
        "test_accuracy": np.array([[0.8], [0.9], [0.95], [0.1]]),
      },
    )
    text = writers.table(history, points, CRITERION)
    assert "*      1  85.00 ± 7.07 %" in text
    assert "ok (2 seeds)" in text
    assert "95.00 %" in text
    assert "1 of 2 diverged from 5" in text
    assert "sample standard deviation" in text

  def test_the_best_ten_of_many(self):
    points = [{"client_lr": i / 100} for i in range(21)]
    accuracy = np.arange(21.0)[:, None] / 100
    history = metrics.History([5], {"test_accuracy": accuracy})
    lines = writers.table(history, points, CRITERION).splitlines()
    assert lines[2].startswith("*        0.2        20.00 %")
    assert lines[-1].startswith("best 10 of 21 settings;")
    assert lines[-1].endswith("the other 11")
    assert len(lines) == 2 + 10 + 2

  def test_other_metrics_than_accuracy(self):
    history = metrics.History(
      [5],
      {"test_loss": np.array([[0.5], [0.25]]), "f1": np.array([[0.5], [1]])},
    )
    text = writers.table(history, POINTS, metrics.Criterion("test_loss", "min"))
    assert "*          1       0.25      0.25 (5)  ok" in text

  def test_the_criterion_is_shown_besides_accuracy(self):
    criterion = metrics.Criterion("train_loss", "min", "best")
    header = writers.table(two_rounds(), POINTS, criterion).splitlines()[1]
    assert "train_loss" in header

  def test_all_diverged(self):
    history = metrics.History([5], {"train_loss": np.full((2, 1), np.nan)})
    text = writers.table(
      history, POINTS, metrics.Criterion("train_loss", "min")
    )
    assert text.endswith("none selected: every point diverged")

  def test_before_the_first_evaluation(self):
    empty = metrics.History()
    assert writers.table(empty, POINTS, CRITERION) == "no round was evaluated"
