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
from fedjax_opt.rules import RULES
from fedjax_opt.transforms import aggregators
from tests.helpers import jax_problems

pytestmark = pytest.mark.skipif(
  os.environ.get("FEDJAX_OPT_LOWER") != "1",
  reason="takes two minutes; asked for by FEDJAX_OPT_LOWER=1",
)
PLATFORMS = ("tpu", "cuda")
TASK = jax_problems.softmax()
SETTINGS = {"cohort_size": 3, "batch_size": 4, "local_epochs": 1.5}
SGD = optax.sgd(0.1)
# What would wait for the host in the middle of a program.
HOST = re.compile(r"callback|infeed|outfeed|send_to_host|recv_from_host")


def lowered(algorithm, **settings):
  """The text of each program of a run, for all platforms."""
  simulator = fo.Simulator(algorithm, TASK.data, **SETTINGS | settings)
  return {
    name: traced.lower(lowering_platforms=PLATFORMS).as_text()
    for name, traced in simulator.trace(TASK.params).items()
  }


def check(texts, num_donated):
  """Nothing waits for the host, and there is one copy of the state."""
  assert not any(HOST.search(text) for text in texts.values())
  (head,) = re.findall(
    r"func.func public @main\((.*?)\) ->", texts["rounds"], re.S
  )
  reused = re.findall(r"tf.aliasing_output|jax.buffer_donor", head)
  assert len(reused) == num_donated


@pytest.mark.parametrize(
  "name", sorted(set(ALGORITHMS) - jax_problems.OF_OTHER_MODELS)
)
def test_algorithms(name):
  psi, num_clients = prox.kernels(prox.l1(1e-3)), TASK.data.num_clients
  algorithm = TASK.algorithm(name, client=SGD, rate=0.1, psi=psi)
  cohort = num_clients if ALGORITHMS[name].cohort == "all" else 3
  texts = lowered(algorithm, cohort_size=cohort)
  params = jax.tree.map(np.float32, TASK.params)
  state = jax.eval_shape(lambda: algorithm.init(params))
  if algorithm.init_client is not None:
    state = state, jax.eval_shape(lambda: algorithm.init_client(params))
  check(texts, len(jax.tree.leaves(state)))


@pytest.mark.parametrize("name", RULES)
def test_client_rules(name):
  numbers = {p.name: p.default for p in RULES[name].hyperparameters}
  values = {name: x for name, x in numbers.items() if x is not None}
  algorithm = fo.fed_avg(TASK.loss_fn, RULES[name].factory(**values))
  check(lowered(algorithm), len(jax.tree.leaves(TASK.params)))


@pytest.mark.parametrize(
  "settings",
  [
    {"upload": transforms.top_k(0.3)},
    {"upload": transforms.quantize(3)},
    {"aggregator": aggregators.multi_krum(0), "weighting": "uniform"},
    {"client_dropout": 0.3, "client_map": "scan", "max_update_norm": 1.0},
    {"precision": "bfloat16", "client_chunk": 2},
    {"sampler": fo.samplers.poisson(2.0)},
    {"evaluate": fo.evaluation.federated(TASK.per_example)},
  ],
  ids=lambda settings: next(iter(settings)),
)
def test_settings(settings):
  algorithm = fo.fed_avg(TASK.loss_fn, SGD)
  texts = lowered(algorithm, **settings)
  assert ("evaluation" in texts) == ("evaluate" in settings)
  check(texts, 2)


@pytest.mark.parametrize("name", images.MODELS)
def test_models(name):
  """The gradient of a batch of small images, as in a local step."""
  side = max(8, images.MODELS[name].least_side)
  dataset = images.DATASETS["digits"]._replace(side=side)
  x = np.zeros((3, side, side, 1), np.uint8)
  examples = {"x": x, "y": np.zeros(3, np.int32)}
  task = images.classification(
    images.model_of(name, dataset), dataset, examples, examples
  )
  params = jax.eval_shape(task.init, jax.random.key(0))

  def step(params, batch):
    loss = lambda params: task.loss_fn(params, batch, jax.random.key(0)).sum()
    return jax.value_and_grad(loss)(params)

  traced = jax.jit(step).trace(params, examples)
  text = traced.lower(lowering_platforms=PLATFORMS).as_text()
  assert not HOST.search(text)


def test_privacy():
  algorithm = privacy.with_privacy(fo.fed_avg(TASK.loss_fn, SGD), 1.0, 1.0)
  check(lowered(algorithm), 2)
