"""The programs of runs: traced in each run, compiled once.

Most of the time until a program runs is XLA's. A program whose text is that of
one that was compiled before is not compiled again. The text has all that was
traced, so equal functions that are made anew share a program, and a function of
which anything changed has another one.
"""

import collections
import functools
import hashlib
import re
import threading
from collections.abc import Callable, Hashable
from typing import Any

import jax

from fedjax_opt import target

# The number of programs kept; a run has two, of its rounds and evaluations, and
# some small ones, such as that of its initial model.
_KEPT = 16
_known: collections.OrderedDict[Hashable, "Program"] = collections.OrderedDict()
_lock = threading.Lock()


class Program:
  """A lowered program; a call compiles it once, and may be in any thread."""

  def __init__(self, lowered: jax.stages.Lowered, options: dict | None):
    self._lowered, self._options = lowered, options
    self._compiled, self._lock = None, threading.Lock()

  def __call__(self) -> jax.stages.Compiled:
    with self._lock:
      if self._compiled is None:
        options = self._options
        self._compiled = self._lowered.compile(compiler_options=options)
        self._lowered = None  # Large, and not needed any more.
      return self._compiled


def trace(
  name: str,
  function: Callable[..., Any],
  inputs: tuple[Any, ...],
  *,
  is_donated: bool,
) -> Callable[[], Program]:
  """Traces a program.

  Args:
    name: of the program.
    function: to compile.
    inputs: of the function, arrays or their shapes.
    is_donated: whether the state, `inputs[0][0]`, may be overwritten.

  Returns:
    A function that lowers it, and returns the `Program`.
  """
  # The state alone is donated, as an argument of its own.
  (state, *rest), *others = inputs

  def program(state, rest, *others):
    return function((state, *rest), *others)

  program.__name__ = name  # As logs and profiles call it.
  donated = 0 if is_donated else ()
  traced = _jit(program, donated).trace(state, rest, *others)
  return functools.partial(_lower, traced, inputs, _large_options())


def call(program: jax.stages.Compiled, inputs: tuple[Any, ...]) -> Any:
  """Calls a program that `trace` made."""
  (state, *rest), *others = inputs
  return program(state, rest, *others)


def run_once(function: Callable[..., Any]) -> Callable[..., Any]:
  """As `jax.jit`, with little effort to make the program fast.

  On CPU an initial model then compiles in a quarter of the time. Its bits are
  the same; at level 0 they are not. Other backends know no such option.
  """
  jitted = _jit(function, ())
  programs = {}

  def run(*inputs):
    form = _form(inputs)
    if form not in programs:
      options = None
      if jax.default_backend() == "cpu":
        options = {"xla_backend_optimization_level": "1"}
      programs[form] = _lower(jitted.trace(*inputs), inputs, options)
    return programs[form]()(*inputs)

  return run


def _form(inputs):
  """What a program depends on beside its function."""
  leaves, tree = jax.tree.flatten(inputs)
  return (
    tree,
    *((jax.typeof(x), getattr(x, "sharding", None)) for x in leaves),
    jax.config.jax_enable_x64,
    jax.config.jax_default_matmul_precision,
    jax.config.jax_default_device,
    *target.devices(),
  )


def clear() -> None:
  """Forgets all programs."""
  with _lock:
    _known.clear()


def _jit(function, donated):
  # Without unused inputs two functions of different inputs could have one text.
  return jax.jit(function, donate_argnums=donated, keep_unused=True)


def _lower(traced, inputs, options) -> Program:
  """Lowers a function; the program is a known one if the text is the same."""
  lowered = traced.lower()
  text = lowered.as_text()
  given = jax.tree.leaves(lowered.args_info)
  if not _says_all(text, len(given)):
    return Program(lowered, options)
  key = (
    hashlib.sha256(text.encode()).digest(),
    (lowered.in_tree, *given),
    (lowered.out_tree, *jax.tree.leaves(lowered.out_info)),
    tuple(getattr(x, "sharding", None) for x in jax.tree.leaves(inputs)),
    (jax.config.jax_default_device, *target.devices()),
    repr(options),
  )
  with _lock:
    program = _known.setdefault(key, Program(lowered, options))
    _known.move_to_end(key)
    while len(_known) > _KEPT:
      _known.popitem(last=False)
  return program


_MAIN = re.compile(r"@main\((.*)\) -> ")


def _says_all(text: str, num_inputs: int) -> bool:
  """Whether equal texts are equal programs.

  A text names functions of Python that are called back by a number alone; and
  arrays may be passed to it beside its inputs.
  """
  main = _MAIN.search(text)
  if main is None or "callback" in text:
    return False
  return len(re.findall(r"%arg\d+: ", main.group(1))) == num_inputs


# XLA's number of O1, the level that compiles fast.
_LEVEL_1 = 19


def _large_options() -> dict[str, int] | None:
  """The options to compile rounds and evaluation with; None for JAX's own.

  A TPU's compiler takes a minute for the rounds of ResNet-18. At level 1 it
  takes less than half of that, for as many FLOPs and fewer bytes read and
  written (docs/accelerators.md). JAX_OPTIMIZATION_LEVEL=O3 asks for all that it
  can do.
  """
  is_chosen = getattr(jax.config, "jax_optimization_level", "O3") != "UNKNOWN"
  if is_chosen or target.platform() != "tpu":
    return None
  return {"optimization_level": _LEVEL_1}
