"""Every algorithm, rule and model, lowered for TPU and CUDA; none is run.

With FEDJAX_OPT_LOWER=1, because it takes two minutes.
"""

import os
import re

import jax
import numpy as np
import optax
import pytest

import fedjax_opt as fo
from experiments.tasks import images
from fedjax_opt import privacy, prox, transforms
from fedjax_opt.algorithms import ALGORITHMS
from fedjax_opt.engine import programs as kept
from fedjax_opt.rules import RULES
from fedjax_opt.transforms import aggregators
from tests import jax_problems
from tests.notebook_programs import PLATFORMS, Programs

pytestmark = pytest.mark.skipif(
  os.environ.get("FEDJAX_OPT_LOWER") != "1",
  reason="takes two minutes; asked for by FEDJAX_OPT_LOWER=1",
)
TASK = jax_problems.softmax()
SETTINGS = {"cohort_size": 3, "batch_size": 4, "local_epochs": 1.5}
SGD = optax.sgd(0.1)
# What would wait for the host in the middle of a program.
HOST = re.compile(r"callback|infeed|outfeed|send_to_host|recv_from_host")


@pytest.fixture
def lower(monkeypatch):
  """`(function) -> {name: Program}`, of all that the function compiles."""

  def of(function):
    programs = Programs()
    kept.clear()
    monkeypatch.setattr(jax, "jit", programs.jit)
    try:
      function()
    finally:
      monkeypatch.undo()
      kept.clear()  # They have no results.
    return {program.name: program for program in programs.lowered}

  return of


def run(algorithm, **settings):
  fo.simulate(
    algorithm,
    TASK.params,
    TASK.data,
    rounds=4,
    evaluate=fo.evaluation.federated(per_example),
    **SETTINGS | settings,
  )


def per_example(params, batch):
  return {"loss": TASK.loss_fn(params, batch, None)}


def check(found, num_donated):
  """Both platforms, nothing that waits for the host, one copy of the state."""
  assert {"rounds", "evaluation"} <= set(found)
  for program in found.values():
    assert program.exported.platforms == PLATFORMS
    assert not HOST.search(program.exported.mlir_module())
  text = found["rounds"].exported.mlir_module()
  (head,) = re.findall(r"func.func public @main\((.*?)\) ->", text, re.S)
  reused = re.findall(r"tf.aliasing_output|jax.buffer_donor", head)
  assert len(reused) == num_donated


@pytest.mark.parametrize(
  "name", sorted(set(ALGORITHMS) - jax_problems.OF_OTHER_MODELS)
)
def test_algorithms(name, lower):
  psi, num_clients = prox.kernels(prox.l1(1e-3)), TASK.data.num_clients
  algorithm = TASK.algorithm(name, client=SGD, rate=0.1, psi=psi)
  cohort = num_clients if ALGORITHMS[name].cohort == "all" else 3
  found = lower(lambda: run(algorithm, cohort_size=cohort))
  params = jax.tree.map(np.float32, TASK.params)
  state = jax.eval_shape(lambda: algorithm.init(params, num_clients))
  if algorithm.init_client is not None:
    state = state, jax.eval_shape(lambda: algorithm.init_client(params))
  check(found, len(jax.tree.leaves(state)))


@pytest.mark.parametrize("name", RULES)
def test_client_rules(name, lower):
  numbers = {p.name: p.default for p in RULES[name].hyperparameters}
  given = {name: x for name, x in numbers.items() if x is not None}
  algorithm = fo.fed_avg(TASK.loss_fn, RULES[name].factory(**given))
  check(lower(lambda: run(algorithm)), len(jax.tree.leaves(TASK.params)))


@pytest.mark.parametrize(
  "settings",
  [
    {"upload": transforms.top_k(0.3)},
    {"upload": transforms.quantize(3)},
    {"aggregator": aggregators.multi_krum(0), "weighting": "uniform"},
    {"client_dropout": 0.3, "client_map": "scan", "max_update_norm": 1.0},
    {"precision": "bfloat16", "client_chunk": 2},
    {"sampler": fo.samplers.poisson(2.0)},
  ],
  ids=lambda settings: next(iter(settings)),
)
def test_settings(settings, lower):
  algorithm = fo.fed_avg(TASK.loss_fn, SGD)
  check(lower(lambda: run(algorithm, **settings)), 2)


@pytest.mark.parametrize("name", images.MODELS)
def test_models(name):
  """The gradient of a batch of small images, as in a local step."""
  side = max(8, images.MODELS[name].least_side)
  of = images.DATASETS["digits"]._replace(side=side)
  x = np.zeros((3, side, side, 1), np.uint8)
  examples = {"x": x, "y": np.zeros(3, np.int32)}
  task = images.classification(
    images.model_of(name, of), of, examples, examples
  )
  params = jax.eval_shape(task.init, jax.random.key(0))

  def step(params, batch):
    loss = lambda params: task.loss_fn(params, batch, jax.random.key(0)).sum()
    return jax.value_and_grad(loss)(params)

  exported = jax.export.export(jax.jit(step), platforms=PLATFORMS)(
    params, examples
  )
  assert exported.platforms == PLATFORMS
  assert not HOST.search(exported.mlir_module())


def test_privacy(lower):
  algorithm = privacy.with_privacy(fo.fed_avg(TASK.loss_fn, SGD), 1.0, 1.0)
  check(lower(lambda: run(algorithm)), 2)


def test_a_callback_is_found():
  """What the check is worth, where JAX itself does not refuse one."""
  program = jax.jit(lambda x: jax.pure_callback(lambda x: x, x, x))
  assert HOST.search(program.lower(np.ones(2, "f")).as_text())
