"""A small problem, and what the tables of bad input are checked with."""

import functools

import jax
import numpy as np
import optax
import pytest

from fedjax_opt import ClientData, evaluation, fed_avg

N = 12
X = np.linspace(-1, 1, 3 * N, dtype=np.float32).reshape(N, 3)
Y = (np.arange(N) % 2).astype(np.int32)
OWNERS = np.arange(N) % 4
DATA = ClientData.from_client_ids({"x": X, "y": Y}, OWNERS)
TEST = {"x": X, "y": Y}
PARAMS = {"w": np.zeros((3, 2), np.float32)}
SGD = optax.sgd(0.1)


def logits_of(params, batch):
  return batch["x"] @ params["w"]


def loss_fn(params, batch, rng):
  return optax.softmax_cross_entropy_with_integer_labels(
    logits_of(params, batch), batch["y"]
  )


def per_example(params, batch):
  return {
    "loss": loss_fn(params, batch, None),
    "accuracy": logits_of(params, batch).argmax(1) == batch["y"],
  }


evaluate = evaluation.federated(per_example)
ALGORITHM = fed_avg(loss_fn, SGD)
SETTINGS = {"rounds": 2, "batch_size": 2}

DEFAULTS = {"algorithm": ALGORITHM, "params": PARAMS, "data": DATA, **SETTINGS}


# Programs that were compiled.
compiled = []
# Of single operations, which bring an array to the device.
_TRIVIAL = ("jit(stage)", "jit(convert_element_type)")


def _on_event(event, duration, fun_name="", **_):
  is_compilation = event == "/jax/core/compile/backend_compile_duration"
  if is_compilation and fun_name not in _TRIVIAL:
    compiled.append(fun_name)


jax.monitoring.register_event_duration_secs_listener(_on_event)


def check(call, kind, message):
  """That a call is refused in one line, before anything is compiled.

  Args:
    call: without arguments.
    kind: type of the error.
    message: how the line begins: the argument, and what came.
  """
  compiled.clear()
  with pytest.raises((ValueError, TypeError)) as error:
    call()
  text = str(error.value)
  assert text.startswith(message)
  assert error.type is kind
  assert "\n" not in text
  assert len(text) <= 250
  assert not compiled


class Each:
  """Several arguments that are refused with the same line."""

  def __init__(self, *arguments):
    self.arguments = arguments


def refused(tables):
  """Cases for `parametrize`, each `(call, kind, line)`.

  Args:
    tables: {(checker, type of the error): {how the line begins, see `check`:
      the argument that the checker is called with, or `Each` of several}}.
  """
  return [
    pytest.param(functools.partial(checker, argument), kind, line, id=line[:60])
    for (checker, kind), table in tables.items()
    for line, bad in table.items()
    for argument in (bad.arguments if isinstance(bad, Each) else (bad,))
  ]


def call(function):
  """The checker of what is a whole call."""
  function()


def fails_on(checker, names, words, types=(), values=()):
  """Cases of fields that all want the same.

  Args:
    checker: called with {name: argument}.
    names: of the fields.
    words: what they must be, the end of the line.
    types: arguments that are a TypeError.
    values: arguments that are a ValueError.
  """

  def table(bad):
    return {
      f"{name}={value!r}".removesuffix(".0") + f": must be {words}": {
        name: value
      }
      for name in names
      for value in bad
    }

  return refused(
    {(checker, TypeError): table(types), (checker, ValueError): table(values)}
  )
