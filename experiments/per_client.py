"""Clients' own test examples: held out before a run, measured after it.

Of the clients that train, `--client_test_fraction` holds a part of each one's
examples out. Beside them `--heldout_clients` are clients that never train; in
the same way a part of their examples is for the test, and the rest for the
steps by which their models are personalized.
"""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from experiments.flags import clients
from experiments.flags import tasks as task_flags
from experiments.tasks import Task
from fedjax_opt import (
  ClientData,
  ClientMetrics,
  Result,
  evaluate_clients,
  plots,
  trainable,
)
from fedjax_opt.metrics import is_fraction
from fedjax_opt.results.names import sentence

# The files of a run, and what is in each.
FILES = {
  "per_client": "per_client.csv",
  "heldout_clients": "heldout_clients.csv",
}
# The settings of a run that its personalization steps have too.
_SETTINGS = (
  "batch_size", "replacement", "drop_remainder", "precision", "client_map",
  "client_chunk",
)  # fmt: skip


class Parts(NamedTuple):
  """The clients of one seed: what they train on, and what they are tested on.

  Attributes:
    train: training examples; None where there are none.
    test: held-out examples of the same clients; None if nothing is held out.
  """

  train: ClientData | None
  test: ClientData | None


class HeldOut(NamedTuple):
  """What a run measures at its end, by file and seed.

  Attributes:
    per_client: of the clients that train; {} if nothing is held out.
    heldout_clients: of clients that never train; {} if there are none.
  """

  per_client: Mapping[int, Parts] = {}
  heldout_clients: Mapping[int, Parts] = {}

  def clients(self) -> list[ClientData]:
    """What is measured, and what new clients learn from, of all seeds."""
    tests = [each.test for each in self.per_client.values()]
    new = [half for each in self.heldout_clients.values() for half in each]
    return [half for half in (*tests, *new) if half is not None]


def divide(
  task: Task,
  flags: Mapping[str, Any],
  partition: Mapping[str, Any],
  seeds: Sequence[int],
) -> tuple[dict[int, ClientData], HeldOut]:
  """The clients that train, of each seed, and what is held out.

  Args:
    task: data and model.
    flags: with `client_test_fraction` and `heldout_clients`, None for neither.
    partition: the partition's flags; unused if the clients come with the data.
    seeds: of the runs. All is drawn by the seed.

  Raises:
    ValueError: naming the flag that cannot be.
  """
  number, fraction = flags["heldout_clients"], flags["client_test_fraction"]
  if task.clients is not None:
    train, new = _whole_clients(task.clients, number, seeds)
  elif number:
    train, new = clients.populations_apart(
      task.train, task.num_classes, partition, seeds, number
    )
  else:
    pool = (task.train, task.num_classes)
    train, new = clients.populations(*pool, partition, seeds), {}
  if not fraction:
    return train, HeldOut({}, {s: Parts(None, data) for s, data in new.items()})
  split = lambda each: {
    seed: Parts(*_split(data, fraction, seed)) for seed, data in each.items()
  }
  parts, others = split(train), split(new)
  train = {seed: of_seed.train for seed, of_seed in parts.items()}
  return train, HeldOut(parts, others)


def _whole_clients(population, number, seeds):
  """The clients that train and those that do not, where they are given."""
  if not number:
    return dict.fromkeys(seeds, population), {}
  have = int((population.sizes > 0).sum())
  if number >= have:
    raise ValueError(
      f"heldout_clients={number}: there are {have} clients with examples; "
      f"must be at most {have - 1}"
    )
  try:
    parts = {s: population.split_clients(number / have, s) for s in seeds}
  except ValueError as error:
    raise ValueError(f"heldout_clients={number}: {error}") from None
  return tuple({s: each[i] for s, each in parts.items()} for i in (0, 1))


def _split(data, fraction, seed):
  try:
    return data.split(fraction, seed)
  except ValueError as error:
    raise ValueError(f"client_test_{error}") from None


