"""From the values that were given to a specification: checks and defaults.

Checks are made in this order: each value, each choice by name, and which of
them fit together.
"""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.specification import method
from experiments.specification import spec as specs
from experiments.specification.choice_flags import (
  AGGREGATOR,
  AVAILABILITY,
  CLIENT,
  FAULT,
  PARTITION,
  SAMPLER,
  SCHEDULE,
  SYSTEM,
  TASK,
  UPLOAD,
  ChosenEntry,
  FlagValues,
  check_absent,
  parse_numbers,
)
from experiments.specification.spec import FLAGS, Spec
from experiments.tasks import TaskEntry, clients_on_disk, table
from fedjax_opt import lora
from fedjax_opt.checks.fields import SEED_OF_RUN, plain_number
from fedjax_opt.data import example_parts
from fedjax_opt.registry import AlgorithmEntry

# Flags that only some tasks take.
_FILES = ("data_dir", "data_file", *table.COLUMN_FLAGS, "pretrained")
# Flags that say that a run has several processes.
_HOSTS = ("coordinator", "cluster")
# Flags that say which steps clients take.
_LOCAL_WORK = (
  "local_epochs", "local_steps", "batch_size", "sampling", "drop_remainder",
)  # fmt: skip
# Flags with a value, which choose nothing by name.
_PLAIN = [name for name, flag in FLAGS.items() if flag.choice_flag is None]


def resolve(flag_values: FlagValues) -> Spec:
  """Makes all checks that need no data, and fills in defaults.

  Args:
    flag_values: the values of all flags; None where not given.

  Raises:
    ValueError: naming the invalid flag.
  """
  given = specs.not_default(flag_values)
  _check_values(flag_values)
  seeds = parse_numbers(SEED_OF_RUN, flag_values["seed"], "seed")
  if flag_values["population_dir"]:  # It says what was held out of its clients.
    flag_values = clients_on_disk.with_validation_of(flag_values)
  task = _task(flag_values)
  parts = method.parts_of(flag_values, task.entry)
  algorithm = parts["algorithm"]
  if algorithm.entry.is_personal:
    defaults = personal_defaults(flag_values, task.entry)
    flag_values = {**flag_values, **_not_given(flag_values, defaults)}
  has_clients = task.entry.brings_clients(flag_values)
  fields = {name: flag_values[name] for name in _PLAIN} | {"task": task} | parts
  fields["seed"] = seeds
  fields |= {
    part.flag: part.choose(flag_values, flag_values[part.flag])
    for part in (UPLOAD, AGGREGATOR, FAULT, SAMPLER)
  }
  fields |= _partition(flag_values, has_clients)
  fields |= _selection(flag_values, given, task.entry)
  fields |= _rate_schedule(flag_values, algorithm, parts["client"])
  defaults = _defaults(flag_values, has_clients, algorithm.entry)
  fields |= _not_given(flag_values, defaults)
  fields |= _simulated_time(flag_values, algorithm)
  spec = Spec(**fields, user_flags=given)
  _check(spec)
  return spec


def _check_values(flag_values: FlagValues) -> None:
  """Checks each value by itself, as far as it chooses nothing by name."""
  for name in _PLAIN:
    if flag_values[name] is not None:
      FLAGS[name].field.check(name, flag_values[name])
  if not flag_values["compilation_cache"].strip():
    raise ValueError(
      "compilation_cache='': must be the name of a folder, or none"
    )


def _not_given(
  flag_values: FlagValues, defaults: Mapping[str, Any]
) -> dict[str, Any]:
  """The defaults of flags that were not given."""
  return {n: value for n, value in defaults.items() if flag_values[n] is None}


def _given_or(flag_values: FlagValues, name: str, default: Any) -> Any:
  """The value of a flag, if it was given."""
  return default if flag_values[name] is None else flag_values[name]


def _task(flag_values: FlagValues) -> ChosenEntry:
  """The task, with its defaults filled in."""
  task = TASK.choose(flag_values, flag_values["task"])
  given = [flag for flag in _FILES if flag_values[flag] is not None]
  if foreign := [flag for flag in given if flag not in task.entry.takes]:
    flag = foreign[0]
    owners = _tasks_with(flag, foreign, str(flag_values["data_file"] or ""))
    TASK.refuse(flag, repr(flag_values[flag]), owners, task.name)
  # Without a folder of data, a run can still be planned.
  values = {n: value for n, value in flag_values.items() if n != "data_dir"}
  task.entry.check_given(task.name, values)
  static = task.entry.resolve(flag_values)
  return dataclasses.replace(task, static={**task.static, **static})


