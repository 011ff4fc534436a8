"""The options of a run, as they are given: their values and defaults."""

import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, TypedDict

import optax

from fedjax_opt.base import EvaluateFn
from fedjax_opt.checks import fields, functions
from fedjax_opt.checks.values import brief, nearest
from fedjax_opt.engine.clock import check_is_schedule
from fedjax_opt.engine.traced.precision import PRECISIONS
from fedjax_opt.samplers import Sampler
from fedjax_opt.schedules.timetable import Timetable
from fedjax_opt.transforms.aggregators import Aggregator
from fedjax_opt.transforms.faults import Fault
from fedjax_opt.transforms.upload import Upload

_COUNT = fields.integer(1)
_MAPS = fields.one_of("auto", "vmap", "scan")
_SHARDING = fields.function("(path, shape) -> PartitionSpec")
_EVALUATE = fields.function(functions.EVALUATE_TAKES)


class RunOptions(TypedDict, total=False):
  """The options of `simulate`, `sweep` and `Simulator`; all have defaults.

  Attributes:
    cohort_size: C, clients in a round. Default: all clients.
    sampler: who takes part: a `Sampler` of `fedjax_opt.samplers`, its name
      ('uniform', 'weighted', 'fixed'), or a function `(key, round) -> [C]
      int32 clients`. Default: 'uniform', without replacement.
    batch_size: B, examples in a local batch. Default: 32, or all examples of
      the largest client of all seeds if they are fewer, without `replacement`
      and `drop_remainder`.
    local_epochs: passes of a client over its examples in a round, any
      fraction. Default: 1, unless `local_steps` is given.
    local_steps: local steps in a round, instead of `local_epochs`.
    replacement: whether each batch is drawn with replacement, instead of
      going through a new shuffle in each epoch. Default: False.
    drop_remainder: whether the last batch of an epoch is dropped when it is
      not full. Default: False.
    weighting: weights of clients in means: 'examples' (the number of a client's
      examples) or 'uniform'. Default: 'examples'.
    client_dropout: probability, in [0, 1), that a client drops out of a round:
      the mean is over the others. Default: 0.
    schedule: who takes part when, instead of `cohort_size` and `sampler`: a
      `Timetable` of `fedjax_opt.schedules`, in which clients may come late or
      start from an older model; or {seed: timetable}; or a function from the
      `Work` of the clients of a seed to a timetable (a system makes durations
      of the work). A run with a function ends with the last step of its
      timetable. The metric `time` has simulated seconds. Default: none.
    max_update_norm: the largest Euclidean norm of the update of a client: of
      all differences of models, and gradients, that it sends
      (`Algorithm.sends`), together. Other parts of the message have no limit.
      If the algorithm does not say what clients send, the norm is that of all
      floats. Default: no limit.
    max_update_action: what happens to an update longer than `max_update_norm`:
      'reject' (the client is left out of the round, as with numbers that are
      not finite, and counted in `rejected_clients`) or 'clip' (the update is
      scaled to the norm, and the client is counted in `clipped_clients`).
      Default: 'reject'.
    evaluate: `(params, data, test) -> {name: scalar}`, such as
      `fedjax_opt.evaluation.federated` makes. Default: nothing is measured.
    eval_every: rounds between evaluations; round 0 and the last one are always
      evaluated. Default: 10.
    trace: names of fields of the client rule's state, recorded at each local
      step. Default: none.
    client_map: how the clients of a cohort are computed: 'vmap' (all at once),
      'scan' (one after the other) or 'auto' (the faster one on this device).
      Default: 'auto'.
    client_chunk: clients computed at once. Default: as `client_map` says, and
      at most as many as fit into memory.
    client_memory: where the states of the clients (SCAFFOLD, MOON) are stored
      between rounds: 'device', 'host' (the cohort's part goes to the device
      before each round) or 'auto' (the host if the states would fill half of
      the device's memory). Default: 'auto'.
    client_devices: devices over which the clients of a cohort are divided.
      Default: all that are not needed for the grid.
    model_devices: devices over which each model is divided, with all states
      that have its shape; XLA divides the computation. Default: 1.
    model_sharding: how a leaf of the state is divided: `(path, shape) ->
      jax.sharding.PartitionSpec`, over the axis 'model', or None for the
      default. Default: along its longest axis that model_devices divides, if
      the leaf has 4096 numbers or more.
    upload: how clients send their differences: an `Upload` of
      `fedjax_opt.transforms`, or any optax transformation. Default: unchanged.
    fault: what some clients send instead, to test aggregators: a `Fault` of
      `fedjax_opt.faults`. Default: none.
    aggregator: how the server combines messages: an `Aggregator` of
      `fedjax_opt.aggregators`; all but `mean` need weighting='uniform'.
      Default: the weighted mean.
    precision: types in which clients compute: 'float32' (those of the model),
      'mixed' (losses and gradients in bfloat16, all else as the model) or
      'bfloat16' (also the local steps, with the rule's state). The server's
      model and evaluation stay as they are. Default: 'float32'.
  """

  # The type of each option, its default, and the values that it may have.
  # An option without a third entry is checked where it is used. An option whose
  # default is None accepts None.
  cohort_size: Annotated[int | None, None]
  sampler: Annotated[str | Sampler | Callable[..., Any], "uniform"]
  batch_size: Annotated[int, 32, _COUNT]
  local_epochs: Annotated[float | None, None, fields.plain_number("(0, inf)")]
  local_steps: Annotated[int | None, None, _COUNT]
  replacement: Annotated[bool, False, fields.SWITCH]
  drop_remainder: Annotated[bool, False, fields.SWITCH]
  weighting: Annotated[str, "examples", fields.one_of("examples", "uniform")]
  client_dropout: Annotated[float, 0.0, fields.plain_number("[0, 1)")]
  schedule: Annotated[
    Timetable | Mapping[int, Timetable] | Callable[[Any], Timetable] | None,
    None,
  ]
  max_update_norm: Annotated[
    float | None, None, fields.Scalar(interval="(0, inf)")
  ]
  max_update_action: Annotated[str, "reject", fields.one_of("reject", "clip")]
  evaluate: Annotated[EvaluateFn | None, None, _EVALUATE]
  eval_every: Annotated[int, 10, _COUNT]
  trace: Annotated[Sequence[str], (), fields.NAMES]
  client_map: Annotated[str, "auto", _MAPS]
  client_chunk: Annotated[int | None, None, _COUNT]
  client_memory: Annotated[str, "auto", fields.one_of("auto", "device", "host")]
  client_devices: Annotated[int | None, None, _COUNT]
  model_devices: Annotated[int | None, None, _COUNT]
  model_sharding: Annotated[Callable[..., Any] | None, None, _SHARDING]
  upload: Annotated[Upload | optax.GradientTransformation | None, None]
  fault: Annotated[Fault | None, None]
  aggregator: Annotated[Aggregator | None, None]
  precision: Annotated[str, "float32", fields.one_of(*PRECISIONS)]


