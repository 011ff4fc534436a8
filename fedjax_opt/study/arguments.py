"""The arguments of `compare`: their checks, and their defaults."""

import inspect
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from fedjax_opt.base import Batch
from fedjax_opt.checks.fields import instance_of, mapping_of, sequence_of
from fedjax_opt.checks.values import brief, check_text, check_word
from fedjax_opt.data.clients import ClientData
from fedjax_opt.data.pools import same_pool
from fedjax_opt.engine import inputs
from fedjax_opt.engine.run_options import DEFAULTS, check_option_names
from fedjax_opt.results.metric_names import (
  direction,
  on_validation,
  split_of,
)
from fedjax_opt.results.selection import Criterion
from fedjax_opt.study import tuning, words
from fedjax_opt.study.problem import Method

_CONDITION_VALUE = instance_of(
  Hashable,
  "a value that can be compared, such as a number, a string or a tuple",
)
CONDITIONS = sequence_of(
  mapping_of(_CONDITION_VALUE, "a dict"),
  'a list of dicts, such as [{"alpha": 0.1}, {"alpha": 1.0}]',
  least=1,
)


def check_conditions(conditions: Sequence[Mapping[str, Any]]) -> None:
  """Checks that conditions have the same names, and none is given twice.

  Their values must be such that a report can show them.
  """
  names = list(conditions[0])
  for i, condition in enumerate(conditions):
    for name, value in condition.items():
      if " at 0x" in repr(value):  # Of a function, or an object without name.
        raise ValueError(
          f"conditions[{i}][{name!r}]: is {type(value).__name__}, which a "
          "report cannot show; give it in the options of a method, "
          "fo.Method(make, grid, options)"
        )
    if list(condition) != names:
      raise ValueError(
        f"conditions: one has {names}, another {list(condition)}; all must "
        "have the same names in the same order"
      )
    if condition in conditions[:i]:
      raise ValueError(
        f"conditions: {brief(dict(condition))} is repeated; give it once"
      )
    for name, other in ((n, c[n]) for c in conditions[:i] for n in names):
      value = condition[name]
      if value != other and words.all_digits(value) == words.all_digits(other):
        raise ValueError(
          f"conditions[{i}][{name!r}]={brief(value)}: a report writes "
          f"it like {brief(other)}; give values that it can tell apart"
        )


def check_names_of_conditions(
  names: Sequence[str], data: Any, options: Mapping[str, Any]
) -> None:
  """Checks that each name is an option or an argument of data, given once."""
  for name in names:
    if name in options:
      raise ValueError(f"{name}: is given, and in conditions too; give it once")
  arguments = [name for name in names if name not in DEFAULTS]
  if not callable(data):
    if arguments:
      raise ValueError(
        f"conditions: {arguments[0]!r} is no option; data must then be a "
        f"function of the seed and of {', '.join(arguments)}"
      )
    return
  try:
    signature = inspect.signature(data)
  except ValueError:  # Its signature is not known.
    return
  try:
    signature.bind(0, **dict.fromkeys(arguments))
  except TypeError as error:
    raise ValueError(
      f"data: must be a function ({', '.join(['seed', *arguments])}), as the "
      f"conditions say ({error})"
    ) from None


def checked_methods(methods: Mapping[str, Any]) -> dict[str, Method]:
  """The methods by label, their grids as lists."""
  if not methods:
    raise ValueError("methods: is empty; give at least one")
  by_label = {}
  for label, method in methods.items():
    check_word("methods: a label", label)
    if not isinstance(method, tuple) or not 1 <= len(method) <= 3:
      raise TypeError(
        f"methods[{label!r}]={brief(method)}: must be fo.Method(make, grid)"
      )
    try:
      make, grid, options = Method(*method)
      inputs.check_is_grid("grid", grid)
      check_option_names(options)
      by_label[label] = Method(*inputs.checked_grid(make, grid), options)
    except (TypeError, ValueError) as error:
      raise type(error)(f"methods[{label!r}]: {error}") from None
  return by_label


def notes_of(methods: Mapping[str, Method]) -> list[str]:
  """What the report says of clients' own models where they are not measured."""
  notes = []
  for label, method in methods.items():
    hyperparameters = {name: values[0] for name, values in method.grid.items()}
    algorithm = method.make(**hyperparameters)
    if algorithm.client_params or algorithm.personalize:
      notes.append(
        f"{words.quoted_if_list(label)}: its settings are chosen by the "
        "server's model, and the server's model is compared. Give own_models= "
        "to choose by the models of its clients, and to compare them."
      )
  return notes


def both_seeds(
  seeds: Sequence[int] | None,
  report_seeds: Sequence[int] | None,
  is_tuned: bool,
) -> tuple[list[int], list[int]]:
  """The seeds of tuning, and the seeds of the report.

  Args:
    seeds: the seeds of tuning.
    report_seeds: the seeds of the report.
    is_tuned: whether `seeds` choose settings, so that others must report.
  """
  seeds = list(range(5)) if seeds is None else [int(seed) for seed in seeds]
  if report_seeds is None:
    return seeds, tuning.fresh_seeds(seeds)
  report_seeds = [int(seed) for seed in report_seeds]
  overlap = set(report_seeds) & set(seeds)
  if overlap and is_tuned:
    raise ValueError(
      f"report_seeds: {min(overlap)} is one of seeds; must be seeds that "
      "tuning does not use"
    )
  return seeds, report_seeds


def check_crossed(crossed: int | None, data: Any) -> None:
  """Checks that partitions can be drawn, if they are to be crossed."""
  if crossed and not callable(data):
    raise ValueError(
      f"crossed={crossed}: data must be a function of the seed, which draws "
      "the partition"
    )


def criterion_of(
  criterion: Criterion | None,
  metric: str,
  has_validation: bool,
  options: Mapping[str, Any],
  is_tuned: bool,
) -> Criterion:
  """The criterion, by default on the validation examples."""
  if options.get("evaluate") is None:
    raise ValueError(
      "evaluate: must be given; such as fo.evaluation.federated(per_example)"
    )
  criterion = criterion or Criterion(on_validation(metric), direction(metric))
  check_text("criterion.metric", criterion.metric)
  # Each client holds out its own examples.
  has_validation |= criterion.metric.startswith("client_")
  is_on_validation = split_of(criterion.metric) == "validation"
  if is_tuned and is_on_validation and not has_validation:
    raise ValueError(
      f"validation: must be given to choose by {criterion.metric}; such as "
      "the second part of fo.data.hold_out(pool, 0.1) or data.split(0.1), of "
      "which clients train on the first. Or give another criterion"
    )
  return criterion


def check_apart(
  validation: Batch | ClientData | None, test: Batch | ClientData | None
) -> None:
  """Checks that settings are not chosen on examples of the report.

  Args:
    validation: see `compare`; was checked.
    test: likewise.

  Raises:
    ValueError: if some are the same rows of one pool, or all are the same.
  """
  if validation is None or test is None:
    return
  parts = validation, test
  are_clients = all(isinstance(part, ClientData) for part in parts)
  if are_clients and same_pool(validation.examples, test.examples):
    num_shared, total = inputs.num_shared_rows(validation, test)
  else:
    pools = [p.pooled() if isinstance(p, ClientData) else p for p in parts]
    total = len(next(iter(pools[0].values())))
    num_shared = total if same_pool(*pools) else 0
  if num_shared:
    raise ValueError(
      f"validation: {num_shared} of its {total} examples are in test too; must "
      "be others, such as the parts that rest.split(0.5) gives. To choose on "
      "test examples, leave validation out and give a criterion"
    )