def _tasks_with(flag: str, others: Sequence[str], file: str) -> list[str]:
  """The tasks that take a flag, those first that fit all that is given.

  Args:
    flag: name of the flag.
    others: flags that are given too.
    file: path of the user's own file, "" without one.
  """
  suffix = pathlib.PurePath(file).suffix

  def misfits(name: str) -> int:
    entry = TASK.registry[name]
    reads = suffix in entry.needs.get("data_file", "")
    return sum(other not in entry.takes for other in others) + (not reads)

  owners = [n for n, entry in TASK.registry.items() if flag in entry.takes]
  return sorted(owners, key=misfits)


# Fields with defaults of their own.


def _partition(flag_values: FlagValues, has_clients: bool) -> dict[str, Any]:
  """The partition and the number of clients, if the task's data are divided."""
  hint = "leave {} out"
  if flag_values["population_dir"]:
    why = "the clients come from population_dir"
  elif flag_values["client_column"]:
    why = f"client_column={flag_values['client_column']!r} names the clients"
    hint = "leave one of the two out"
  elif has_clients:
    why = f"the clients of task {flag_values['task']} come with its data"
  else:
    partition = PARTITION.choose(
      flag_values, _given_or(flag_values, "partition", specs.PARTITION_DEFAULT)
    )
    num_clients = _given_or(flag_values, "num_clients", specs.NUM_CLIENTS)
    return {"partition": partition, "num_clients": num_clients}
  own_flags = ("partition", "partition_seed", "num_clients")
  check_absent(flag_values, why, *own_flags, *PARTITION.owners(), hint=hint)
  return {"partition": None}


def _simulated_time(
  flag_values: FlagValues, algorithm: ChosenEntry
) -> dict[str, Any]:
  """The fields of simulated time: system, availability and schedule."""
  system = SYSTEM.choose(flag_values, flag_values["system"])
  name = flag_values["schedule"]
  if name is None and system is not None:
    name = "synchronous"
  schedule = SCHEDULE.choose(flag_values, name)
  available = AVAILABILITY.choose(flag_values, flag_values["availability"])
  fields = {"system": system, "availability": available, "schedule": schedule}
  if schedule is None:
    return fields
  needs_system = "durations" in schedule.entry.arguments
  if needs_system and system is None:
    raise ValueError(
      f"schedule={name!r}: needs to know how long clients take; give --system, "
      "such as --system=lognormal"
    )
  if system is not None and not needs_system:
    raise ValueError(
      f"system={system.name!r}: schedule {name} says when clients arrive; "
      "leave system out"
    )
  if algorithm.entry.cohort == "first":
    raise ValueError(
      f"schedule={name!r}: algorithm {algorithm.name} takes the first client "
      "in each round; leave schedule and system out"
    )
  if schedule.static.get("partial_work") and not schedule.static["deadline"]:
    raise ValueError("partial_work=True: needs deadline; give --deadline")
  if buffer := schedule.static.get("buffer"):
    why = f"schedule {schedule.name} has buffer instead"
    check_absent(flag_values, why, "cohort_size")
    fields["cohort_size"] = buffer
  return fields


def _is_elsewhere(flag_values: FlagValues) -> bool:
  """Whether some clients are not in the memory of this process."""
  return any(flag_values.get(name) for name in ("population_dir", *_HOSTS))


def personal_defaults(
  flag_values: FlagValues, task: TaskEntry
) -> dict[str, Any]:
  """The defaults of algorithms whose clients have models of their own.

  In a study with such a method, all methods are chosen and measured so, and
  train on equally many examples.
  """
  if _is_elsewhere(flag_values):
    return {}
  defaults = {"client_test_fraction": example_parts.CLIENT_TEST_FRACTION}
  if "clients" in _splits(task):
    defaults["select_on"] = "clients"
  return defaults


def _splits(task: TaskEntry) -> tuple[str, ...]:
  """The examples on which settings can be chosen, the default first."""
  has_own = "validation" in task.splits and not task.draws_validation
  return (*task.splits, "clients") if has_own else task.splits


