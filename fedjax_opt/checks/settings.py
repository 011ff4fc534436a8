"""Settings by name and kind, as far as they need nothing but themselves."""

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from fedjax_opt.checks import functions
from fedjax_opt.checks import values as checks
from fedjax_opt.engine.precision import PRECISIONS
from fedjax_opt.results.checkpoint import Checkpoints

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
_CHOICES = {
  "weighting": ("examples", "uniform"),
  "precision": PRECISIONS,
  "client_memory": ("auto", "device", "host"),
  "client_map": ("auto", "vmap", "scan"),
  "max_update_action": ("reject", "clip"),
}


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


def check_run(
  rounds: Any, on_evaluation: Any, checkpoints: Any, progress: Any
) -> None:
  """What `simulate` and `sweep` take beside settings.

  Raises:
    ValueError: if there are fewer rounds than none.
    TypeError: naming the argument that is of a wrong type.
  """
  checks.at_least("rounds", rounds, 0)
  checks.optional_function("on_evaluation", on_evaluation, "(report)")
  checks.switch("progress", progress)
  if checkpoints is not None and not isinstance(checkpoints, Checkpoints):
    raise TypeError(
      f"checkpoints={checks.shown(checkpoints)}: must be a Checkpoints, such "
      'as Checkpoints("folder", every=50)'
    )


def check_kinds(given: Mapping[str, Any]) -> None:
  """That each setting is of its type.

  Args:
    given: all settings.

  Raises:
    ValueError: naming the one that cannot be.
    TypeError: naming the one that is of a wrong type.
  """
  for name, accepted in _CHOICES.items():
    checks.choice(name, given[name], accepted)
  for name in ("replacement", "drop_remainder"):
    checks.switch(name, given[name])
  checks.at_least("batch_size", given["batch_size"], 1)
  checks.at_least("eval_every", given["eval_every"], 1)
  for name in ("local_steps", "client_chunk", "client_devices", "grid_devices"):
    if given[name] is not None:
      checks.whole(name, given[name])
  if given["local_epochs"] is not None:
    checks.number("local_epochs", given["local_epochs"])
  dropout = given["client_dropout"]
  checks.number("client_dropout", dropout)
  if not 0 <= dropout < 1:
    raise ValueError(f"client_dropout={float(dropout):g}: must be in [0, 1)")
  _check_max_update(given["max_update_norm"], given["max_update_action"])
  checks.names("trace", given["trace"])
  _check_evaluate(given["evaluate"])


def _check_max_update(norm, action):
  if norm is not None:
    checks.in_interval("max_update_norm", norm, "(0, inf)")
  elif action != "reject":
    raise ValueError(
      f"max_update_action={action!r}: needs max_update_norm, the largest norm"
    )


def _check_evaluate(evaluate):
  module = getattr(evaluate, "__module__", None)
  name = getattr(evaluate, "__qualname__", "")
  if module == "fedjax_opt.evaluation" and "<locals>" not in name:
    raise TypeError(
      f"evaluate=the function fedjax_opt.evaluation.{name}: was not called; "
      "write evaluation.federated(per_example)"
    )
  checks.optional_function("evaluate", evaluate, functions.EVALUATE)
