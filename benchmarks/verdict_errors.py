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

  PYTHONPATH=. python benchmarks/verdict_errors.py [--studies=20000]
"""

import argparse

import numpy as np

from fedjax_opt.study import pairs

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


def table(title, name, rows) -> None:
  """Prints one, with a column for each number of seeds."""
  print(f"\n{title}\n\n| {name} | {' | '.join(f'{n} seeds' for n in SEEDS)} |")
  print("|---" + "|---:" * len(SEEDS) + "|")
  for label, row in rows:
    print(f"| {label} | {' | '.join(f'{share:.1%}' for share in row)} |")


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
  parser.add_argument("--studies", type=int, default=20_000)
  studies, rng = parser.parse_args().studies, np.random.default_rng(0)
  for kind in ("normal", "exponential"):
    table(
      f"Equal methods, {kind}: studies that call any worse",
      "methods",
      (
        (k, (equal_methods(rng, k, n, studies, kind[0] == "e") for n in SEEDS))
        for k in METHODS
      ),
    )
  table(
    "One method is better: those called worse",
    "methods, points",
    (
      (f"{k}, {100 * d:g}", (power(rng, k, n, d, studies // 4) for n in SEEDS))
      for k in METHODS
      for d in DIFFERENCES
    ),
  )
  table(
    "Equal methods, choices are luck: studies that call any worse",
    "methods",
    (
      (f"{k}, {kind}", (chosen_by_luck(rng, k, n, x, studies) for n in SEEDS))
      for k in METHODS
      for x, kind in enumerate(("chosen once", "nested"))
    ),
  )


if __name__ == "__main__":
  main()