def _selection(
  flag_values: FlagValues, given: FlagValues, task: TaskEntry
) -> dict[str, Any]:
  """How settings are compared: on which examples, and which these are.

  A choice between settings that looks at the test examples makes their accuracy
  too good. So by default a part of the training examples is held out of
  training, for the choice alone.
  """
  accepted = _splits(task)
  select_on = _given_or(flag_values, "select_on", accepted[0])
  if select_on not in accepted:
    raise ValueError(
      f"select_on={select_on!r}: task {flag_values['task']} has no such "
      f"examples; must be {' or '.join(accepted)}"
    )
  if select_on == "clients" and _is_elsewhere(flag_values):
    raise ValueError(
      "select_on='clients': clients' own examples are held out only if all "
      "data are in the memory of one process; give another select_on"
    )
  has_own = select_on in ("truth", "support")
  if flag_values["select_metric"] is not None and has_own:
    raise ValueError(
      f"select_metric={flag_values['select_metric']!r}: select_on={select_on} "
      "has a metric of its own; leave select_metric out"
    )
  if task.draws_validation or "validation" not in task.splits:
    verb = "draws its own" if task.draws_validation else "has no"
    why = f"task {flag_values['task']} {verb} validation examples"
    check_absent(given, why, "validation_fraction", "validation_seed")
    return {"select_on": select_on}
  needs_some = select_on in ("validation", "clients")
  default = example_parts.VALIDATION_FRACTION if needs_some else 0.0
  fraction = _given_or(flag_values, "validation_fraction", default)
  if needs_some and not fraction:
    raise ValueError(
      f"validation_fraction=0: select_on={select_on} needs examples that are "
      "held out; give a fraction, or --select_on=test or train"
    )
  if select_on == "clients":
    why = (
      "with select_on=clients each seed draws the validation examples of its "
      "clients"
    )
    check_absent(given, why, "validation_seed")
  seed = None
  if fraction:
    seed = _given_or(flag_values, "validation_seed", specs.VALIDATION_SEED)
  return {
    "select_on": select_on,
    "validation_fraction": fraction,
    "validation_seed": seed,
  }


def _rate_schedule(
  flag_values: FlagValues, algorithm: ChosenEntry, client: ChosenEntry
) -> dict[str, Any]:
  """The fields of the schedule of the clients' learning rate."""
  name = flag_values["client_schedule"]
  if name == "constant":
    return {}
  if CLIENT.rate_flag not in client.parameters:
    raise ValueError(
      f"client_schedule={name!r}: client {client.name} has no learning rate "
      "that could drop; must be constant"
    )
  if not algorithm.entry.rate_may_drop:
    raise ValueError(
      f"client_schedule={name!r}: algorithm {algorithm.name} has one rate for "
      "all rounds; must be constant"
    )
  if name == "exponential":
    return {"client_decay": _given_or(flag_values, "client_decay", specs.DECAY)}
  text = _given_or(flag_values, "client_milestones", specs.MILESTONES)
  fractions = parse_numbers(plain_number("(0, 1)"), text, "client_milestones")
  return {"client_milestones": ",".join(f"{share!r}" for share in fractions)}


def _defaults(
  flag_values: FlagValues, has_clients: bool, algorithm: AlgorithmEntry
) -> dict[str, Any]:
  """The defaults that depend on other flags."""
  defaults = {
    "batch_size": specs.BATCH_SIZE_OF_CLIENTS
    if has_clients
    else specs.BATCH_SIZE
  }
  # The number of clients in a user's own file is known when it is read.
  own_file = flag_values["data_file"] if has_clients else None
  is_own = own_file or flag_values["population_dir"]
  if algorithm.cohort == "sampled" and not is_own:
    most = (
      specs.COHORT_SIZE
      if has_clients
      else _given_or(flag_values, "num_clients", specs.NUM_CLIENTS)
    )
    defaults["cohort_size"] = min(specs.COHORT_SIZE, most)
  if flag_values["local_steps"] is None:
    defaults["local_epochs"] = 1.0
  return defaults


# What fits together.


