"""Writes rliable.json: what rliable computes, with the resamples that it drew.

Not a test. In an environment of its own:

  pip install rliable==1.2.0 "pandas<3"
  python tests/study/record_rliable.py

rliable draws its resamples from NumPy's global generator, so they are recorded
as it draws them. Percentile intervals, as it makes them by default.
"""

import json
import pathlib

import numpy as np
from rliable import library, metrics

NUM = 60
THRESHOLDS = [0.2, 0.35, 0.5, 0.65, 0.8]


def recorded(kind: type) -> list:
  """The indices of runs that a kind of bootstrap will draw from now on."""
  drawn = []
  original = kind.update_indices

  def update_indices(self):
    found = original(self)
    if isinstance(found[0], list):  # Of several arrays, and of keywords.
      drawn.append([np.asarray(of_one[0]).tolist() for of_one in found[0]])
    else:
      drawn.append(np.asarray(found[0]).tolist())
    return found

  kind.update_indices = update_indices
  return drawn


def main():
  stratified = recorded(library.StratifiedBootstrap)
  independent = recorded(library.StratifiedIndependentBootstrap)
  rng = np.random.default_rng(0)
  np.random.seed(1)  # noqa: NPY002
  # Of accuracies with two decimals some are equal.
  a = np.round(rng.beta(5, 3, (5, 3)), 2)
  b = np.round(rng.beta(4, 4, (4, 3)), 2)
  b[0, 1] = a[2, 1]
  cases = []

  def case(name, scores, function, drawn, **more):
    drawn.clear()
    points, ends = library.get_interval_estimates(
      {"x": scores}, function, reps=NUM, confidence_interval_size=0.9
    )
    assert len(drawn) == NUM
    cases.append(
      {
        "name": name,
        **more,
        "scores": [np.asarray(x).tolist() for x in scores]
        if isinstance(scores, list)
        else scores.tolist(),
        "indices": list(drawn),
        "estimate": np.asarray(points["x"]).tolist(),
        "low": ends["x"][0].tolist(),
        "high": ends["x"][1].tolist(),
      }
    )

  mean = lambda x: np.array([metrics.aggregate_mean(x)])
  middle = lambda x: np.array([metrics.aggregate_iqm(x)])
  better = lambda x, y: np.array([metrics.probability_of_improvement(x, y)])
  profile = lambda x: library.score_distributions(x, THRESHOLDS)
  case("mean_interval", a[:, :1], mean, stratified)
  case("interquartile_mean", a, middle, stratified)
  case("interquartile_mean", a[:, :1], middle, stratified)
  more = {"thresholds": THRESHOLDS}
  case("performance_profile", a, profile, stratified, **more)
  case("probability_of_improvement", [a, b], better, independent)
  path = pathlib.Path(__file__).parent / "rliable.json"
  lines = ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases)
  path.write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
  main()
