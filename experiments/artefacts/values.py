"""Values of records, by the words with which TOML files name them.

| words | value of each point |
|---|---|
| `M` | the last value of metric `M` |
| `best M` | its best value within the run |
| `mean M` | its mean over all evaluated rounds: one number for how fast it is |
| `M at 100` | its value at the last evaluation up to round 100 |
| `M after 25 %` | its value at the evaluation nearest to a quarter of the run |
| `progress M` | how much of the way from its first value to 1 is done |
| `rounds to M >= 0.9` | the first evaluated round with such a value (`==` is \
also possible). If there is none, one evaluation after the last one |
"""

import functools
import operator
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from experiments.stored.records import Record
from experiments.tasks import images
from fedjax_opt import statistics
from fedjax_opt.datasets import texts
from fedjax_opt.results import metric_names
from fedjax_opt.study.numbers import NumberFormat

ACCURACY = "test_accuracy"
# How a task's name begins -> number of classes.
_CLASSES = {
  name.replace("_", ""): dataset.num_classes
  for name, dataset in {**images.DATASETS, **texts.DATASETS}.items()
}
# A run ended at chance if its accuracy is at most this far above a guess.
_OF_CHANCE = 0.02
NOT_RUN = "-"


class Value(NamedTuple):
  """One number for each point of a record.

  Attributes:
    words: the name, such as 'best train_loss'.
    metric: the metric that it is made of.
    compute: `record -> numbers`, [S].
  """

  words: str
  metric: str
  compute: Callable[[Record], np.ndarray]

  @property
  def unit(self) -> str:
    """The unit of differences; for accuracies points, a hundredth each."""
    if self.words.startswith(("rounds", "halvings")):
      return self.words.split()[0]
    return "points" if metric_names.is_accuracy(self.metric) else ""

  @property
  def scale(self) -> float:
    """The factor that turns a difference into one in `unit`."""
    return 100.0 if self.unit == "points" else 1.0

  @property
  def label(self) -> str:
    """The words, without underscores, and with signs as they are printed."""
    text = self.words.replace("_", " ")
    return text.replace(">=", "≥").replace("==", "=")

  @property
  def lost(self) -> str:
    """What happened where the value is NaN, in words."""
    late = self.metric in ("rounds", "halvings", "exponent")
    return "did not get there" if late else "diverged"

  @property
  def is_smaller_better(self) -> bool:
    """Whether smaller values are better."""
    is_late = self.words.startswith("rounds")
    return is_late or metric_names.direction(self.metric) == "min"


def _best(values: np.ndarray, rounds: np.ndarray, metric: str) -> np.ndarray:
  best_of = np.min if metric_names.direction(metric) == "min" else np.max
  return best_of(values, axis=1)


def _at(values: np.ndarray, rounds: np.ndarray, _, last: str) -> np.ndarray:
  return _of_runs_that_end(values, np.flatnonzero(rounds <= float(last))[-1])


def _after(values: np.ndarray, rounds: np.ndarray, _, share: str) -> np.ndarray:
  wanted = float(share) / 100 * rounds[-1]
  return _of_runs_that_end(values, np.argmin(abs(rounds - wanted)))


def _of_runs_that_end(values: np.ndarray, place: int) -> np.ndarray:
  """The values at an evaluation; NaN for runs that diverge, also later."""
  return np.where(np.isfinite(values[:, -1]), values[:, place], np.nan)


def _progress(values: np.ndarray, *_: Any) -> np.ndarray:
  return (values[:, -1] - values[:, 0]) / (1 - values[:, 0])


def _rounds_to(
  values: np.ndarray, rounds: np.ndarray, _, sign: str, limit: str
) -> np.ndarray:
  compare = {">=": operator.ge, "==": operator.eq}[sign]
  is_there = compare(values, float(limit))
  never = np.ones((len(is_there), 1), bool)
  later = 2 * rounds[-1] - rounds[-2] if len(rounds) > 1 else 1
  first = np.concatenate([is_there, never], axis=1).argmax(axis=1)
  return np.append(rounds, later)[first]


# Pattern of the words -> `(values [S, E], rounds [E], metric, *others) -> [S]`.
_KINDS: dict[str, Callable[..., np.ndarray]] = {
  r"(\w+)": lambda values, *_: values[:, -1],
  r"best (\w+)": _best,
  r"mean (\w+)": lambda values, *_: values.mean(axis=1),
  r"(\w+) at (\d+)": _at,
  r"(\w+) after (\d+) %": _after,
  r"progress (\w+)": _progress,
  r"rounds to (\w+) (>=|==) (\S+)": _rounds_to,
}


@functools.cache
def value(words: str = ACCURACY) -> Value:
  """The value that these words name; see the head of this file.

  Raises:
    ValueError: if they name none.
  """
  for pattern, function in _KINDS.items():
    if match := re.fullmatch(pattern, words):
      metric, *arguments = match.groups()
      measure = functools.partial(_measured, function, metric, arguments)
      return Value(words, metric, measure)
  raise ValueError(
    f"value={words!r}: must be in a form that {__name__} lists, such as "
    "'best test_accuracy'"
  )


def _measured(
  function: Callable[..., np.ndarray],
  metric: str,
  arguments: Sequence[str],
  record: Record,
) -> np.ndarray:
  rounds = np.asarray(record.history.rounds, float)
  return function(record.history.values(metric), rounds, metric, *arguments)


def at_chance(record: Record) -> int:
  """How many runs of a record ended at chance; 0 if no guess is known."""
  task = str(record.flags.get("task", "digits")).split("_")[0]
  if task not in _CLASSES:
    return 0
  limit = 1 / _CLASSES[task] + _OF_CHANCE
  return int(np.sum(record.final(ACCURACY) <= limit))


def with_interval(
  per_seed: Sequence[float], metric: str, deviation: bool = False
) -> str:
  """The mean over seeds with its 95 % interval: 91.2 (90.1 to 92.3).

  Args:
    per_seed: one value for each seed.
    metric: the metric of these values.
    deviation: whether the standard deviation is beside the mean, if there is an
      interval: 91.20 ± 0.45 (90.1 to 92.3).
  """
  per_seed = np.asarray(per_seed, float)
  num_lost = int(np.sum(~np.isfinite(per_seed)))
  if num_lost:
    is_all = num_lost == len(per_seed)
    return "diverged" if is_all else f"{num_lost} of {len(per_seed)} diverged"
  text, ends = NumberFormat(metric).texts(statistics.mean_interval(per_seed))
  if deviation and ends:
    write = NumberFormat(metric, 2).value
    text = f"{write(per_seed.mean())} ± {write(per_seed.std(ddof=1))}"
  return f"{text} ({ends})" if ends else text
