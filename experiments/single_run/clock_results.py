"""What a run writes about its clock: events, a summary and a picture."""

import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

import fedjax_opt as fo
from experiments.single_run.job import Job

# The events of a longer timetable are not written. With more clients than this,
# the accuracy of each client is not measured.
_MAX_EVENTS, _MAX_CLIENTS = 100_000, 10_000
_SCALARS = [n for n in fo.schedules.Usage._fields if n != "updates"]


def write(
  job: Job,
  result: fo.Result,
  point: int | None,
  client_metrics: Mapping[str, fo.ClientMetrics],
) -> dict[str, Any] | None:
  """Writes `timetable.csv` and `timetable.png` of a seed.

  The seed is that of the selected point, or the first one.

  Args:
    job: the run.
    result: the run's result.
    point: the selected point; None if all diverged.
    client_metrics: metrics on clients' own test examples.

  Returns:
    The entries for summary.json; None without a clock.
  """
  if job.timetables is None or not result.rounds:
    return None
  seed = job.points[point or 0]["seed"]
  away = job.seconds_away
  tables = {
    s: table.first_steps(result.rounds) for s, table in job.timetables.items()
  }
  usage = {s: fo.schedules.usage(t, len(away[s])) for s, t in tables.items()}
  groups = fo.schedules.speed_groups(away[seed])
  if usage[seed].sent <= _MAX_EVENTS:
    fo.schedules.write_events(tables[seed], job.output_dir / "timetable.csv")
  path: pathlib.Path = job.output_dir / "timetable.png"
  fo.plots.timetable(tables[seed], groups, path, title=_title(job, seed))
  values = _values(job, result, point, seed, client_metrics)
  return {
    **{n: [getattr(counts, n) for counts in usage.values()] for n in _SCALARS},
    "seed": seed,
    "groups": [
      _of_group(groups == g, away[seed], usage[seed].updates, values)
      for g in range(int(groups.max()) + 1)
    ],
  }


def line(entries: Mapping[str, Any]) -> str:
  """The line for the terminal, with means over the seeds."""
  mean = {name: float(np.mean(entries[name])) for name in _SCALARS}
  return (
    f"clock: {mean['seconds']:.4g} s; {mean['at_work']:.3g} clients at work on "
    f"average, {100 * mean['used_time']:.0f} % of their time used; staleness "
    f"{mean['mean_staleness']:.2g}, at most {max(entries['max_staleness'])}"
  )


def _title(job: Job, seed: int) -> str:
  name = job.spec.schedule.entry.label or job.spec.schedule.name
  suffix = f", seed {seed}" if len(job.clients) > 1 else ""
  return f"Schedule: {name.replace('_', ' ')}{suffix}"


def _of_group(in_group, seconds, updates, values) -> dict[str, Any]:
  """The entries on one group of clients."""
  shared = {
    "clients": int(in_group.sum()),
    "seconds": float(np.median(seconds[in_group])),
    "updates": float(updates[in_group].mean()),
    "never": int((updates[in_group] == 0).sum()),
  }
  known = {n: v[in_group & ~np.isnan(v)] for n, v in values.items()}
  means = {n: float(v.mean()) for n, v in known.items() if v.size}
  return shared | {n: v for n, v in means.items() if np.isfinite(v)}


def _values(job, result, point, seed, client_metrics) -> dict[str, np.ndarray]:
  """{name: [M]}, of the selected model on the examples of each client.

  It is measured on the clients' own test examples if they have any, else on
  their training examples.
  """
  data = job.clients[seed]
  metrics, part = client_metrics.get("per_client"), "client_test"
  if metrics is None:
    is_small = (
      isinstance(data, fo.ClientData) and len(data.sizes) <= _MAX_CLIENTS
    )
    if point is None or result.interrupted or not is_small:
      return {}
    metrics = fo.evaluate_clients(
      result, job.task.per_example, data, point=point, seed=seed
    )
    part = "train"
  has_examples = metrics.num_test > 0
  return {
    f"{part}_{name}": np.where(has_examples, np.asarray(values, float), np.nan)
    for name, values in metrics.values["global"].items()
  }