def measure(
  job: Any, result: Result, point: int | None
) -> dict[str, ClientMetrics]:
  """The metrics of the clients' own test examples, by file.

  Args:
    job: the run.
    result: of it.
    point: the selected one; None if all diverged.
  """
  if point is None or result.interrupted:
    return {}
  found, setting = {}, job.points[point]
  for name in FILES:
    parts = getattr(job.held_out, name).get(setting["seed"])
    if parts is not None:
      is_new = name == "heldout_clients"
      found[name] = _measure(job, result, point, parts, is_new)
  return found


def _measure(job, result, point, parts, is_new):
  task, flags, setting = job.task, job.flags, job.points[point]
  hyperparameters = {name: setting[name] for name in job.setup.grid}
  rounds, steps = flags["rounds"], flags.get("personalize_steps")
  given = {"seed": setting["seed"], "point": point, "train": parts.train}
  if not is_new:  # Others keep nothing.
    given["algorithm"] = job.make(**hyperparameters)
  if steps is not None:
    rule, loss_fn = job.setup.client_rule(setting, rounds), task.loss_fn
    paths = task_flags.trainable(flags)
    if paths:
      rule = trainable.only(rule, paths)
      loss_fn = trainable.differentiated(loss_fn, paths)
    given |= {"loss_fn": loss_fn, "client": rule, "local_steps": steps}
    given |= {name: job.settings[name] for name in _SETTINGS}
    # Clients that never train may be smaller.
    largest = int(parts.train.sizes.max())
    given["batch_size"] = min(given["batch_size"], largest)
  return evaluate_clients(result, task.per_example, parts.test, **given)


def write(folder: pathlib.Path, found: Mapping[str, ClientMetrics]) -> None:
  """Writes a table for each group of clients, and one picture of all."""
  for group, metrics in found.items():
    metrics.to_csv(folder / FILES[group])
  shown = {group: _for_picture(metrics) for group, metrics in found.items()}
  values = [v for of_kind in shown.values() for v in of_kind.values()]
  if values and all(v.size and np.isfinite(v).all() for v in values):
    name = f"client_test_{_shown_metric(next(iter(found.values())))}"
    named = {sentence(_GROUPS[group]): each for group, each in shown.items()}
    plots.client_distribution(named, folder / "per_client.png", metric=name)


def _for_picture(metrics):
  name, has_any = _shown_metric(metrics), metrics.num_test > 0
  return {
    sentence(_KINDS[kind]): values[name][has_any]
    for kind, values in metrics.values.items()
  }


def _shown_metric(metrics):
  """The accuracy, or what else there is."""
  names = metrics.values["global"]
  return "accuracy" if "accuracy" in names else next(iter(names))


def summary(found: Mapping[str, ClientMetrics]) -> dict[str, Any]:
  """What summary.json says: {group: {kind: {name: number}}}."""
  return {name: metrics.summary() for name, metrics in found.items()}


def lines(
  job: Any, found: Mapping[str, ClientMetrics], point: int | None
) -> list[str]:
  """What the terminal says, a line for each group and kind of model."""
  several = len(job.data) > 1 and point is not None
  seed = f", seed {job.points[point]['seed']}" if several else ""
  return [
    f"{_GROUPS[group]}, {_KINDS[kind]}{seed}: {_short(metrics, kind)}"
    for group, metrics in found.items()
    for kind in metrics.values
  ]


_GROUPS = {
  "per_client": "clients' own test examples",
  "heldout_clients": "clients that never trained",
}
_KINDS = {
  "global": "global model",
  "personalized": "personalized models",
  "personal": "their own models",
}


def _short(metrics, kind):
  name = _shown_metric(metrics)
  mean, worst = metrics.mean(kind, name), metrics.worst_decile(kind, name)
  show = lambda x: f"{100 * x:.2f} %" if is_fraction(name) else f"{x:.4g}"
  return f"{name} {show(mean)}, worst 10 % of clients {show(worst)}"
