"""Running statistics: they are averaged, and nothing else touches them."""

import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen

import fedjax_opt as fo
from fedjax_opt import contract, objectives, privacy, prox, transforms
from fedjax_opt.algorithms import ALGORITHMS
from fedjax_opt.arrays import counters, running_statistics, trees
from fedjax_opt.engine.config import Config
from fedjax_opt.engine.traced import rounds
from fedjax_opt.engine.traced.mapping import Segment
from fedjax_opt.models import layers
from fedjax_opt.transforms import aggregators, faults
from tests.helpers import jax_problems
from tests.helpers.refusals import refusal

RNG = np.random.default_rng(0)
X = RNG.normal(1, 2, size=(24, 3)).astype(np.float32)
Y = RNG.normal(size=24).astype(np.float32)
DATA = fo.ClientData.from_partition(
  {"x": X, "y": Y}, [np.arange(8), np.arange(8, 24)]
)
LAYER = layers.BatchNorm()
PARAMS = {
  "norm": LAYER.init(jax.random.key(0), X, train=True)["params"],
  "output": jnp.ones(3),
}
OPTIONS = {"batch_size": 4, "local_steps": 2, "client_map": "vmap"}
STATISTICS = ("running_mean", "running_var")


def loss_fn(params, batch, rng):
  x = LAYER.apply({"params": params["norm"]}, batch["x"], train=rng is not None)
  return (x @ params["output"] - batch["y"]) ** 2


def test_delta_sgd_measures_the_weights_alone():
  """Its step sizes are those on a model whose statistics are not there."""
  normalized = {"x": (X - X.mean(0)) / X.std(0), "y": Y}

  def fixed_loss(params, batch, rng):
    x = LAYER.apply(
      {"params": {**PARAMS["norm"], **params["norm"]}}, batch["x"], train=True
    )
    return (x @ params["output"] - batch["y"]) ** 2

  weights = {
    "norm": {k: v for k, v in PARAMS["norm"].items() if k not in STATISTICS},
    "output": PARAMS["output"],
  }
  data = fo.ClientData(normalized, DATA.indices, DATA.sizes)
  expected, actual = (
    fo.simulate(
      fo.fed_avg(loss, fo.delta_sgd()), params, data, rounds=2,
      trace=["step_size"], **OPTIONS,
    )
    for loss, params in ((fixed_loss, weights), (loss_fn, PARAMS))
  )  # fmt: skip
  for value, target in (
    (actual.traces["step_size"], expected.traces["step_size"]),
    (actual.params["output"], expected.params["output"]),
  ):
    np.testing.assert_allclose(value, target, rtol=1e-5)


def test_terms_of_the_loss_leave_them_out():
  batch = {"x": X[:4], "y": Y[:4]}
  params = jax.tree.map(lambda leaf: leaf + 1.0, PARAMS)
  weights = {"scale": 2.0, "bias": 1.0}
  squares = 3 * sum(v**2 for v in weights.values()) + 3 * 2.0**2
  loss = loss_fn(params, batch, None)
  penalized = objectives.l2(loss_fn, 0.5)(params, batch, None)
  np.testing.assert_allclose(penalized - loss, 0.25 * squares, rtol=1e-5)
  penalized = objectives.proximal(loss_fn, PARAMS, 0.5)(params, batch, None)
  np.testing.assert_allclose(penalized - loss, 0.25 * 9, rtol=1e-5)


@pytest.mark.slow
def test_fed_exp_does_not_extrapolate_them():
  """They are the clients' means, whatever the step of the weights is."""
  client = optax.sgd(0.01)
  opposite = np.where(np.arange(24) < 8, 10, -10).astype(np.float32)
  data = fo.ClientData.from_partition(
    {"x": X - X.mean(0), "y": opposite}, [np.arange(8), np.arange(8, 24)]
  )
  step = lambda algorithm: (
    fo.simulate(
      algorithm, PARAMS, data, rounds=1, **OPTIONS, weighting="uniform"
    ).params
  )
  average = step(fo.fed_avg(loss_fn, client))
  actual = step(fo.fed_exp(loss_fn, client, eps=0.0))
  for name in STATISTICS:
    # It evaluates the mean of the first two iterates.
    middle = (PARAMS["norm"][name] + average["norm"][name]) / 2
    np.testing.assert_allclose(actual["norm"][name], middle, rtol=1e-6)
  extrapolated = (PARAMS["output"] + average["output"]) / 2
  assert not np.allclose(actual["output"], extrapolated, rtol=1e-3)


