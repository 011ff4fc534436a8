"""A small problem, and what the tables of bad input are checked with."""

import dataclasses
import functools
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedjax_opt as fo
from fedjax_opt import ClientData, evaluation, fed_avg
from tests.helpers.compilations import compilations
from tests.helpers.tables_of_calls import read_cases

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
OPTIONS = {"rounds": 2, "batch_size": 2}

DEFAULTS = {"algorithm": ALGORITHM, "params": PARAMS, "data": DATA, **OPTIONS}


# Public functions that say what their arguments may be.
FACTORIES = {
  f"{name} {argument}": (factory, argument, field)
  for module in (
    *(fo, fo.rules, fo.prox, fo.transforms, fo.objectives),
    *(fo.partition, fo.synthetic, fo.samplers),
    *(fo.aggregators, fo.faults, fo.privacy),
  )
  for name, factory in vars(module).items()
  if inspect.isfunction(factory)
  for argument, field in getattr(factory, "checked_fields", {}).items()
}
# Programs of single operations, which bring an array to the device.
_TRIVIAL = {"jit(stage)", "jit(convert_element_type)"}


def refusals_of_table(name, names):
  """A test of each row of a table in refusals/.

  A row is a call, then the error's type and how its line begins.

  Args:
    name: of the table.
    names: those of the test file, which calls may have.
  """
  of_all = {"dataclasses": dataclasses, "functools": functools, "fo": fo}
  of_all |= {"jax": jax, "jnp": jnp, "np": np, "optax": optax}
  rows = read_cases(f"checks/refusals/{name}")

  @pytest.mark.parametrize(("call", "line"), rows)
  def test(call, line):
    check(lambda: eval(call, of_all | globals() | names), line)

  return test


def check(call, line):
  """That a call is refused in one line, before anything is compiled.

  Args:
    call: without arguments.
    line: type of the error, and how its line begins.
  """
  raises = pytest.raises((ValueError, TypeError))
  with compilations() as programs, raises as error:
    call()
  text = str(error.value)
  assert f"{error.type.__name__}: {text}".startswith(line)
  assert "\n" not in text
  assert len(text) <= 250
  assert _TRIVIAL.issuperset(programs)
