"""What is computed in bfloat16, and what is not."""

import functools

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedjax_opt as fo
from experiments.tasks import images as image_tasks
from fedjax_opt import contract, models, objectives, prox
from fedjax_opt.algorithms import ALGORITHMS
from fedjax_opt.arrays import trees
from fedjax_opt.datasets import embedded
from fedjax_opt.engine.config import Config
from fedjax_opt.engine.traced import rounds
from fedjax_opt.engine.traced.mapping import Segment
from fedjax_opt.engine.traced.precision import computed_loss, local_model
from fedjax_opt.models import layers
from fedjax_opt.rules import RULES, mirror_step
from tests.helpers.each_algorithm import KINDS, NAMES, TASK, make
from tests.helpers.jax_problems import flat, types_of

# A step of per_fed_avg takes three local ones.
OPTIONS = {"cohort_size": 3, "batch_size": 4, "local_steps": 3}


def traced_rounds(algorithm, params, data, **options):
  """Traces two rounds.

  Returns:
    Their operations, and the state before and after as shapes.
  """
  config = Config.create(data, OPTIONS | options)
  shapes = lambda tree: jax.tree.map(
    lambda leaf: jax.ShapeDtypeStruct(jnp.shape(leaf), jnp.result_type(leaf)),
    tree,
  )

  def start(params):
    return contract.initial_states(algorithm, params, data.num_clients)

  state_before = jax.eval_shape(start, shapes(params))

  def run(state, key, data):
    segment = (Segment(), jnp.int32(0), jnp.int32(2))
    return rounds.run_rounds(config, algorithm, state, key, data, *segment)[0]

  key = jax.random.key(0)
  trace = jax.make_jaxpr(run, return_shape=True)
  traced, state_after = trace(state_before, key, shapes(data))
  return traced.jaxpr, state_before, state_after


def product_types(jaxpr):
  """The types of all factors of matrix products and convolutions."""
  types = set()
  for equation in jaxpr.eqns:
    if equation.primitive.name in ("dot_general", "conv_general_dilated"):
      types |= {str(factor.aval.dtype) for factor in equation.invars}
    for inner_jaxpr in jax.extend.core.jaxprs_in_params(equation.params):
      types |= product_types(inner_jaxpr)
  return types


# What every algorithm of the registry promises.


def low_trace(name, precision):
  """A traced run whose products are in bfloat16, and what it takes."""
  trace = functools.partial(traced_rounds, make(name), TASK.params, TASK.data)
  cohort = {"cohort_size": 5} if ALGORITHMS[name].cohort == "all" else {}
  trace = functools.partial(trace, **cohort)
  jaxpr, state_before, state_after = trace(precision=precision)
  assert product_types(jaxpr) == {"bfloat16"}
  assert types_of(state_after) == types_of(state_before)
  floats = {leaf.dtype for leaf in jax.tree.leaves(state_after)} - {
    jnp.dtype(kind) for kind in ("int32", "bool")
  }
  assert floats == {jnp.dtype("float32")}
  return trace


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.default_cases(*KINDS, "per_fed_avg", "fed_speed", "ditto")
def test_products_are_lower_and_the_server_is_not(name):
  low_trace(name, "bfloat16")


# In "mixed", which only keeps local steps in float32.
@pytest.mark.parametrize("name", ["fed_avg", "scaffold", "domo"])
def test_messages_are_as_large_as_they_were(name, monkeypatch):
  sizes, num_bytes = [], trees.num_bytes

  def noted(tree):
    sizes.append(num_bytes(tree))
    return sizes[-1]

  monkeypatch.setattr(trees, "num_bytes", noted)
  trace = low_trace(name, "mixed")
  sizes_low = sizes.copy()
  sizes.clear()
  jaxpr, *_ = trace()
  assert product_types(jaxpr) == {"float32"}
  assert sizes_low == sizes != []


def test_masters_of_64_bits_stay():
  with jax.enable_x64(True):
    jaxpr, state_before, state_after = traced_rounds(
      make("scaffold"), TASK.params, TASK.data, precision="bfloat16"
    )
    kinds = {leaf.dtype.name for leaf in jax.tree.leaves(state_after)}
  assert product_types(jaxpr) == {"bfloat16"}
  assert types_of(state_after) == types_of(state_before)
  assert "float64" in kinds
  assert "float32" not in kinds


# What models compute.