def test_a_batch_with_padding_is_refused():
  rows = [np.arange(8), np.arange(8, 21)]
  data = fo.ClientData.from_partition({"x": X, "y": Y}, rows)
  algorithm = fo.fed_avg(loss_fn, optax.sgd(0.1))
  options = {"batch_size": 4, "drop_remainder": True}
  fo.Simulator(algorithm, data, **options).init(PARAMS)
  message = refusal(fo.Simulator(algorithm, data, batch_size=4).init, PARAMS)
  assert message.startswith("params: 'norm' has running statistics")
  assert "a batch that is not full" in message


# Every algorithm either averages the statistics as FedAvg does, or refuses.
# Statistics are those of the examples, whatever the weights are, so that all
# algorithms have the same.

FIVE = fo.ClientData.from_partition(
  {
    "x": RNG.normal(1, 3, size=(40, 3)).astype(np.float32),
    "y": RNG.normal(size=40).astype(np.float32),
  },
  np.split(np.arange(40), 5),
)
NUM_STATISTICS = 6
# They take steps that statistics do not follow, weigh them with a regularizer,
# or run the model several times in a step.
REFUSING = {
  "bvr_l_sgd", "ca2fl", "centralized", "fed_avg_subgradient", "fed_dual_avg",
  "fed_dual_avg_osp", "fed_mid", "fed_mid_osp", "local", "minibatch_sarah",
  "minibatch_sgd", "moon", "prox_skip",
}  # fmt: skip


def make(name):
  """An algorithm of the registry, its steps far from those of FedAvg."""
  entry = ALGORITHMS[name]
  options = {
    field.name: 0.5 if field.default is None else field.default
    for field in entry.hyperparameters
    if field.field.value_type is not str
    and field.name not in ("large_batch", "hessian_difference")
  }
  options |= {
    "rule": {"server": optax.adam(0.3)},
    "rate": {"server_learning_rate": 0.5},
    "none": {},
  }[entry.server_takes]
  if name in ("fed_per", "fed_rep"):
    options["personal"] = ["output"]
  features_fn = lambda params, batch, rng: batch["x"]
  task = jax_problems.Task(None, PARAMS, loss_fn, features_fn)
  client, psi = optax.sgd(0.1, momentum=0.9), prox.l1(1e-3)
  return task.algorithm(name, client=client, rate=0.1, psi=psi, **options)


def after_two_rounds(algorithm, **options):
  """The server's state, model and counters after two rounds of all clients."""
  options = OPTIONS | {"weighting": "uniform", "eval_every": 2} | options
  config = Config.create(FIVE, options)
  start = contract.initial_states(
    algorithm, jax.tree.map(jnp.asarray, PARAMS), num_clients=5
  )

  @jax.jit
  def two_rounds(start):
    (server, _), counts, _ = rounds.run_rounds(
      config, algorithm, start, jax.random.key(0), jax.device_put(FIVE),
      Segment(), jnp.int32(0), jnp.int32(2),
    )  # fmt: skip
    # The one that FedExP evaluates is the mean of two models.
    model = getattr(server, "params", None) or algorithm.params(server)
    return server, model, counts

  return jax.device_get(two_rounds(start))


@functools.cache
def averaged():
  return after_two_rounds(fo.local_sgd(loss_fn, 0.1))


def assert_averaged(model):
  for name in STATISTICS:
    expected = averaged()[1]["norm"][name]
    np.testing.assert_allclose(model["norm"][name], expected, rtol=1e-5)


