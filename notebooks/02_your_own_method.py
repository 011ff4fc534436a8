# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Your own method
#
# This notebook writes a client rule in plain optax, and an algorithm whose
# clients keep a state between rounds. It checks both against a plain loop, and
# compares them with two methods of the package.
#
# [![Open In Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/fedjax-opt/fedjax_opt/blob/main/notebooks/02_your_own_method.ipynb)

# %%
# Installs the package on Colab, or where a wheel of it is in this folder.
import os
import pathlib
import subprocess
import sys

REPOSITORY = "https://github.com/fedjax-opt/fedjax_opt"
source = os.environ.get("FEDJAX_OPT_SOURCE")  # Goes before both.
for wheel in sorted(pathlib.Path().glob("fedjax_opt-*.whl")):
  source = source or f"./{wheel}[run]"
if "google.colab" in sys.modules:
  source = source or f"fedjax_opt[run] @ git+{REPOSITORY}"
if source:
  command = [sys.executable, "-m", "pip", "install", "-q", source]
  if subprocess.run(command).returncode:
    raise SystemExit(
      f"{source} cannot be installed. As long as {REPOSITORY} is not public, "
      "run `pip wheel --no-deps .` in a clone of it, and upload the wheel to "
      "the folder of this notebook, /content on Colab."
    )

# %%
import jax

on_accelerator = (
  jax.default_backend() != "cpu"
  or os.environ.get("FEDJAX_OPT_NOTEBOOK_SIZES") == "accelerator"
)
print(f"{jax.device_count()} x {jax.devices()[0].device_kind}")
if on_accelerator:
  num_clients, cohort_size, rounds, eval_every = 200, 20, 300, 20
  rates, own_rates = [0.01, 0.03, 0.1, 0.3, 1.0, 3.0], [0.1, 0.3, 1.0]
  seeds, report_seeds = [0, 1, 2], list(range(3, 13))
  hidden = (100,)
else:
  num_clients, cohort_size, rounds, eval_every = 100, 10, 60, 10
  rates, own_rates = [0.03, 0.1, 0.3, 1.0], [0.3, 1.0]
  seeds, report_seeds = [0, 1, 2], [3, 4, 5, 6, 7]
  hidden = (32,)

# %%
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

import fedjax_opt as fo

# %% [markdown]
# ## A client rule
#
# A rule is an optax transformation, and knows nothing of federation.
# AdaGrad-Norm ([Ward et al., 2019](https://arxiv.org/abs/1806.01811)) divides
# the rate by the root of the sum of all squared gradient norms:
#
# $$b_k^2 = b_{k-1}^2 + \|g_k\|^2, \qquad x_{k+1} = x_k - \frac{\eta}{b_k} g_k$$


# %%
class AdaGradNormState(NamedTuple):
  sum_of_squares: jax.Array  # [], b_k^2


def adagrad_norm(learning_rate, b0=0.1):
  def init(params):
    del params
    return AdaGradNormState(jnp.float32(b0**2))

  def update(grads, state, params=None):
    del params
    total = state.sum_of_squares + optax.tree.norm(grads, squared=True)
    step_size = learning_rate / jnp.sqrt(total)
    return optax.tree.scale(-step_size, grads), AdaGradNormState(total)

  return optax.GradientTransformation(init, update)


# %% [markdown]
# The rule works in any training loop. On this quadratic function gradient
# descent diverges at rates above 0.2, where AdaGrad-Norm still converges. At
# smaller rates gradient descent is better:


# %%
def quadratic(x):
  return jnp.sum(jnp.array([1.0, 10.0]) * x**2) / 2


def last_value(make_rule, rate):
  rule = make_rule(rate)

  def step(carry, _):
    x, state = carry
    updates, state = rule.update(jax.grad(quadratic)(x), state)
    return (optax.apply_updates(x, updates), state), None

  x = jnp.ones(2)
  (x, _), _ = jax.lax.scan(step, (x, rule.init(x)), length=100)
  return quadratic(x)


tried = jnp.geomspace(0.01, 10, 60)
with fo.plots.figure(1, scale=(1.28, 1)) as (figure, axes):
  panel = axes[0, 0]
  rules = {"AdaGrad-Norm": adagrad_norm, "SGD": optax.sgd}
  looks = fo.plots.method_styles(rules)
  for label, rule in rules.items():
    values = jax.vmap(lambda rate, rule=rule: last_value(rule, rate))(tried)
    style = {"color": looks[label].color, "marker": looks[label].marker}
    panel.loglog(tried, values, label=label, ms=4, markevery=8, **style)
  start = quadratic(jnp.ones(2))
  panel.axhline(start, color="#888888", ls=":", label="start")
  panel.set(ylim=(1e-12, 1e3), xlabel="Learning rate")
  panel.set_ylabel("Function value after 100 steps")
  panel.legend(loc="center right")