def _check(spec: Spec) -> None:
  """Checks the fields that belong to no choice, and their combinations."""
  _check_needs(spec)
  check_excluded(spec)
  if spec.trace and not spec.client.entry.traced:
    raise ValueError(
      f"trace=True: client {spec.client.name} has no step sizes to record; "
      f"must be {CLIENT.names(lambda rule: rule.traced)}"
    )
  augmentation = spec.task.static.get("augmentation")
  is_drawn = augmentation not in (None, "none")
  if is_drawn and spec.client.static.get("independent_dropout"):
    raise ValueError(
      f"independent_dropout=True: augmentation={augmentation!r} would be drawn "
      "anew as well, so the two gradients would see different images; leave "
      "one of them out"
    )
  if spec.x_axis == "time" and spec.schedule is None:
    raise ValueError(
      "x_axis='time': needs a clock; give --system, or leave x_axis out"
    )
  if spec.optimum and not spec.task.entry.is_convex:
    raise ValueError(
      f"optimum=True: the loss of task {spec.task.name} is not convex; must be "
      "a task of linear or logistic regression"
    )
  _check_adapters(spec)
  _check_cohort(spec)


def _check_needs(spec: Spec) -> None:
  """Checks that no flag was given without the flag that it needs."""
  for name, flag in FLAGS.items():
    owner, _, word = flag.needs.partition("=")
    if not owner or name not in spec.user_flags:
      continue
    value, needed = getattr(spec, owner), FLAGS[owner]
    if value == word if word else needed.is_there(value):
      continue
    choices = needed.choice_flag
    example = word or (choices and next(iter(choices.registry)))
    hint = f"--{owner}={example}" if example else f"--{owner}"
    if value == 0:
      hint += " above 0"
    page = (
      f"; see --help={getattr(spec, name).name}" if flag.choice_flag else ""
    )
    raise ValueError(
      f"{name}={spec.user_flags[name]}: needs {flag.needs}; give {hint}, or "
      f"leave {name} out{page}"
    )


def check_excluded(spec: Spec) -> None:
  """Checks that no flag is given together with one that it excludes.

  Raises:
    ValueError: naming both.
  """
  for name, flag in FLAGS.items():
    value = getattr(spec, name)
    for other, why in flag.excludes.items():
      if value and other in spec.user_flags:
        text = getattr(value, "name", value)
        raise ValueError(f"{name}={text}: {why}; leave {other} out")


def _check_adapters(spec: Spec) -> None:
  """Checks that an algorithm that averages adapters has and trains some."""
  name = spec.algorithm.name
  if not spec.algorithm.entry.takes("paths"):
    return
  if spec.task.static.get("lora_rank") is None:
    raise ValueError(
      f"algorithm={name!r}: averages adapters; give --lora_rank, which tasks "
      "with a transformer have"
    )
  if spec.trainable and not {*lora.ADAPTERS} <= {*spec.trainable_paths}:
    raise ValueError(
      f"trainable={spec.trainable!r}: algorithm {name} trains both parts of "
      f"adapters; must have {','.join(lora.ADAPTERS)}"
    )


def _check_cohort(spec: Spec) -> None:
  """Checks the flags that an algorithm with a cohort of its own cannot have."""
  name, entry, given = (
    spec.algorithm.name,
    spec.algorithm.entry,
    spec.user_flags,
  )
  is_drawn = spec.partition is not None and entry.cohort == "sampled"
  if is_drawn and (spec.cohort_size or 0) > spec.num_clients:
    raise ValueError(
      f"cohort_size={spec.cohort_size}: must be from 1 to the number of "
      f"clients, {spec.num_clients}; num_clients changes it"
    )
  if spec.population_dir and entry.cohort == "first":
    raise ValueError(
      f"population_dir={spec.population_dir!r}: algorithm {name} takes the "
      "first client in every round, and clients on disk are read only for the "
      "cohorts that are drawn; give another algorithm"
    )
  if entry.cohort == "first":
    why = f"algorithm {name} takes one client in each round"
    check_absent(given, why, "aggregator")
  if entry.cohort != "sampled":
    whom = "all clients" if entry.cohort == "all" else "the first client"
    why = f"algorithm {name} takes {whom} in each round"
    check_absent(given, why, "sampler")
  if entry.cohort == "all":
    why = f"algorithm {name} needs all clients in each round"
    check_absent(given, why, "client_dropout")
  if entry.is_exact:
    why = f"algorithm {name} takes one step a round, along the exact gradient"
    check_absent(given, why, *_LOCAL_WORK)