def statistics_of(tree):
  """The running statistics in a tree, in whatever place."""
  leaves = jax.tree_util.tree_leaves_with_path(tree)
  return [
    leaf
    for path, leaf in leaves
    if path[-1:] and getattr(path[-1], "key", "") in STATISTICS
  ]


@pytest.mark.parametrize("name", sorted(REFUSING))
def test_an_algorithm_that_does_not_average_them_refuses(name):
  sim = fo.Simulator(make(name), FIVE, batch_size=4)
  assert refusal(sim.init, PARAMS).startswith(
    "params: 'norm' has running statistics, which this algorithm does not "
    "average (Algorithm.averages_statistics); must be"
  )


# Of those that average, without others of the same server step or state.
AVERAGING = (
  *("diloco", "ditto", "domo", "fadas", "fed_acg", "fed_adam", "fed_adamw"),
  *("fed_avg", "fed_avg_slm_z", "fed_cm", "fed_dc", "fed_dyn", "fed_exp"),
  *("fed_lada", "fed_nova", "fed_smoo", "fed_speed", "mime_lite", "p_fed_me"),
  "scaffold",
)


@pytest.mark.parametrize("name", AVERAGING)
@pytest.mark.default_cases("fed_nova")
def test_an_algorithm_averages_them_whatever_its_steps(name):
  server, model, _ = after_two_rounds(make(name))
  assert_averaged(model)
  models = ("params", "shared", "previous")
  for field, tree in server._asdict().items():
    if field not in models:  # Momenta, duals, corrections.
      for leaf in statistics_of(tree):
        np.testing.assert_array_equal(leaf, 0)


# All clients, who count twice.
DOUBLED = fo.samplers.Sampler(lambda *_: (jnp.arange(5), jnp.full(5, 2.0)))


def with_momentum(loss_fn, rate):
  return fo.fed_avg(loss_fn, optax.sgd(rate, momentum=0.9), average_state=True)


@pytest.mark.parametrize(
  "make", [fo.local_sgd, fo.fed_adamw, fo.fed_lada, with_momentum]
)
@pytest.mark.default_cases("with_momentum")
def test_weights_that_a_sampler_scales_leave_averages_as_they_are(make):
  """Statistics, second moments (which must not be negative) and momenta."""
  algorithm = make(loss_fn, 1e-30)
  server, model, _ = after_two_rounds(algorithm, sampler=DOUBLED)
  assert_averaged(model)
  expected = after_two_rounds(algorithm)[0]
  for name in {"moment", "client"} & {*server._fields}:
    value, target = getattr(server, name), getattr(expected, name)
    jax.tree.map(np.testing.assert_allclose, value, target)


def check_wrapped(wrap, of="fed_avg"):
  """What changes messages leaves them as they are."""
  _, model, counts = after_two_rounds(wrap(make(of)))
  assert_averaged(model)
  return counts


@pytest.mark.slow
@pytest.mark.parametrize(
  "upload",
  [transforms.quantize(3), transforms.error_feedback(transforms.sign())],
)
def test_uploads_send_them_as_they_are(upload):
  with_upload = transforms.with_upload
  counts = check_wrapped(lambda algorithm: with_upload(algorithm, upload))
  sent = (
    upload.num_bytes(running_statistics.weights(PARAMS)) + 4 * NUM_STATISTICS
  )
  assert counters.read(counts["bytes_up"]) == 2 * 5 * sent
  # And of two differences in both.
  check_wrapped(lambda algorithm: with_upload(algorithm, upload), "scaffold")
  # Those in a part that is no difference count once. Here the parts are a
  # number of steps and second moments.
  of_lada = with_upload(make("fed_lada"), upload)
  counts = after_two_rounds(of_lada)[-1]
  sent += 4 + trees.num_bytes(PARAMS)
  assert counters.read(counts["bytes_up"]) == 2 * 5 * sent


@pytest.mark.parametrize("fault", [faults.flip(0.4), faults.noise(0.4)])
@pytest.mark.default_cases("fault0")
def test_faults_do_not_change_them(fault):
  check_wrapped(lambda algorithm: faults.with_fault(algorithm, fault))


