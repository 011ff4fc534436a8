"""The timetables of a run, made from system, schedule and clients' work."""

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from experiments.specification.choice_flags import ChosenEntry
from experiments.specification.spec import Spec
from fedjax_opt import Simulator, schedules
from fedjax_opt.checks.errors import reworded_errors
from fedjax_opt.data import digest
from fedjax_opt.engine.client_work import Work
from fedjax_opt.files.folders import user_path
from fedjax_opt.registry import FILE
from fedjax_opt.schedules import Timetable
from fedjax_opt.schedules.timetable import check_clients
from fedjax_opt.systems import System

Timetables = Mapping[int, Timetable]  # For each seed.


def timetable_of(
  spec: Spec, seconds_away: dict[int, np.ndarray], work: Work
) -> Timetable:
  """The steps of a seed within `max_time`, or the first one.

  Args:
    spec: the run's spec, with a schedule.
    seconds_away: seed -> [M], the typical time for which each client is away;
      this seed's is added.
    work: of the clients of the seed.
  """
  table, seconds_away[work.seed] = _full_timetable(spec, work)
  if spec.max_time is None:
    return table
  return schedules.until(table, max(spec.max_time, table.time[0]))


def _full_timetable(spec: Spec, work: Work) -> tuple[Timetable, np.ndarray]:
  """All steps of a seed, and [M], the time for which each client is away."""
  num_clients, arguments = len(work.steps), _arguments_of(spec.schedule)
  if spec.system is None:
    table = schedules.replay(**arguments)
    with reworded_errors(schedule=f"events_file={arguments['path']!r}"):
      return table, _seconds_of(table, num_clients)
  if "cohort_size" in spec.schedule.entry.arguments:
    arguments["cohort_size"] = spec.cohort_size
  durations = system_of(spec, num_clients, work.seed).durations(
    work.steps, work.bytes_down, work.bytes_up, per_step=work.per_step
  )
  if spec.max_time is not None:
    arguments["seconds"] = spec.max_time
  make, steps = spec.schedule.entry.factory, max(spec.rounds, 1)
  with reworded_errors(durations="availability"):
    return make(durations, steps, **arguments), durations.typical


def _seconds_of(table: Timetable, num_clients: int) -> np.ndarray:
  """[M], mean seconds of each client in a trace, or of all if it has none."""
  check_clients(table, num_clients)
  events = table.events()
  away = events.ends - events.starts
  count = np.bincount(events.clients, minlength=num_clients)
  total = np.bincount(events.clients, away, num_clients)
  return np.where(count > 0, total / np.maximum(count, 1), away.mean())


def timetables_of(
  spec: Spec, simulator: Simulator, init: Callable[[Any], Any]
) -> Timetables | None:
  """The timetable of each seed; None without a clock.

  Args:
    spec: the run's spec.
    simulator: the simulator, with its `Clock`.
    init: function from a random key to the initial model.

  Raises:
    ValueError: naming the invalid flag.
  """
  if spec.schedule is None:
    return None
  tables = simulator.timetables(init)
  for seed, table in tables.items():
    if spec.max_time is not None and spec.max_time < table.time[-1]:
      raise ValueError(
        f"max_time={spec.max_time:g}: with seed {seed} the first server step "
        f"is done after {table.time[-1]:.4g} seconds; must be at least that"
      )
  return tables


def system_of(spec: Spec, num_clients: int, seed: int) -> System:
  """The devices of the clients of a seed."""

  def make(chosen, **more_arguments):
    flags = {p.name: flag for flag, p in chosen.parameters.items()}
    with reworded_errors(**flags):
      return chosen.entry.factory(
        num_clients=num_clients, **more_arguments, **_arguments_of(chosen)
      )

  system = make(spec.system, seed=seed)
  if spec.availability is None:
    return system
  is_drawn = "seed" in spec.availability.entry.arguments
  seed_argument = {"seed": seed} if is_drawn else {}
  return system.when(make(spec.availability, **seed_argument))


def _arguments_of(chosen: ChosenEntry) -> dict[str, Any]:
  """The arguments of a choice: those given, and defaults for the others."""
  arguments = {n: v for n, v in chosen.arguments({}).items() if v is not None}
  if "path" in arguments:
    arguments["path"] = str(user_path(arguments["path"]))
  return arguments


def rounds_of(spec: Spec, tables: Timetables | None) -> int:
  """The rounds of a run; time, or events from a file, may end before them."""
  if tables is None:
    return spec.rounds
  return min(spec.rounds, max(len(table.time) for table in tables.values()))


def with_clock_files(
  spec: Spec, data_digests: digest.Digests
) -> digest.Digests:
  """The digests of the data, and of the files that the clock reads."""
  all_digests = dict(data_digests)
  for chosen in (spec.system, spec.availability, spec.schedule):
    for flag, parameter in (chosen.parameters if chosen else {}).items():
      if parameter.accepts is FILE:
        path = user_path(chosen.static[flag])
        text = hashlib.sha256(path.read_bytes()).hexdigest()
        all_digests[chosen.flag] = text[:32]
  return all_digests