figure

# %% [markdown]
# ## An algorithm
#
# FedDyn ([Acar et al., 2021](https://arxiv.org/abs/2111.04263)) corrects the
# losses of the clients, so that in the end all of them have the same minimum.
# Client $i$ keeps a vector $g_i$, and takes its local steps on
#
# $$f_i(x) - \langle g_i, x \rangle + \frac{\alpha}{2} \|x - x_t\|^2.$$
#
# where $x_t$ is the server's model. These steps end at $y_i$. Then
# $g_i \leftarrow g_i - \alpha (y_i - x_t)$. The server keeps $h$, the mean of
# the $g_i$ of all clients. It moves to the mean of the $y_i$, minus
# $h / \alpha$.
#
# The code is written for *one* client. The client reads its state as
# `worker.state`, and returns the new state in a `ClientOutput`. `init_client`
# makes the initial state. `reply.cohort_share` is the weight of the cohort, as
# a fraction of the weight of all clients.


# %%
def fed_dyn(loss_fn, client, alpha):
  tree = optax.tree

  def one_client(worker, received):
    def local_loss(params, batch, rng):  # [B]
      away = tree.norm(tree.sub(params, received), squared=True)
      terms = alpha / 2 * away - tree.vdot(worker.state, params)
      return loss_fn(params, batch, rng) + terms

    params = worker.descend(local_loss, client, received)
    moved = tree.sub(params, received)
    kept = tree.add_scale(worker.state, -alpha, moved)
    return fo.ClientOutput(
      message=moved, state=kept, metrics={"kept": tree.norm(kept)}
    )

  def round(state, cohort):
    params, h = state
    reply = cohort.mean(one_client, broadcast=params)
    h = tree.add_scale(h, -alpha * reply.cohort_share, reply.value)
    params = tree.add(params, reply.value)
    return (tree.add_scale(params, -1 / alpha, h), h), reply

  return fo.Algorithm(
    init=lambda params: (params, tree.zeros_like(params)),
    round=round,
    params=lambda state: state[0],
    init_client=tree.zeros_like,
  )


# %% [markdown]
# ## Data and model


# %%
def load():
  """Training and test examples: images [N, height, width, 1] of ten digits."""
  # 8 x 8 pixels; they come with sklearn.
  train, test = fo.datasets.embedded.digits()
  if on_accelerator:
    try:
      return [
        fo.datasets.tfds.load("mnist", split) for split in ("train", "test")
      ]
    except ValueError as error:
      print(f"MNIST cannot be had, small digits are enlarged instead ({error})")
    grow = lambda x: np.pad(
      x.repeat(3, 1).repeat(3, 2), ((0, 0), *[(2, 2)] * 2, (0, 0))
    )
    train, test = ({**part, "x": grow(part["x"])} for part in (train, test))
  return train, test


train, test = load()
scale = train["x"].max()
train, validation = fo.data.hold_out(train, fraction=0.1)


def clients(seed, dirichlet):
  rows = fo.partition.dirichlet(
    train["y"], num_clients, dirichlet, examples_per_client=80, seed=seed
  )
  return fo.ClientData.from_partition(train, rows, keep_pool=True)


model = fo.models.MLP(hidden=hidden, num_classes=10)


def init(key):
  return model.init(key, jnp.zeros((1, *train["x"].shape[1:])))["params"]


def logits(params, batch):
  return model.apply({"params": params}, batch["x"] / scale)


def loss_fn(params, batch, rng):  # [B]
  cross_entropy = optax.softmax_cross_entropy_with_integer_labels
  return cross_entropy(logits(params, batch), batch["y"])


def per_example(params, batch):  # {name: [B]}
  right = logits(params, batch).argmax(-1) == batch["y"]
  return {"loss": loss_fn(params, batch, None), "accuracy": right * 1.0}


# %% [markdown]
# ## Checked against a plain loop
#
# The same method is written once more, as plain loops over rounds, clients and
# steps, in NumPy, with JAX only for the gradient. Nothing is random: clients
# take part in turn, and each step uses all examples of its client. So one test
# checks rule and algorithm together.

# %%
alpha, rate, b0, local_steps, checked_rounds = 0.1, 0.05, 0.1, 3, 30
data = clients(0, dirichlet=0.3)
params = init(jax.random.key(0))
x, unflatten = ravel_pytree(params)
pool = {name: np.asarray(leaf) for name, leaf in data.examples.items()}
indices = np.asarray(data.indices)


@jax.jit
def gradient(x, batch):
  mean_loss = lambda x: loss_fn(unflatten(x), batch, None).mean()
  return jax.grad(mean_loss)(x)


def cohort_of(round):
  return (round * cohort_size + np.arange(cohort_size)) % num_clients