@pytest.mark.slow
def test_limits_are_of_the_weights():
  """Statistics of these examples are further away than any limit."""
  _, model, counts = after_two_rounds(
    fo.fed_avg(loss_fn, optax.sgd(1e-9)),
    max_update_norm=1e-3,
    max_update_action="clip",
  )
  assert_averaged(model)
  assert not counters.read(counts["clipped_clients"])


@pytest.mark.parametrize(
  "aggregator", [aggregators.median(), aggregators.multi_krum(1)]
)
@pytest.mark.default_cases("aggregator0")
def test_aggregators_keep_variances_non_negative(aggregator):
  """They combine the clients' own values, also of statistics."""
  algorithm = aggregators.with_aggregator(make("fed_avg"), aggregator)
  model = after_two_rounds(algorithm)[1]
  assert (model["norm"]["running_var"] > 1).all()  # Those of x are 9.


def test_privacy_refuses_them_unless_they_are_frozen():
  pytest.importorskip("jax_privacy")
  private = lambda loss: privacy.with_privacy(
    fo.fed_avg(loss, optax.sgd(0.1)), max_norm=1.0, noise_multiplier=1.0
  )
  sim = fo.Simulator(private(loss_fn), FIVE, batch_size=4)
  text = refusal(sim.init, PARAMS)
  assert text.startswith("privacy: 'norm' of the model has running statistics")
  frozen = fo.train_only(private, ["output"], loss_fn)
  assert fo.Simulator(frozen, FIVE, batch_size=4).init(PARAMS).round == 0


def test_fed_bn_keeps_scale_bias_and_statistics():
  run = lambda method: fo.simulate(method, PARAMS, DATA, rounds=3, **OPTIONS)
  sgd = optax.sgd(0.1)
  result = run(fo.fed_bn(loss_fn, sgd))
  state = result.client_state
  assert state["output"] is None
  assert set(state["norm"]) == set(PARAMS["norm"])
  for name, leaf in state["norm"].items():
    assert not np.allclose(leaf[0], leaf[1]), name
    np.testing.assert_array_equal(
      result.params["norm"][name], PARAMS["norm"][name]
    )
  personal = run(fo.fed_per(loss_fn, sgd, personal=["norm"]))
  chex.assert_trees_all_close(
    (personal.client_state, personal.params), (state, result.params), rtol=1e-5
  )
  weights = {"output": PARAMS["output"]}
  message = "fed_bn: the model has no running statistics"
  start = lambda: fo.fed_bn(loss_fn, sgd).init(weights)
  assert refusal(start).startswith(message)


def test_parts_with_running_statistics_are_found():
  params = {"a": {"norm": PARAMS["norm"], "w": 0.0}, "norm": PARAMS["norm"]}
  assert running_statistics.part_paths(params) == ["a/norm", "norm"]
  assert running_statistics.part_paths({"w": 0.0}) == []


def test_an_algorithm_that_refuses_them_may_freeze_them():
  algorithm = lambda loss: fo.minibatch_sgd(loss, 0.1)
  frozen = fo.train_only(algorithm, ["output"], loss_fn)
  fo.Simulator(frozen, FIVE, batch_size=4).init(PARAMS)
  trainable = fo.train_only(algorithm, ["output", "norm/running_mean"], loss_fn)
  with pytest.raises(ValueError, match="params: 'norm' has running statistics"):
    fo.Simulator(trainable, FIVE, batch_size=4).init(PARAMS)


def normalizing(params, batch, rng=None):
  """Squares of features that the batch normalizes, as in training. [B]"""
  x = batch["x"]
  return ((x - x.mean(0)) / x.std(0) @ params - batch["y"]) ** 2