class GridOptions(RunOptions, total=False):
  """The options of `sweep`, and of a `Simulator` with a grid.

  Attributes:
    grid_map: how the points of a grid are computed: 'vmap' (all at once),
      'scan' (one after the other; a point that has diverged then takes no time)
      or 'auto' (by the size of a step). Default: 'auto'.
    grid_chunk: settings of a grid (all their seeds) computed at once. Default:
      as many as fit into memory, as the compiled program reports it.
    grid_devices: devices over which the settings of a grid are divided, each
      with all its seeds. Default: the most that divide the number of settings;
      the other devices are for the clients.
  """

  grid_map: Annotated[str, "auto", _MAPS]
  grid_chunk: Annotated[int | None, None, _COUNT]
  grid_devices: Annotated[int | None, None, _COUNT]


# Option -> its default, and the values that it may have.
_OPTIONS = {
  name: hint.__metadata__
  for name, hint in typing.get_type_hints(
    GridOptions, include_extras=True
  ).items()
}
GRID_DEFAULTS = {name: default for name, (default, *_) in _OPTIONS.items()}
DEFAULTS = {name: GRID_DEFAULTS[name] for name in RunOptions.__annotations__}
# The plainest way to compute rounds: one client after the other, on one device.
# Results do not depend on these options, except for rounding.
PLAIN_EXECUTION = {
  "client_map": "scan",
  "client_chunk": None,
  "client_memory": "device",
  "client_devices": 1,
  "model_devices": 1,
  "model_sharding": None,
  "grid_map": "scan",
  "grid_chunk": None,
  "grid_devices": 1,
}
_GRIDS = tuple(GridOptions.__annotations__.keys() - DEFAULTS.keys())
_WITH_HISTORY = ("on_evaluation", "checkpoints", "progress")
# Arguments that are no options, and the functions that take them.
_NO_OPTIONS = {
  "rounds": "of simulate, sweep and Simulator.run",
  "seed": "of simulate and Simulator.init; others take a list, seeds=[0]",
  "params": "of simulate, sweep and Simulator.init",
  "grid": "of sweep, a Simulator and fo.Method(make, grid)",
  "seeds": "of sweep and a Simulator with a grid; simulate takes seed=0",
  **dict.fromkeys(_GRIDS, "of sweep and a Simulator with a grid"),
  **dict.fromkeys(("test", "validation"), "of a run, and of no method"),
  **dict.fromkeys(_WITH_HISTORY, "of simulate and sweep"),
}

