"""From the values that were given to a specification: checks and defaults."""

from typing import Any

from experiments.specification import clients
from experiments.specification import method as of_method
from experiments.specification.kinds import (
  AGGREGATOR,
  FAULT,
  SAMPLER,
  TASK,
  UPLOAD,
  Chosen,
  Given,
)
from experiments.specification.spec import (
  BATCH_SIZE,
  BATCH_SIZE_OF_CLIENTS,
  COHORT_SIZE,
  FLAGS,
  SPLITS,
  TRAINABLE,
  VALIDATION_FRACTION,
  VALIDATION_SEED,
  Spec,
  traced_rules,
)
from experiments.tasks import TEXTS, TaskChoice, npz, text
from experiments.tasks.base import LARGER_IS_BETTER
from fedjax_opt import Population
from fedjax_opt.checks import values as checks
from fedjax_opt.engine.config import check_settings
from fedjax_opt.engine.plan import check_one_budget
from fedjax_opt.registry import check_choice


def resolve(given: Given, on_disk: Population | None = None) -> Spec:
  """Checks what was given as far as that needs no data, and fills in defaults.

  Args:
    given: values of all flags; None where not given.
    on_disk: the clients of `--population_dir`, which say what was held out of
      them; None without.

  Raises:
    ValueError: naming the flag that cannot be.
  """
  asked = {
    name: value
    for name, value in given.items()
    if value != (FLAGS[name].default if name in FLAGS else None)
  }
  if on_disk is not None:
    given = clients.with_validation_of(given, on_disk)
  task_choice = task(given)
  choice = task_choice.choice
  method = of_method.resolve(given, choice)
  has_clients = choice.brings_clients(given["data_file"])
  plain = {
    name: given[name] for name, flag in FLAGS.items() if flag.choice is None
  }
  plain |= clients.resolve(given, has_clients, method["algorithm"].choice)
  plain |= selection(given, choice)
  plain |= messages(given, method["algorithm"])
  sampler_choice = sampler(given)
  plain["seed"] = of_method.seeds(given)
  defaults: dict[str, Any] = {
    "batch_size": BATCH_SIZE_OF_CLIENTS if has_clients else BATCH_SIZE,
  }
  if method["algorithm"].choice.cohort == "sampled":
    defaults["cohort_size"] = COHORT_SIZE
  if given["local_steps"] is None:
    defaults["local_epochs"] = 1.0
  for name, default in defaults.items():
    if plain[name] is None:
      plain[name] = default
  spec = Spec(
    **plain | method, task=task_choice, sampler=sampler_choice, given=asked
  )
  _check(spec, given, choice)
  return spec


# Task.


def task(given: Given) -> Chosen:
  """The task, with its defaults filled in.

  Raises:
    ValueError: for an unknown task or a flag that is not the task's.
  """
  name = given["task"]
  TASK.check(name)
  TASK.check_others(given, name)
  chosen = TASK.read(given, name)
  choice = chosen.choice
  FLAGS["l2"].check("l2", given["l2"])
  if given["trainable"] is not None:
    TRAINABLE.check(given["trainable"])
  if given["data_dir"] is not None and not choice.reads_data:
    what = "reads data_file" if choice.reads_file else "needs no data"
    raise ValueError(
      f"data_dir={given['data_dir']!r}: task {name} {what}; leave data_dir out"
    )
  if given["pretrained"] is not None and not choice.reads_pretrained:
    raise ValueError(
      f"pretrained={given['pretrained']!r}: task {name} has no encoder; give "
      f"--task={next(iter(TEXTS))}, or leave pretrained out"
    )
  own = {}
  if choice.reads_file:
    own = npz.resolve(given)
  elif given["data_file"] is not None:
    raise ValueError(
      f"data_file={given['data_file']!r}: task {name} has data of its own; "
      "give --task=npz_mlp or another npz task, or leave data_file out"
    )
  elif choice.reads_pretrained:
    own = text.resolve(given)
  return Chosen(chosen.kind, name, {}, {**chosen.static, **own})


# Selection.


