"""Runs that end before their last round: a target, or no improvement."""

import dataclasses

import numpy as np
import pytest

from experiments.single_run.stopping import Stopping
from fedjax_opt import load_run
from fedjax_opt.results.history import History
from fedjax_opt.results.selection import Criterion
from tests.helpers.commands import SMALL, call, spec_of, summary_of
from tests.helpers.histories import of_values

CRITERION = Criterion("test_accuracy", "max", "last")


def stopping_of(criterion=CRITERION, **flags):
  spec = dataclasses.replace(spec_of(), **flags)
  return Stopping(spec, criterion)


def first_end(stopping, history):
  """Evaluations until a run with these values ends; None for never."""
  for n in range(1, len(history.rounds) + 1):
    values = {name: v[:, :n] for name, v in history.metrics.items()}
    if stopping.is_over(History(history.rounds[:n], values)):
      return n
  return None


def spent(accuracy, **metrics):
  """A history in which rounds cost 3 and 4 bytes, and 5 gradients."""
  shape, nan = np.shape(accuracy), np.nan
  rounds = 10 * (1 + np.arange(shape[1])) * np.ones(shape)
  costs = {"bytes_down": 3, "bytes_up": 4, "gradient_evaluations": 5}
  costs = {name: cost * rounds for name, cost in costs.items()}
  loss = np.where(np.isnan(accuracy), nan, 1.0)
  return of_values(test_accuracy=accuracy, train_loss=loss, **costs, **metrics)


@pytest.mark.parametrize(
  ("accuracy", "expected"),
  [
    # Reached once is reached; every point must have.
    ([[0.1, 0.9, 0.5, 0.5], [0.1, 0.1, 0.2, 0.95]], 4),
    ([[0.1, 0.9, 0.5, 0.5], [0.1, 0.1, 0.2, 0.8]], None),
    # But for those that diverged, also after they had reached it.
    ([[0.1, 0.5, 0.9, 0.9], [0.1, np.nan, np.nan, np.nan]], 3),
    ([[0.1, 0.5, 0.5, 0.9], [0.95, 0.95, np.nan, np.nan]], 4),
    ([[np.nan] * 4, [np.nan] * 4], None),
    # What was measured in float32.
    ([[0.1, np.float32(0.9), 0, 0]], 2),
  ],
)
def test_the_target_is_reached(accuracy, expected):
  stopping = stopping_of(target_accuracy=0.9)
  assert first_end(stopping, spent(accuracy)) == expected
  assert stopping.stopped_by == (expected and "target")


def test_what_was_spent_until_the_target():
  stopping = stopping_of(target_accuracy=0.9)
  history = spent([[0.1, 0.9, 0.5], [0.1, 0.1, 0.2], [0.95, np.nan, np.nan]])
  names = ("rounds", "bytes", "gradient_evaluations")
  assert stopping.spent(history) == [
    {f"{n}_to_target": v for n, v in zip(names, values, strict=True)}
    for values in ((20, 140.0, 100.0), (None,) * 3, (10, 70.0, 50.0))
  ]
  assert stopping.target(history) == {"metric": "test_accuracy", "value": 0.9}
  assert stopping_of().spent(history) == []
  assert stopping_of().target(history) is None


@pytest.mark.parametrize(
  ("metric", "expected"),
  [
    ("validation_accuracy", "validation_accuracy"),
    ("test_accuracy", "test_accuracy"),
    ("train_loss", "train_accuracy"),
    ("regularized_test_loss", "test_accuracy"),
    ("f1", "validation_accuracy"),
  ],
)
def test_which_accuracy(metric, expected):
  names = [f"{split}_accuracy" for split in ("train", "test", "validation")]
  history = of_values(**{name: [[float(name == expected)]] for name in names})
  stopping = stopping_of(Criterion(metric, "max"), target_accuracy=1.0)
  assert stopping.target(history)["metric"] == expected
  assert stopping.is_over(history)


def test_without_validation_examples_the_test_examples_count():
  history = of_values(train_accuracy=[[1.0]], test_accuracy=[[0.0]])
  stopping = stopping_of(Criterion("f1", "max"), target_accuracy=1.0)
  assert stopping.target(history)["metric"] == "test_accuracy"
  assert not stopping.is_over(history)


@pytest.mark.parametrize(
  ("direction", "values", "expected"),
  [
    ("max", [[1, 2, 3, 3, 3, 3]], 5),
    ("max", [[1, 2, 3, 3, 4, 4, 4]], 7),
    ("max", [[3, 2, 1], [1, 1, 1]], 3),
    ("max", [[3, 2, 1, 1], [1, 2, 3, 4]], None),
    ("min", [[3, 2, 1], [3, 3, 3]], None),
    ("min", [[1, 2, 3]], 3),
    ("max", [[1, 2, np.nan, np.nan]], 4),
    ("max", [[np.nan, np.nan, np.nan]], 3),
    ("max", [[1, 1]], None),
  ],
)
def test_patience(direction, values, expected):
  stopping = stopping_of(Criterion("f1", direction), patience=2)
  history = of_values(f1=values, train_loss=np.multiply(values, 1.0))
  assert first_end(stopping, history) == expected
  assert stopping.stopped_by == (expected and "patience")


GRID = (
  *SMALL, "--client=sgd", "--client_lr=0.1,1", "--eval_every=3",
  "--checkpoint_every=4", "--noprogress",
)  # fmt: skip


@pytest.mark.slow
def test_a_run_ends_at_its_target_also_if_it_is_extended(tmp_path, capsys):
  arguments = (*GRID, "--target_accuracy=0.85")
  whole_folder, folder = tmp_path / "whole", tmp_path / "run"
  assert call(*arguments, f"--output_dir={whole_folder}") == 0
  out = capsys.readouterr().out
  run = load_run(whole_folder)
  last_round = run.history.rounds[-1]
  assert last_round < 100
  assert last_round % 3 == 0
  assert f"ended by target after {last_round} of 100 rounds\n" in out
  accuracy = run.history.metrics["validation_accuracy"]
  assert (accuracy.max(axis=1) >= 0.85).all()
  assert (accuracy[:, :-1].max(axis=1) < 0.85).any()
  summary = run.summary
  assert run.is_complete
  assert summary["stopped_by"] == "target"
  assert summary["rounds_done"] == last_round
  assert summary["target"] == {
    "metric": "validation_accuracy", "value": 0.85
  }  # fmt: skip
  per_round = summary["cost"]["bytes_up_per_round"]
  for point in summary["points"]:
    rounds = point["rounds_to_target"]
    assert point["bytes_to_target"] == 2 * per_round * rounds
  assert max(p["rounds_to_target"] for p in summary["points"]) == last_round

  # Extended from before it reached it, and from after.
  flags = (f"--output_dir={folder}", "--resume")
  for rounds in (5, 50, 100):
    assert call(*arguments, f"--rounds={rounds}", *flags) == 0
  for name in ("metrics.csv", "params.safetensors"):
    assert (folder / name).read_bytes() == (whole_folder / name).read_bytes()
  summary = summary_of(folder)
  assert summary["points"] == run.summary["points"]