x = np.asarray(x, np.float64)
h, g = np.zeros_like(x), np.zeros((num_clients, x.size))
expected = []
for round in range(checked_rounds):
  moved = []
  for i in cohort_of(round):
    batch = {name: leaf[indices[i]] for name, leaf in pool.items()}
    y, total = x, b0**2
    for _ in range(local_steps):
      grad = np.asarray(gradient(y, batch), np.float64)
      grad = grad - g[i] + alpha * (y - x)
      total += grad @ grad
      y = y - rate / np.sqrt(total) * grad
    g[i] -= alpha * (y - x)
    moved.append(y - x)
  h -= alpha * cohort_size / num_clients * np.mean(moved, axis=0)
  x = x + np.mean(moved, axis=0) - h / alpha
  expected.append(x)

# %% [markdown]
# A `Simulator` runs the algorithm round by round. The loops compute in float64,
# except for the gradients, and the simulator in float32. So small differences
# are rounding errors.

# %%
simulator = fo.Simulator(
  fed_dyn(loss_fn, adagrad_norm(rate, b0), alpha),
  data,
  sampler=lambda key, round: (
    (round * cohort_size + jnp.arange(cohort_size)) % num_clients
  ),
  cohort_size=cohort_size,
  batch_size=80,
  local_steps=local_steps,
)


def difference(tree, expected):
  found = ravel_pytree(tree)[0]
  return np.abs(found - expected).max() / np.abs(expected).max()


state = simulator.init(params)
differences = []
for expected_x in expected:
  state, _ = simulator.run(state, rounds=1)
  differences.append(difference(simulator.params(state), expected_x))
kept = jax.vmap(lambda tree: ravel_pytree(tree)[0])(state.client_state)
print(f"largest relative difference of the model: {max(differences):.1e}")
print(f"of what the clients keep: {difference(kept, g.ravel()):.1e}")
assert max(differences) < 1e-4

spacing = np.finfo(np.float32).eps
with fo.plots.figure(1, scale=(1.28, 0.9)) as (figure, axes):
  panel = axes[0, 0]
  panel.semilogy(np.arange(1, checked_rounds + 1), differences, "o-", ms=3)
  panel.axhline(spacing, color="#888888", ls=":")
  label = dict(va="top", ha="right")
  panel.text(checked_rounds, 0.9 * spacing, "spacing of float32", **label)
  panel.set(xlabel="Communication round", ylabel="Relative difference")
  panel.set_ylim(1e-8, 1e-5)
figure

# %% [markdown]
# ## Compared with two baselines
#
# `fo.compare` tunes all methods alike, by their accuracy on validation
# examples, and runs the best setting of each again with fresh seeds. The
# conditions are two partitions: clients differ more at α = 0.1 than at α = 1.
# All methods try the same number of settings.

# %%
methods = {
  "FedAvg": fo.Method(
    lambda learning_rate: fo.fed_avg(loss_fn, optax.sgd(learning_rate)),
    {"learning_rate": rates},
  ),
  "SCAFFOLD": fo.Method(
    lambda learning_rate: fo.scaffold(loss_fn, learning_rate),
    {"learning_rate": rates},
  ),
  "FedDyn, AdaGrad-Norm": fo.Method(
    lambda learning_rate, alpha: fed_dyn(
      loss_fn, adagrad_norm(learning_rate), alpha
    ),
    {"learning_rate": own_rates, "alpha": [0.03, 0.1]},
  ),
}
study = fo.compare(
  methods,
  init,
  clients,
  conditions=[{"dirichlet": 1.0}, {"dirichlet": 0.1}],
  rounds=rounds,
  seeds=seeds,
  report_seeds=report_seeds,
  validation=validation,
  test=test,
  title="FedDyn with AdaGrad-Norm",
  cohort_size=cohort_size,
  batch_size=16,
  local_steps=5,
  evaluate=fo.evaluation.federated(per_example),
  eval_every=eval_every,
)
study

# %%
study.plot("learning_curves")

# %% [markdown]
# `study.write("report")` writes the whole report, with more pictures and all
# settings that were tried.
#
# ## Try next
#
# - Let clients of `fed_dyn` send only the largest entries of `moved`, and give
#   their bytes as `bytes_up=`. Then the study shows accuracy against bytes.
# - Check with `local_steps=10` or another model. Then put an error into the
#   algorithm, and see how large the difference becomes.
# - Give `fed_dyn` the rule `fo.delta_sgd()`, which has no rate to tune
#   ([Δ-SGD](03_delta_sgd.ipynb)), or compare with intervals and bytes to a
#   target ([A fair comparison](06_fair_comparison.ipynb)).
#
# The [documentation](https://fedjax-opt.github.io/fedjax_opt) lists everything
# that a client can return, and other ways to call the clients than
# `cohort.mean`.