def test_no_example_of_another_client_normalizes_a_clients_own():
  """Rows are filled up with the client's own, here to whole copies of them."""
  rng = np.random.default_rng(0)
  x, y = rng.normal(1, 2, (14, 3)).astype("f"), rng.normal(size=14).astype("f")
  x[0] = [30, -30, 30]  # The row of the pool that lists are filled up with.
  rows, params = [np.arange(12), np.arange(12, 14)], jnp.float32([1, -1, 0.5])
  data = fo.ClientData.from_partition({"x": x, "y": y}, rows)
  batches = [{"x": x[owned_rows], "y": y[owned_rows]} for owned_rows in rows]
  mean = lambda p, batch: normalizing(p, batch).mean()
  gradients = np.stack([jax.grad(mean)(params, batch) for batch in batches])
  options = {"batch_size": 4, "weighting": "uniform", "rounds": 1}
  # Whole gradients.
  algorithm = fo.scaffold(normalizing, 0.0, exact_control=True)
  result = fo.simulate(algorithm, params, data, **options)
  np.testing.assert_allclose(result.client_state, gradients, rtol=1e-4)
  # Local batches, of which one client's is half full.
  kept = data.indices, np.minimum(data.sizes, 4)
  fewer_data = dataclasses.replace(data, indices=kept[0], sizes=kept[1])
  result = fo.simulate(
    fo.fed_avg(normalizing, optax.sgd(0.1)), params, fewer_data, **options
  )
  first_batch = {name: values[:4] for name, values in batches[0].items()}
  steps = [jax.grad(mean)(params, batch) for batch in (first_batch, batches[1])]
  expected = params - 0.1 * (steps[0] + steps[1]) / 2
  np.testing.assert_allclose(result.params, expected, rtol=1e-4)
  # Metrics.
  metrics = fo.evaluate_clients(
    params, lambda p, batch: {"loss": normalizing(p, batch)}, data, train=data,
    loss_fn=normalizing, client=optax.sgd(0.1), local_steps=0,
  ).values  # fmt: skip
  losses = [mean(params, batch) for batch in batches]
  for kind in ("global", "personalized"):
    np.testing.assert_allclose(metrics[kind]["loss"], losses, rtol=1e-5)


# Of models of one's own they follow the batches, as flax has them.


class Net(linen.Module):
  """Normalizes its input, so that the statistics depend on the batch alone."""

  @linen.compact
  def __call__(self, x, train):
    x = linen.BatchNorm(use_running_average=not train, momentum=0.9)(x)
    return linen.Dense(3)(x)


NET = Net()
CLIENTS = np.arange(24) // 8  # Three of 8 examples each.
CLASSES = RNG.integers(0, 3, 24)
INPUTS = RNG.normal(2, 3, (24, 5)).astype(np.float32)
VARIABLES = NET.init(jax.random.key(0), jnp.zeros((1, 5)), False)


def loss_of_net(variables, batch, rng):
  logits, new = NET.apply(variables, batch["x"], True, mutable=["batch_stats"])
  return fo.objectives.with_statistics(
    optax.softmax_cross_entropy_with_integer_labels(logits, batch["y"]),
    variables["batch_stats"],
    new["batch_stats"],
  )


@pytest.mark.parametrize("client", [optax.sgd(0.1), fo.delta_sgd()])
@pytest.mark.default_cases("client0")
def test_they_are_the_mean_of_the_clients_moving_averages(client):
  data = fo.ClientData.from_client_ids({"x": INPUTS, "y": CLASSES}, CLIENTS)
  result = fo.simulate(
    fo.fed_avg(loss_of_net, client),
    VARIABLES,
    data,
    rounds=2,
    batch_size=8,
    local_steps=3,
  )
  mean, var = np.zeros(5), np.ones(5)
  of_clients = [INPUTS[client == CLIENTS].astype(float) for client in range(3)]
  for _ in range(2):
    means, variances = [], []
    for x in of_clients:
      own_mean, own_var = mean, var
      for _ in range(3):
        own_mean = 0.9 * own_mean + 0.1 * x.mean(0)
        own_var = 0.9 * own_var + 0.1 * x.var(0)
      means.append(own_mean)
      variances.append(own_var)
    mean, var = np.mean(means, 0), np.mean(variances, 0)
  (found,) = result.params["batch_stats"].values()
  np.testing.assert_allclose(found["mean"], mean, rtol=1e-5)
  np.testing.assert_allclose(found["var"], var, rtol=1e-5)