def selection(given: Given, choice: TaskChoice) -> dict[str, Any]:
  """How settings are compared: on which examples, and which these are.

  A choice between settings that looks at the test examples makes their accuracy
  too good. So by default a part of the training examples is held out of
  training, for the choice alone.

  Raises:
    ValueError: naming the flag that cannot be.
  """
  names = ("select_on", "validation_fraction", "validation_seed")
  select_on, fraction, seed = (given[name] for name in names)
  if select_on is None:
    select_on = choice.splits[0]
  check_choice("select_on", select_on, SPLITS)
  if select_on not in choice.splits:
    raise ValueError(
      f"select_on={select_on!r}: task {given['task']} has no such examples; "
      f"must be {' or '.join(choice.splits)}"
    )
  _check_metric(given, select_on)
  found = {"select_on": select_on}
  if choice.draws_validation or "validation" not in choice.splits:
    why = (
      "draws its own" if choice.draws_validation else "has no examples for it"
    )
    for name, value in zip(names[1:], (fraction, seed), strict=True):
      if value is not None:
        raise ValueError(
          f"{name}={value}: task {given['task']} {why}; leave {name} out"
        )
    return found
  if fraction is None:
    fraction = VALIDATION_FRACTION if select_on == "validation" else 0.0
  FLAGS["validation_fraction"].check("validation_fraction", fraction)
  if select_on == "validation" and not fraction:
    raise ValueError(
      "validation_fraction=0: select_on=validation needs examples that are "
      "held out; give a fraction, or --select_on=test or train"
    )
  if seed is not None and not fraction:
    raise ValueError(
      f"validation_seed={seed}: nothing is held out; give validation_fraction"
    )
  seed = VALIDATION_SEED if seed is None else seed
  FLAGS["validation_seed"].check("validation_seed", seed)
  found["validation_fraction"] = fraction
  return found | {"validation_seed": seed if fraction else None}


def _check_metric(given: Given, select_on: str) -> None:
  metric = given["select_metric"]
  if metric is not None:
    check_choice("select_metric", metric, LARGER_IS_BETTER)
    if select_on == "truth":
      raise ValueError(
        f"select_metric={metric!r}: select_on=truth has a metric of its own; "
        "leave select_metric out"
      )
  FLAGS["select_over"].check("select_over", given["select_over"])


# Messages, and who sends them.


def messages(given: Given, algorithm: Chosen) -> dict[str, Chosen | None]:
  """What clients send, and how the server combines it.

  Raises:
    ValueError: naming the flag that cannot be.
  """
  found: dict[str, Chosen | None] = {}
  for kind in (UPLOAD, AGGREGATOR, FAULT):
    name = found[kind.flag] = given[kind.flag]
    if name is None:
      kind.check_absent(given)
      continue
    kind.check(name)
    kind.check_others(given, name)
    found[kind.flag] = kind.read(given, name)
  if given["error_feedback"] and given["upload"] is None:
    raise ValueError(
      "error_feedback=True: without an upload all is sent; give "
      "--upload=top_k, or leave error_feedback out"
    )
  _check_faulty(given)
  _check_aggregator(given, algorithm)
  return found


def _check_faulty(given: Given) -> None:
  fraction = given["faulty_fraction"]
  if given["fault"] is None:
    if fraction is not None:
      raise ValueError(
        f"faulty_fraction={fraction:g}: belongs to a fault; give --fault=flip, "
        "or leave faulty_fraction out"
      )
    return
  if fraction is None:
    raise ValueError(
      f"faulty_fraction: must be given with fault {given['fault']}"
    )
  FLAGS["faulty_fraction"].check("faulty_fraction", fraction)


def _check_aggregator(given: Given, algorithm: Chosen) -> None:
  """Checks that all clients weigh alike, unless it is the mean."""
  name = given["aggregator"]
  if name == "mean":
    return
  if given["weighting"] != "uniform":
    raise ValueError(
      f"aggregator={name!r}: counts all clients alike, and weighting is "
      f"{given['weighting']!r}; give --weighting=uniform"
    )
  if given["sampler"] == "weighted":
    raise ValueError(
      f"aggregator={name!r}: counts all clients alike, and sampler 'weighted' "
      "gives them weights; leave sampler out"
    )
  if algorithm.choice.cohort == "first":
    raise ValueError(
      f"aggregator={name!r}: algorithm {algorithm.name} has one client in "
      "each round; leave aggregator out"
    )


