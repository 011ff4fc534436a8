"""A small problem, and what the tables of bad input are checked with."""

import jax
import numpy as np
import optax

from fedjax_opt import ClientData, evaluation, fed_avg, simulate

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

DEFAULTS = {
  "algorithm": ALGORITHM,
  "params": PARAMS,
  "data": DATA,
  **SETTINGS,
}


def run(**given):
  """A simulation in which these arguments are bad."""
  return lambda: simulate(**DEFAULTS | given)


def late(**given):
  """As `run`, of functions that give the arguments when it is called."""
  return lambda: simulate(
    **DEFAULTS | {name: make() for name, make in given.items()}
  )


def algorithm(make):
  """As `run`, of a function that gives the algorithm."""
  return late(algorithm=make)


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
    message: the whole line; up to a final "...", if it has one.
  """
  compiled.clear()
  try:
    call()
  except (ValueError, TypeError) as error:
    raised, text = error, str(error)
  else:
    raise AssertionError("was not refused")
  if message.endswith("..."):
    assert text.startswith(message[:-3])
  else:
    assert text == message
  assert type(raised) is kind
  assert "\n" not in text
  assert len(text) <= 250
  assert not compiled
