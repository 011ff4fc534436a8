"""What settings are called, and what each of them may be."""

import dataclasses
import difflib
import functools
from collections.abc import Iterable, Mapping
from typing import Any

from fedjax_opt.checks import fields, functions
from fedjax_opt.engine.precision import PRECISIONS
from fedjax_opt.results.checkpoint import Checkpoints

_optional = functools.partial(dataclasses.replace, optional=True)
_MAPS = fields.choice("auto", "vmap", "scan")
# A setting that is None where it is not given may be None.
FIELDS: dict[str, fields.Field] = {
  "weighting": fields.choice("examples", "uniform"),
  "precision": fields.choice(*PRECISIONS),
  "client_memory": fields.choice("auto", "device", "host"),
  "client_map": _MAPS,
  "grid_map": _MAPS,
  "max_update_action": fields.choice("reject", "clip"),
  "replacement": fields.SWITCH,
  "drop_remainder": fields.SWITCH,
  "batch_size": fields.whole(1),
  "eval_every": fields.whole(1),
  "local_steps": fields.whole(1),
  "client_chunk": fields.whole(1),
  "client_devices": fields.whole(1),
  "grid_chunk": fields.whole(1),
  "grid_devices": fields.whole(1),
  "local_epochs": fields.number("(0, inf)", "above 0"),
  "client_dropout": fields.number("[0, 1)"),
  "max_update_norm": fields.Number(interval="(0, inf)"),
  "trace": fields.NAMES,
  "evaluate": fields.function(functions.EVALUATE),
}
# What `simulate` and `sweep` take beside settings.
_OF_RUNS: dict[str, fields.Field] = {
  "rounds": fields.whole(),
  "on_evaluation": _optional(fields.function("(report)")),
  "progress": fields.SWITCH,
  "checkpoints": _optional(
    fields.made(
      Checkpoints, 'a Checkpoints, such as Checkpoints("folder", every=50)'
    )
  ),
}
_OF_SWEEP = "belongs to sweep(make, grid, ...)"
_OF_RUN = "belongs to simulate and sweep"
# What is no setting of a function, and what to do instead.
_INSTEAD = {
  "simulate": {
    "seeds": _OF_SWEEP,
    "grid": _OF_SWEEP,
    "grid_map": _OF_SWEEP,
    "grid_chunk": _OF_SWEEP,
    "grid_devices": _OF_SWEEP,
  },
  "sweep": {"seed": "give a list, seeds=[0]"},
  "compare": {
    "seed": "give a list, seeds=[0]",
    "grid": "belongs to a method, fo.Method(make, grid)",
    "grid_map": _OF_SWEEP,
    "grid_chunk": _OF_SWEEP,
    "grid_devices": _OF_SWEEP,
    "on_evaluation": _OF_RUN,
    "checkpoints": _OF_RUN,
  },
  "Simulator": {
    "seed": "belongs to init(params, seed)",
    "params": "belongs to init(params, seed)",
    "rounds": "belongs to run(state, rounds)",
    "on_evaluation": _OF_RUN,
    "checkpoints": _OF_RUN,
    "progress": _OF_RUN,
  },
}
# Other arguments, one of which may be meant.
_ARGUMENTS = (
  "rounds",
  "test",
  "validation",
  "on_evaluation",
  "checkpoints",
  "progress",
)


def check_names(
  names: Iterable[str], known: Iterable[str], function: str = ""
) -> None:
  """Raises TypeError if a setting is unknown, with the nearest name.

  Args:
    names: those given.
    known: those that there are.
    function: to which they were given: "simulate", "sweep", "Simulator" or
      "compare".
  """
  known = list(known)
  for name in names:
    instead = _INSTEAD.get(function, {}).get(name)
    if instead is not None:
      raise TypeError(f"{name}: is no setting of {function}; {instead}")
    if name not in known:
      others = () if function in ("", "Simulator") else _ARGUMENTS
      near = difflib.get_close_matches(name, [*known, *others], 1)
      hint = f"did you mean {near[0]}?" if near else "see fedjax_opt.Settings"
      raise TypeError(f"{name}: is no setting; {hint}")


def check_run(**given: Any) -> None:
  """What `simulate` and `sweep` take beside settings.

  Raises:
    ValueError: if there are fewer rounds than none.
    TypeError: naming the argument that is of a wrong type.
  """
  for name, field in _OF_RUNS.items():
    field.check(name, given[name])


def check_kinds(given: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
  """That each setting is what it may be, by itself and with others.

  Args:
    given: settings.
    defaults: those of all settings.

  Raises:
    ValueError: naming the one that cannot be.
    TypeError: naming the one that is of a wrong type.
  """
  _check_called(given["evaluate"])
  for name, field in FIELDS.items():
    value = given.get(name)
    if value is not None or defaults.get(name) is not None:
      field.check(name, value)
  if (
    given["max_update_norm"] is None and given["max_update_action"] != "reject"
  ):
    raise ValueError(
      f"max_update_action={given['max_update_action']!r}: needs "
      "max_update_norm, the largest norm"
    )
  for kind, each in (("client", "client"), ("grid", "point")):
    chunk = given.get(f"{kind}_chunk")
    if chunk is not None and given.get(f"{kind}_map") == "scan":
      raise ValueError(
        f"{kind}_chunk={chunk} with {kind}_map='scan': scan takes one {each} "
        "after the other; use 'vmap' or 'auto'"
      )


def _check_called(evaluate):
  module = getattr(evaluate, "__module__", None)
  name = getattr(evaluate, "__qualname__", "")
  if module == "fedjax_opt.evaluation" and "<locals>" not in name:
    raise TypeError(
      f"evaluate=the function fedjax_opt.evaluation.{name}: was not called; "
      "write evaluation.federated(per_example)"
    )