MODELS = {
  "cnn": models.CNN(kernel_size=3, padding="SAME", implementation="matmul"),
  "cnn of lax": models.CNN(kernel_size=3, padding="SAME", implementation="lax"),
  "vgg": models.VGG(stages=((4, 4), (8,)), implementation="matmul"),
  "resnet": models.ResNet((1, 1), (8, 8), implementation="matmul"),
  "resnet_batch": models.ResNet((1, 1), (8, 8), norm="batch"),
  # As a whole, and quick to trace.
  "resnet20 of lax": models.resnet20(implementation="lax"),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.slow_cases("vgg", "resnet", "cnn of lax")
def test_no_constant_of_a_model_raises_its_products(name):
  """From pixels as bytes to losses and gradients, which are float32."""
  digits, _ = embedded.digits()
  x = np.kron(digits["x"][:8], np.ones(3)).astype(np.uint8)  # Three channels.
  examples = {"x": x, "y": digits["y"][:8]}
  task = image_tasks.classification(
    MODELS[name], image_tasks.DATASETS["cifar10"], examples, examples
  )
  params = jax.eval_shape(task.init, jax.random.key(0))

  def losses_and_gradients(params, batch, key):
    loss_fn = computed_loss("mixed", task.loss_fn)
    losses, pull = jax.vjp(lambda p: loss_fn(p, batch, key), params)
    return losses, pull(jnp.ones_like(losses))[0]

  trace = jax.make_jaxpr(losses_and_gradients, return_shape=True)
  jaxpr, (losses, grads) = trace(params, examples, jax.random.key(0))
  assert losses.dtype == "float32"
  assert types_of(grads) == types_of(params)
  assert product_types(jaxpr.jaxpr) == {"bfloat16"}


@pytest.mark.parametrize("kind", ["group", "batch"])
def test_statistics_of_normalization_are_not_lower(kind):
  """Of numbers whose mean and variance bfloat16 would not resolve."""
  layer = layers.Norm(kind, num_groups=2)
  rng = np.random.default_rng(0)
  x = jnp.asarray(128 + rng.integers(0, 2, (16, 4, 4, 8)), "bfloat16")
  params = layer.init(jax.random.key(0), x, train=True)
  apply = jax.jit(functools.partial(layer.apply, train=True))
  expected = apply(params, x.astype("float32"))
  cast = functools.partial(jax.tree.map, lambda leaf: leaf.astype("bfloat16"))
  actual = apply(cast(params), x)
  assert actual.dtype == "bfloat16"
  np.testing.assert_allclose(actual.astype("float32"), expected, rtol=1e-2)


@pytest.mark.slow
def test_what_does_not_move_is_not_rounded_nor_are_running_statistics():
  """What its local model rounds off a client does not send."""
  layer = layers.BatchNorm()
  x = np.random.default_rng(0).integers(0, 9, (24, 3)).astype(np.float32)
  examples = {"x": x, "y": np.zeros(24, np.float32)}
  data = fo.ClientData.from_partition(
    examples, [np.arange(8), np.arange(8, 24)]
  )
  params = {
    "norm": layer.init(jax.random.key(0), x, train=True)["params"],
    "output": jnp.full(3, 1.1),
  }

  def loss_fn(params, batch, rng):
    normalized = layer.apply({"params": params["norm"]}, batch["x"], train=True)
    return (normalized @ params["output"] - batch["y"]) ** 2

  algorithm = fo.fed_avg(loss_fn, optax.sgd(0.0), optax.sgd(1.0))
  options = {"rounds": 3, "batch_size": 4, "local_steps": 2}
  low, high = (
    fo.simulate(algorithm, params, data, precision=precision, **options).params
    for precision in ("bfloat16", "float32")
  )
  np.testing.assert_array_equal(low["output"], params["output"])
  jax.tree.map(
    functools.partial(np.testing.assert_allclose, rtol=1e-5), low, high
  )


def test_the_start_is_rounded_by_an_operation_that_xla_keeps():
  """It took a conversion there and back away on a GPU, see `local_model`."""
  rounded = functools.partial(local_model, "bfloat16")
  text = jax.jit(rounded).lower({"weight": np.ones(3, np.float32)}).as_text()
  assert "reduce_precision" in text


# Local steps.


@pytest.mark.parametrize(
  ("name", "precision", "kind"),
  [
    *[(n, "bfloat16", "bfloat16") for n in ("delta_sgd", "sps", "muon")],
    ("delta_sgd", "mixed", "float32"),
  ],
)
def test_rules_step_in_the_precision_also_of_a_grid(name, precision, kind):
  """Where each hyperparameter is a traced float32 number."""
  dtypes = set()

  def spy(rule):
    def update(grads, state, params, **extra):
      trees = (grads, params, extra["grad_fn"](params))
      dtypes.update(str(leaf.dtype) for leaf in jax.tree.leaves(trees))
      assert extra["value"].dtype == "float32"
      return rule.update(grads, state, params, **extra)

    rule = optax.with_extra_args_support(rule)
    return optax.GradientTransformationExtraArgs(rule.init, update)

  numbers = {
    field.name: field.default
    for field in RULES[name].hyperparameters
    if not isinstance(field.default, bool)
  }

  @jax.make_jaxpr
  def trace(numbers):
    algorithm = fo.fed_avg(TASK.loss_fn, spy(RULES[name].factory(**numbers)))
    _, state_before, state_after = traced_rounds(
      algorithm, TASK.params, TASK.data, precision=precision
    )
    assert types_of(state_after) == types_of(state_before)
    return jnp.zeros(())

  trace(jax.tree.map(jnp.float32, numbers))
  assert dtypes == {kind}


MATRIX = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)