_RATES = ("learning_rate", "lr", "client_lr", "rate")


def check_option_names(
  names: Iterable[str],
  option_names: Iterable[str] = tuple(DEFAULTS),
  arguments: Iterable[str] = (),
) -> None:
  """Raises TypeError if an option is unknown, with the nearest name.

  Args:
    names: the names given.
    option_names: all options that exist.
    arguments: of the function that takes them, which may have been meant.
  """
  option_names = list(option_names)
  for name in [name for name in names if name not in option_names]:
    if name in _NO_OPTIONS:
      raise TypeError(
        f"{name}: is no option, but an argument {_NO_OPTIONS[name]}"
      )
    near = nearest(name, [*option_names, *arguments, *_NO_OPTIONS])
    hint = f"did you mean {near[0]}?" if near else "see fedjax_opt.RunOptions"
    if name in _RATES:
      hint = "a rate belongs to the client's rule, such as optax.sgd(0.1)"
    raise TypeError(f"{name}: is no option; {hint}")


def check_options(options: Mapping[str, Any]) -> None:
  """Checks each option, by itself and with the others.

  Args:
    options: options, also those of `sweep` alone; all others have their
      defaults.

  Raises:
    ValueError: naming the invalid option.
    TypeError: naming the option of a wrong type.
  """
  if options.get("schedule") is not None:
    check_is_schedule(options["schedule"])
    for name in ("cohort_size", "sampler"):
      if options.get(name, GRID_DEFAULTS[name]) != GRID_DEFAULTS[name]:
        raise ValueError(
          f"{name}={brief(options[name])} with schedule: the schedule "
          f"says who takes part; leave {name} out"
        )
  options = GRID_DEFAULTS | options
  _check_called(options["evaluate"])
  for name, (default, *field) in _OPTIONS.items():
    if field and not (options[name] is None and default is None):
      field[0].check(name, options[name])
  action = options["max_update_action"]
  if options["max_update_norm"] is None and action != "reject":
    raise ValueError(
      f"max_update_action={action!r}: needs max_update_norm, the largest norm"
    )
  for kind, noun in (("client", "client"), ("grid", "point")):
    chunk = options[f"{kind}_chunk"]
    if chunk is not None and options[f"{kind}_map"] == "scan":
      raise ValueError(
        f"{kind}_chunk={chunk} with {kind}_map='scan': scan takes one {noun} "
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
