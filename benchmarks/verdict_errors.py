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

  python benchmarks/verdict_errors.py
"""

from collections.abc import Callable

import numpy as np
import shared

from fedjax_opt.study import pairs

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
  one, other = np.triu_indices(len(values), 1)
  p = np.stack(
    [pairs.p_values(*values[[i, j]]) for i, j in zip(one, other, strict=True)],
    -1,
  )
  adjusted = pairs.holm(p)  # [T, P]
  means = values.mean(axis=1)
  best, studies = means.argmax(axis=0), np.arange(values.shape[2])
  of_pair = np.zeros((len(values),) * 2, int)
  of_pair[one, other] = of_pair[other, one] = np.arange(len(one))
  found = np.zeros(means.shape, bool)
  for method, mean in enumerate(means):
    behind = means[best, studies] - mean
    is_clear = adjusted[studies, of_pair[method, best]] < pairs.LEVEL
    found[method] = is_clear & (behind >= min_effect) & (best != method)
  return found


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
  shared.parser(__doc__).parse_args()
  rng = np.random.default_rng(0)
  for kind in ("normal", "exponential"):
    table(
      f"Equal methods, {kind}: studies that call any worse",
      lambda k, n, is_skewed=kind == "exponential": equal_methods(
        rng, k, n, STUDIES, is_skewed
      ),
    )
  for difference in DIFFERENCES:
    table(
      f"One method is {100 * difference:g} points better: those called worse",
      lambda k, n, d=difference: power(rng, k, n, d, STUDIES // 4),
    )
  for kind in ("chosen once", "nested"):
    table(
      f"Equal methods, choices are luck, {kind}: studies that call any worse",
      lambda k, n, x=kind == "nested": chosen_by_luck(rng, k, n, x, STUDIES),
    )


def table(title: str, share: Callable[[int, int], float]) -> None:
  """Prints one, with a row for each number of methods."""
  header = ("methods", *(f"{seeds} seeds" for seeds in SEEDS))
  rows = [
    [str(k), *(f"{share(k, seeds):.1%}" for seeds in SEEDS)] for k in METHODS
  ]
  print(f"\n{title}\n\n{shared.table(header, rows)}", flush=True)


if __name__ == "__main__":
  main()
