"""How often verdicts are wrong, and how often they find what is there.

Runs are simulated: each method's accuracy at a seed is a normal number, and
verdicts are those of the package's rule (`study.pairs`). Paired differences
have the deviation `SD`, the median over the 28 comparisons with the best method
in docs/which_method.toml, with twenty seeds.

1. Equal methods: the share of studies that call any of them worse.
2. One of the methods is better than all others: the share of the others that
   are called worse.
3. Equal methods, each of which chose among settings that validation cannot tell
   apart and whose true accuracies differ: chosen once for all seeds of the
   report, or by each seed (nested).

  python -m tools.verdict_errors
"""

import argparse
import functools
import itertools
from collections.abc import Callable

import numpy as np

from fedjax_opt.study import pairs
from fedjax_opt.study.report import formats

STUDIES = 20_000
METHODS, SEEDS = (2, 5, 8, 16), (2, 5, 10, 20)
SD, MIN_EFFECT = 0.0104, 0.005
DIFFERENCES = (0.005, 0.01, 0.02)
NUM_SETTINGS, SD_OF_SETTINGS = 6, 0.01


def are_worse(values: np.ndarray, min_effect: float = MIN_EFFECT) -> np.ndarray:
  """Which methods are called worse than the best. [k, n, T] -> [k, T] bool.

  Args:
    values: of k methods at n seeds in T studies; larger is better.
    min_effect: the smallest difference of interest.
  """
  indices = list(itertools.combinations(range(len(values)), 2))
  p = np.stack([pairs.p_values(values[i], values[j]) for i, j in indices], -1)
  is_clear = pairs.holm(p) < pairs.LEVEL  # [T, P]
  means = values.mean(axis=1)
  best, behind = means.argmax(axis=0), means.max(axis=0) - means
  is_worse = np.zeros(means.shape, bool)
  for (i, j), clear in zip(indices, is_clear.T, strict=True):
    is_worse[i] |= clear & (best == j)
    is_worse[j] |= clear & (best == i)
  return is_worse & (behind >= min_effect)


def equal_methods(rng, num_methods, num_seeds, studies, is_skewed=False):
  """The share of studies with a false difference."""
  shape = num_methods, num_seeds, studies
  values = rng.exponential(size=shape) if is_skewed else rng.normal(size=shape)
  return are_worse(values * SD / np.sqrt(2), 0.0).any(axis=0).mean()


def power(rng, num_methods, num_seeds, difference, studies):
  """The share of methods that are behind by this and are called worse."""
  values = rng.normal(size=(num_methods, num_seeds, studies)) * SD / np.sqrt(2)
  values[0] += difference
  return are_worse(values)[1:].mean()


def chosen_by_luck(rng, num_methods, num_seeds, is_nested, studies):
  """The share of studies with a false difference where choices are luck."""
  values = rng.normal(size=(num_methods, num_seeds, studies)) * SD / np.sqrt(2)
  settings = rng.normal(size=(num_methods, NUM_SETTINGS, studies))
  choices = num_seeds if is_nested else 1
  chosen = rng.integers(NUM_SETTINGS, size=(num_methods, choices, studies))
  values += SD_OF_SETTINGS * (
    np.take_along_axis(settings, chosen, 1)
    - settings.mean(axis=1, keepdims=True)  # What a choice has on average.
  )
  return are_worse(values).any(axis=0).mean()


def main() -> None:
  argparse.ArgumentParser(description=__doc__).parse_args()
  rng = np.random.default_rng(0)
  for kind in ("normal", "exponential"):
    share = functools.partial(
      equal_methods, rng, studies=STUDIES, is_skewed=kind == "exponential"
    )
    table(f"Equal methods, {kind}: studies that call any worse", share)
  for d in DIFFERENCES:
    share = functools.partial(power, rng, difference=d, studies=STUDIES // 4)
    table(f"One method is {100 * d:g} points better: those called worse", share)
  for kind in ("chosen once", "nested"):
    share = functools.partial(
      chosen_by_luck, rng, is_nested=kind == "nested", studies=STUDIES
    )
    choice = f"choices are luck, {kind}"
    table(f"Equal methods, {choice}: studies that call any worse", share)


def table(title: str, share: Callable[[int, int], float]) -> None:
  """Prints one, with a row for each number of methods."""
  header = ("methods", *(f"{seeds} seeds" for seeds in SEEDS))
  rows = [
    [str(k), *(f"{share(k, seeds):.1%}" for seeds in SEEDS)] for k in METHODS
  ]
  print(f"\n{title}\n\n{formats.markdown_rows(header, rows)}", flush=True)


if __name__ == "__main__":
  main()
