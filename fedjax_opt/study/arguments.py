"""What the arguments of `compare` may be, and what they become."""

import inspect
import re
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from fedjax_opt.base import Batch
from fedjax_opt.checks import values as checks
from fedjax_opt.checks.fields import by_name, each, made
from fedjax_opt.data.clients import ClientData
from fedjax_opt.engine import inputs
from fedjax_opt.engine.config import DEFAULTS, check_names
from fedjax_opt.results.history import direction
from fedjax_opt.results.selection import Criterion
from fedjax_opt.study import tuning
from fedjax_opt.study.plan import Method


def are_seeds(name: str, seeds: Any) -> None:
  """Checks that they are whole numbers, and none is given twice."""
  found = checks.array(
    name, seeds, "[n]", of_integers=True, interval=f"[0, {checks.LARGEST}]"
  )
  if not found.size:
    raise ValueError(f"{name}=[]: give at least one")
  if len(set(found.tolist())) < found.size:
    raise ValueError(
      f"{name}={checks.shown(list(seeds))}: a seed is repeated; give it once"
    )


_VALUE = made(
  Hashable,
  "a value that can be compared, such as a number, a string or a tuple",
)
CONDITIONS = each(
  by_name(_VALUE, "a dict"),
  'a list of dicts, such as [{"alpha": 0.1}, {"alpha": 1.0}]',
  least=1,
)


def check_conditions(conditions: Sequence[Mapping[str, Any]]) -> None:
  """Checks that they have the same names, and none is given twice."""
  names = list(conditions[0])
  for i, condition in enumerate(conditions):
    if list(condition) != names:
      raise ValueError(
        f"conditions: one has {names}, another {list(condition)}; all must "
        "have the same names in the same order"
      )
    if condition in conditions[:i]:
      raise ValueError(
        f"conditions: {checks.shown(dict(condition))} is repeated; give it once"
      )


def check_names_of_conditions(
  names: Sequence[str], data: Any, settings: Mapping[str, Any]
) -> None:
  """Checks that each is a setting or an argument of data, and given once."""
  for name in names:
    if name in settings:
      raise ValueError(f"{name}: is given, and in conditions too; give it once")
  others = [name for name in names if name not in DEFAULTS]
  if not callable(data):
    if others:
      raise ValueError(
        f"conditions: {others[0]!r} is no setting; data must then be a "
        f"function of the seed and of {', '.join(others)}"
      )
    return
  try:
    signature = inspect.signature(data)
  except ValueError:  # It does not tell.
    return
  try:
    signature.bind(0, **dict.fromkeys(others))
  except TypeError as error:
    raise ValueError(
      f"data: must be a function ({', '.join(['seed', *others])}), as the "
      f"conditions say ({error})"
    ) from None


def checked_methods(methods: Mapping[str, Any]) -> dict[str, Method]:
  """The methods by label, their grids as lists."""
  if not methods:
    raise ValueError("methods: is empty; give at least one")
  found = {}
  for label, method in methods.items():
    checks.word("methods: a label", label)
    if not isinstance(method, tuple) or not 1 <= len(method) <= 3:
      raise TypeError(
        f"methods[{label!r}]={checks.shown(method)}: must be fo.Method(make, "
        "grid)"
      )
    try:
      make, grid, settings = Method(*method)
      inputs.check_is_grid("grid", grid)
      check_names(settings)
      found[label] = Method(*inputs.check_grid(make, grid), settings)
    except (TypeError, ValueError) as error:
      raise type(error)(f"methods[{label!r}]: {error}") from None
  return found


def both_seeds(
  seeds: Sequence[int] | None, report_seeds: Sequence[int] | None
) -> tuple[list[int], list[int]]:
  """The seeds of tuning, and fresh ones for the report."""
  seeds = list(range(5)) if seeds is None else [int(seed) for seed in seeds]
  if report_seeds is None:
    return seeds, tuning.fresh_seeds(seeds)
  report_seeds = [int(seed) for seed in report_seeds]
  both = set(report_seeds) & set(seeds)
  if both:
    raise ValueError(
      f"report_seeds: {min(both)} is one of seeds; must be seeds that tuning "
      "does not use"
    )
  return seeds, report_seeds


def criterion_of(
  criterion: Criterion | None,
  metric: str,
  validation: Batch | ClientData | None,
  settings: Mapping[str, Any],
  is_tuned: bool,
) -> Criterion:
  """The criterion, by default on the validation examples."""
  if settings.get("evaluate") is None:
    raise ValueError(
      "evaluate: must be given; such as fo.evaluation.federated(per_example)"
    )
  criterion = criterion or Criterion(_on_validation(metric), direction(metric))
  checks.text("criterion.metric", criterion.metric)
  if is_tuned and "validation_" in criterion.metric and validation is None:
    raise ValueError(
      f"validation: must be given to choose by {criterion.metric}; such as "
      "the second part of fo.data.hold_out(pool, 0.1) or data.split(0.1), of "
      "which clients train on the first. Or give another criterion"
    )
  return criterion


def _on_validation(metric: str) -> str:
  """The metric of the same kind on the validation examples."""
  return re.sub("^(regularized_)?(test_|train_)?", r"\1validation_", metric)