def sampler(given: Given) -> Chosen:
  """Who takes part in a round.

  Raises:
    ValueError: naming the flag that cannot be.
  """
  name = given["sampler"]
  SAMPLER.check(name)
  SAMPLER.check_others(given, name)
  for flag in SAMPLER.parameters(name):
    if given[flag] is None:
      raise ValueError(f"{flag}: must be given with sampler {name}")
  return SAMPLER.read(given, name)


# What belongs to no choice.


def _check(spec: Spec, given: Given, choice: TaskChoice) -> None:
  """Checks the fields that belong to no choice, and what they go with."""
  checks.at_least("rounds", spec.rounds, 0)
  check_one_budget(given["local_epochs"], given["local_steps"])
  if spec.eval_every < 1:
    raise ValueError(f"eval_every={spec.eval_every}: must be at least 1")
  FLAGS["sampling"].check("sampling", spec.sampling)
  of_grid = {"grid_map": spec.grid_map, "grid_chunk": spec.grid_chunk}
  check_settings(of_grid)
  FLAGS["x_axis"].check("x_axis", spec.x_axis)
  clients.check_tests(spec)
  if spec.trace and not spec.client.choice.traced:
    raise ValueError(
      f"trace=True: client {spec.client.name} has no step sizes to record; "
      f"must be {', '.join(traced_rules())}"
    )
  augmentation = spec.task.static.get("augmentation")
  if given["independent_dropout"] and augmentation not in (None, "none"):
    raise ValueError(
      f"independent_dropout=True: augmentation={augmentation!r} would be drawn "
      "anew as well, so that the two gradients had different images; leave one "
      "of them out"
    )
  if spec.optimum:
    _check_optimum(spec, choice)
  _check_cohort(spec, given)


def _check_optimum(spec: Spec, choice: TaskChoice) -> None:
  """Checks that there is an optimum which can be found."""
  if not choice.is_convex:
    raise ValueError(
      f"optimum=True: the loss of task {spec.task.name} is not convex; must be "
      "a task of linear or logistic regression"
    )
  if spec.regularizer is None:
    raise ValueError(
      f"optimum=True: algorithm {spec.algorithm.name} has no regularizer, "
      "without which a minimum may not exist; must be one that has"
    )
  if spec.population_dir:
    raise ValueError(
      "optimum=True: needs the data of all clients in memory; leave "
      "population_dir out"
    )
  if spec.l2:
    raise ValueError(
      f"optimum=True: l2={spec.l2:g} is not in the losses that are "
      "reported, so there would be no gap to measure; leave l2 out"
    )
  if spec.trainable:
    raise ValueError(
      f"optimum=True: is that of all leaves, and trainable="
      f"{spec.trainable!r} are some; leave trainable out"
    )


def _check_cohort(spec: Spec, given: Given) -> None:
  """Checks the flags that an algorithm with a cohort of its own cannot have."""
  name, choice = spec.algorithm.name, spec.algorithm.choice
  if spec.population_dir and choice.cohort == "first":
    raise ValueError(
      f"population_dir={spec.population_dir!r}: algorithm {name} takes the "
      "first client in every round, and only the clients of cohorts are read; "
      "must be another"
    )
  if choice.cohort != "sampled" and spec.sampler.name != "uniform":
    whom = "all clients" if choice.cohort == "all" else "the first client"
    raise ValueError(
      f"sampler={spec.sampler.name!r}: algorithm {name} has {whom} in each "
      "round; leave sampler out"
    )
  if not choice.is_exact:
    return
  idle = {"sampling": "shuffle", "drop_remainder": False}
  for flag in ("local_epochs", "local_steps", *idle):
    if given[flag] != idle.get(flag):
      raise ValueError(
        f"{flag}={given[flag]}: algorithm {name} takes one step a round, along "
        f"the exact gradient; leave {flag} out"
      )
