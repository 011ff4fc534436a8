"""The privacy of a run, for its summary."""

from typing import Any

import fedjax_opt as fo
from experiments.specification.spec import DP_DELTA, Spec


def privacy_summary(
  spec: Spec, points: list[dict[str, Any]], num_clients: int, rounds: int
) -> dict[str, Any] | None:
  """The entry on privacy for summary.json; None without privacy.

  Args:
    spec: completed by `cohort_size`.
    points: of the grid.
    num_clients: M.
    rounds: R.

  Returns:
    `delta`; `epsilon` [S], of each point after R rounds; `is_private`, whether
    nobody can compute the noise again.
  """
  if spec.privacy is None:
    return None
  delta = DP_DELTA if spec.dp_delta is None else spec.dp_delta
  size, scheme = spec.cohort_size, {"sampling": "uniform"}
  if spec.sampler.name == "poisson":
    scheme = {"places": size}
    size = spec.sampler.static["sampler_expected"]
  noises = [point["dp_noise_multiplier"] for point in points]
  epsilons = {
    noise: fo.privacy.epsilon(noise, rounds, num_clients, size, delta, **scheme)
    for noise in set(noises)
  }
  return {
    "delta": delta,
    "epsilon": [epsilons[noise] for noise in noises],
    "is_private": spec.dp_seed is None,
  }
