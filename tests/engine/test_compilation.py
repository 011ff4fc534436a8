"""Programs are taken again where nothing changed, and only there.

Each case is a loss that reads a number in some way, and how that changes. Both
runs have the same code; the second one must see the new number.
"""

import types

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_opt import ClientData, fed_avg, simulate
from fedjax_opt.engine import compilation

ONES = np.ones((4, 1), np.float32)
DATA = ClientData.from_partition(
  {"x": ONES, "z": 3 * ONES, "y": np.ones(4, np.int32)}, [[0, 1], [2, 3]]
)
PARAMS = {"bias": jnp.zeros(())}
SCALE = 1.0


def step(loss_fn, **options):
  """How far one step of one round moves the bias; 1 for a loss of its slope."""
  result = simulate(
    fed_avg(loss_fn, optax.sgd(1.0)), PARAMS, DATA, rounds=1, batch_size=2,
    local_steps=1, **options,
  )  # fmt: skip
  return -float(result.params["bias"])


@jax.custom_jvp
def times(value):
  return SCALE * value


@times.defjvp
def _times_jvp(primals, tangents):
  return SCALE * primals[0], SCALE * tangents[0]


def loss_of(scale):
  """The bias times numbers of the batch and of `scale`, a scalar or [B]."""
  return lambda params, batch, rng: (
    scale(batch) * params["bias"] * batch["x"][:, 0]
  )


def set_global():
  globals().update(SCALE=3.0)


def of_array(size):
  scales = np.ones(size, np.float32)
  # Read at a traced place, so that the program holds the whole array.
  at = lambda batch: jnp.asarray(scales)[batch["y"]]
  return loss_of(at), lambda: scales.fill(3.0)


def of_callback():
  scale, shape = [1.0], jax.ShapeDtypeStruct((), jnp.float32)

  def called_back(batch):
    read_scale = lambda value=scale[0]: np.float32(value)
    return jax.pure_callback(read_scale, shape)

  return loss_of(called_back), lambda: scale.__setitem__(0, 3.0)


def of_another_input():
  name = ["x"]
  loss = lambda params, batch, rng: params["bias"] * batch[name[0]][:, 0]
  return loss, lambda: name.__setitem__(0, "z")


MAKE = {
  "global": lambda: (loss_of(lambda batch: SCALE), set_global),
  "custom derivative": lambda: (
    lambda params, batch, rng: times(params["bias"]) * batch["x"][:, 0],
    set_global,
  ),
  "small array": lambda: of_array(2),
  "large array": lambda: of_array(200_000),
  "callback": of_callback,
  "another input": of_another_input,
}


@pytest.mark.parametrize("name", MAKE)
@pytest.mark.default_cases("callback")
def test_a_changed_number_is_seen(name, monkeypatch):
  monkeypatch.setitem(globals(), "SCALE", 1.0)
  loss_fn, change = MAKE[name]()
  assert step(loss_fn) == 1.0
  change()
  assert step(loss_fn) == 3.0


@pytest.fixture
def passed_constants():
  """JAX passes the arrays of a closure to a program beside its inputs."""
  jax.config.update("jax_use_simplified_jaxpr_constants", True)
  yield
  jax.config.update("jax_use_simplified_jaxpr_constants", False)


def test_arrays_that_are_passed_beside_the_inputs(passed_constants):
  for scale in (1.0, 3.0):
    scales = np.full(1000, scale, np.float32)
    run = compilation.quickly_compiled(
      lambda i, scales=scales: jnp.asarray(scales)[i]
    )
    assert run(5) == scale


def test_programs_made_anew_are_the_same_object():
  def compiled(scale):
    lowered = jax.jit(lambda x: x * scale).lower(jnp.ones(3))
    return compilation.compiled(lowered, jnp.ones(3))

  assert compiled(2.0) is compiled(2.0)
  assert compiled(2.0) is not compiled(3.0)


def test_partitions_of_one_data_set_share_the_rounds():
  """They have clients of the same sizes, and use another number of examples."""
  loss_fn = lambda params, batch, rng: batch["x"][:, 0] * params["bias"]
  counts = []
  for rows in ([[0, 1], [2, 3]], [[0, 1], [2, 0]]):
    x = np.arange(4.0, dtype=np.float32)[:, None]
    data = ClientData.from_partition({"x": x}, rows)
    result = simulate(
      fed_avg(loss_fn, optax.sgd(1.0)), PARAMS, data, rounds=1, batch_size=2
    )
    np.testing.assert_allclose(
      -result.params["bias"], np.mean(x[np.ravel(rows)])
    )
    counts.append(compilation.num_compiled())
  assert data.num_examples == 3
  assert counts[0] == counts[1]


def test_few_programs_are_kept(monkeypatch):
  monkeypatch.setattr(compilation, "_MOST", 3)
  for number in range(5):
    run = compilation.quickly_compiled(lambda x, number=number: x + number)
    assert run(1) == 1 + number
  assert compilation.num_compiled() == 3


def test_what_a_compilation_has_freed_is_given_back(monkeypatch):
  trim_calls = []
  libc = types.SimpleNamespace(malloc_trim=trim_calls.append)
  monkeypatch.setattr(compilation.ctypes, "CDLL", lambda _: libc)

  def compile(number):
    lowered = jax.jit(lambda x: x - number).lower(jnp.ones(7))
    compilation.compiled(lowered, jnp.ones(7))

  compile(1.5)
  compile(1.5)  # Is known.
  assert trim_calls == [0]
  del libc.malloc_trim  # As where there is no glibc.
  compile(2.5)