@pytest.mark.slow
def test_regularizers_take_a_local_model_of_lower_precision():
  """The nuclear norm, whose operator is an iteration that has to converge."""
  examples = {"x": np.zeros((8, 1), np.float32), "y": np.zeros(8, np.int32)}
  data = fo.ClientData.from_partition(examples, [np.arange(8)])
  loss_fn = lambda params, batch, rng: (
    jnp.sum((params["kernel"] - MATRIX) ** 2) + 0 * batch["x"][:, 0]
  )
  algorithm = fo.fed_avg(
    loss_fn, mirror_step(0.1, prox.kernels(prox.nuclear(0.1)))
  )

  def run(precision):
    result = fo.simulate(
      algorithm, {"kernel": 2 * MATRIX}, data, rounds=2, batch_size=4,
      precision=precision,
    )  # fmt: skip
    return result.params["kernel"]

  np.testing.assert_allclose(run("bfloat16"), run("float32"), atol=0.05)


# Terms added to a loss.


def test_terms_are_computed_at_the_parameters_themselves():
  center = jax.tree.map(np.float32, TASK.params)
  zero_loss = lambda params, batch, rng: jnp.zeros(len(batch["x"]), "bfloat16")
  batch = {"x": jnp.ones((2, 1))}

  def gradient(loss_fn, params):
    loss_fn = computed_loss("mixed", loss_fn)
    mean_loss = lambda params: jnp.mean(loss_fn(params, batch, None))
    return flat(jax.jit(jax.grad(mean_loss))(params))

  proximal = objectives.proximal(zero_loss, center, 3.0)
  assert np.all(gradient(proximal, center) == 0)
  penalized = objectives.l2(proximal, 0.5)
  np.testing.assert_allclose(
    gradient(penalized, center), 0.5 * flat(center), rtol=1e-6
  )


def test_targets_are_not_rounded():
  leaves_seen = {}

  def loss_fn(params, batch, rng):
    leaves_seen.update(batch)
    return params["w"] * batch["x"][:, 0]

  batch = {
    "x": jnp.ones((2, 1)),
    "y": jnp.ones(2),
    "weight": jnp.ones(2),
    "id": jnp.arange(2),
  }
  computed_loss("mixed", loss_fn)({"w": jnp.ones(())}, batch, None)
  assert {name: str(leaf.dtype) for name, leaf in leaves_seen.items()} == {
    "x": "bfloat16", "y": "float32", "weight": "bfloat16", "id": "int32",
  }  # fmt: skip


def test_exact_gradients_of_many_examples_are_summed_in_float32():
  """2,000 gradients of 100 overflow float16."""
  dtype = jnp.float16
  data = fo.ClientData.from_partition(
    {"x": np.full((2000, 1), 100, np.float32)}, [np.arange(2000)]
  )

  def loss_fn(params, batch, rng):
    return (batch["x"] @ params["w"].astype(jnp.float32)).astype(dtype)

  result = fo.simulate(
    fo.centralized(loss_fn, prox.l1(0.0), 1e-3),
    {"w": jnp.zeros(1, dtype)},
    data,
    rounds=1,
    batch_size=10,
  )
  assert result.params["w"].dtype == dtype
  np.testing.assert_allclose(
    np.asarray(result.params["w"], np.float32), -0.1, rtol=4e-3
  )


@pytest.mark.parametrize("client_map", ["vmap", "scan"])
def test_the_mean_of_equal_messages_is_one_of_them(client_map):
  """Also of a model in half precision, whose sums would be rounded."""
  rows = np.arange(300).reshape(-1, 1)
  data = fo.ClientData.from_partition({"x": np.ones((300, 1), "f")}, rows)
  loss_fn = lambda params, batch, rng: batch["x"][:, 0] * params
  result = fo.simulate(
    fo.fed_avg(loss_fn, optax.sgd(1.0)),
    jnp.bfloat16(0),
    data,
    rounds=1,
    client_map=client_map,
    batch_size=1,
  )
  assert (result.params, result.params.dtype) == (-1, jnp.bfloat16)
