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
# # Five minutes
#
# A grid of learning rates and seeds, each with all its clients and rounds, runs
# as one compiled program. A loop in Python runs beside it, and the best rate is
# chosen on validation examples.
#
# [![Open In Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/fedjax-opt/fedjax_opt/blob/main/notebooks/01_five_minutes.ipynb)

# %%
# Installs the package on Colab, or from $FEDJAX_OPT_SOURCE where that is set.
import os
import subprocess
import sys

source = os.environ.get("FEDJAX_OPT_SOURCE")
if "google.colab" in sys.modules and source is None:
  source = "fedjax_opt[run] @ git+https://github.com/fedjax-opt/fedjax_opt"
if source:
  command = [sys.executable, "-m", "pip", "install", "-q", source]
  subprocess.run(command, check=True)

# %%
import jax

on_accelerator = (
  jax.default_backend() != "cpu"
  or os.environ.get("FEDJAX_OPT_NOTEBOOK_SIZES") == "accelerator"
)
print(f"{jax.device_count()} x {jax.devices()[0].device_kind}")
if on_accelerator:
  num_clients, cohort_size, rounds, eval_every = 1000, 50, 200, 10
  rates = [0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 1.0, 3.0]
  seeds = list(range(10))
  loop_rates = rates[4:5]  # The Python loop is slow: it runs a part.
  hidden = (200, 200)
else:
  num_clients, cohort_size, rounds, eval_every = 100, 10, 100, 10
  rates = [0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0]
  seeds = [0, 1, 2, 3, 4]
  loop_rates = rates
  hidden = (64,)
batch_size, local_steps = 16, 5

# %%
import time

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax

import fedjax_opt as fo

# %% [markdown]
# ## Clients
#
# All examples are stored once. A partition says which of them a client has:
# here its classes are drawn from a Dirichlet distribution, so that each client
# has few of them. A tenth of the training examples is held out for validation
# before they come to clients. Each seed has a partition of its own.


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


def clients(seed):
  rows = fo.partition.dirichlet(
    train["y"], num_clients, alpha=0.3, examples_per_client=80, seed=seed
  )
  return fo.ClientData.from_partition(train, rows, keep_pool=True)


fo.plots.label_histogram(
  clients(0).label_counts(10)[:40], None, title="The first 40 clients"
)

# %% [markdown]
# ## A grid is one program
#
# A loss function returns the loss of each example. The learning rate is a
# traced value: all rates and seeds share one compilation, and their rounds are
# computed together.

# %%
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


settings = dict(
  cohort_size=cohort_size,
  batch_size=batch_size,
  local_steps=local_steps,
  evaluate=fo.evaluation.federated(per_example),
  eval_every=eval_every,
)


def make(learning_rate):
  return fo.fed_avg(loss_fn, client=optax.sgd(learning_rate))


grid = {"learning_rate": rates}
result = fo.sweep(
  make,
  grid,
  init,
  clients,
  rounds=rounds,
  seeds=seeds,
  validation=validation,
  test=test,
  progress=True,
  **settings,
)
points = fo.grid_points(grid, seeds)
result

# %% [markdown]
# A line is the mean over the seeds of a rate; its band reaches from the lowest
# to the highest seed.

# %%
fo.plots.curves(
  result.history, points, None, panels=["train_loss", "validation_accuracy"]
)

# %% [markdown]
# ## The same in a Python loop
#
# Two loops over rounds and clients, as they are often written: in the first one
# a local step is a compiled function, in the second one all local steps of a
# client are. Both keep the examples on the device, and take as many steps on as
# many examples as the program above, evaluated as often. A first round is timed
# apart, as it compiles. The loops run one seed; their time is multiplied by
# what the rest of the grid would take, which is the same work again.


# %%
@jax.jit
def step(params, rate, pool, rows):
  batch = jax.tree.map(lambda leaf: leaf[rows], pool)
  mean_loss = lambda params: loss_fn(params, batch, None).mean()
  grads = jax.grad(mean_loss)(params)
  return jax.tree.map(lambda x, g: x - rate * g, params, grads)


def step_by_step(params, rate, pool, rows):
  for rows_of_step in rows:
    params = step(params, rate, pool, rows_of_step)
  return params


@jax.jit
def client_by_client(params, rate, pool, rows):
  one = lambda params, rows: (step(params, rate, pool, rows), None)
  return jax.lax.scan(one, params, rows)[0]


@jax.jit
def average(all_params):
  return jax.tree.map(lambda *leaves: sum(leaves) / len(leaves), *all_params)


measure = jax.jit(settings["evaluate"])
seed = seeds[0]
data, on_validation, on_test = jax.device_put((clients(seed), validation, test))
indices = np.asarray(data.indices)  # [clients, examples], rows of the pool
start = jax.jit(init)(jax.random.key(seed))


def python_loop(local, rate, rounds):
  """FedAvg; returns the metrics after the last round."""
  rng = np.random.default_rng(seed)
  params, shape = start, (local_steps, batch_size)
  metrics = [measure(params, data, on_test, on_validation)]
  for round in range(1, rounds + 1):
    all_params = []
    for m in rng.choice(num_clients, cohort_size, replace=False):
      rows = rng.permutation(indices[m])[: local_steps * batch_size]
      all_params.append(local(params, rate, data.examples, rows.reshape(shape)))
    params = average(all_params)
    if round % eval_every == 0:
      metrics.append(measure(params, data, on_test, on_validation))
  return jax.device_get(metrics)[-1]


share = len(loop_rates) / len(points)
seconds = {}  # name -> (compilation, run)
accuracy = {}  # name -> [rates], of one seed
for name, local in {
  "loop, compiled step": step_by_step,
  "loop, compiled client": client_by_client,
}.items():
  times = [time.perf_counter()]
  python_loop(local, rates[0], rounds=1)
  times.append(time.perf_counter())
  ends = [python_loop(local, rate, rounds) for rate in loop_rates]
  times.append(time.perf_counter())
  compiled, run = np.diff(times)
  seconds[name] = (compiled, run / share)
  accuracy[name] = [end["test_accuracy"] for end in ends]

same = [rate in loop_rates and s == seed for rate in rates for s in seeds]
accuracy["fo.sweep"] = result.history.metrics["test_accuracy"][same, -1]
seconds["fo.sweep"] = (result.compile_seconds, result.run_seconds)

# %%
print(f"{len(points)} points, {rounds} rounds, {cohort_size} clients in each")
print(f"(the loops ran {share:.0%} of the points; times are of all of them)")
print(f"{'':22}{'compilation':>12}{'run':>10}{'run, relative':>15}")
for name, (compiled, run) in seconds.items():
  relative = run / seconds["fo.sweep"][1]
  print(f"{name:22}{compiled:10.2f} s{run:8.2f} s{relative:15.1f}")
for name, (compiled, run) in list(seconds.items())[:-1]:
  gain = (run - seconds["fo.sweep"][1]) / len(points)  # For each point.
  least = max(1, np.ceil((seconds["fo.sweep"][0] - compiled) / gain))
  if gain > 0:
    print(f"fo.sweep takes less than the {name} from {least:.0f} points on")
for name, values in accuracy.items():
  print(f"{name}: mean test accuracy {np.mean(values):.3f}")

figure, axes = plt.subplots(figsize=(6.4, 1.9), layout="constrained")
compiled, run = np.array(list(seconds.values())).T
axes.barh(list(seconds), compiled, color="#BBBBBB", label="compilation")
axes.barh(list(seconds), run, left=compiled, color="#0072B2", label="run")
axes.set_xlabel("Seconds for the whole grid")
axes.spines[["top", "right"]].set_visible(False)
axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
plt.show()

# %% [markdown]
# Compilation is paid once; with more rates, seeds or rounds only the run grows.
# The loops draw other cohorts and batches, and a mean over rates of which some
# are too large differs by a few points.
#
# ## Choose a rate
#
# The best rate has the highest mean accuracy on the *validation* examples. Its
# accuracy on the test examples is looked at once, afterwards.

# %%
history = result.history


def last(metric):  # [rates, seeds]
  return history.values(metric)[:, -1].reshape(len(rates), len(seeds))


scores = last("validation_accuracy").mean(axis=1)  # NaN if a seed diverged.
best = int(np.nanargmax(scores))
on_test = last("test_accuracy")[best]
mean, low, high = fo.statistics.mean_interval(on_test)
print(f"best rate: {rates[best]:g}")
print(f"test accuracy: {mean:.3f} (95 % interval {low:.3f} to {high:.3f})")

fo.plots.sensitivity(
  {"FedAvg": (np.array(rates), last("validation_accuracy").T)},
  None,
  metric="validation_accuracy",
  x_name="learning_rate",
  chosen={"FedAvg": rates[best]},
  interval="mean and range of the seeds; the ring is the choice",
)

# %% [markdown]
# ## Try next
#
# - Put `fo.delta_sgd()` in place of `optax.sgd(learning_rate)`: it finds its
#   own step sizes, so that the grid needs no rates
#   ([Delta-SGD](03_delta_sgd.ipynb)).
# - Give `fo.fed_avg` a `server=optax.adam(server_rate)` and tune both rates:
#   `grid = {"learning_rate": rates, "server_rate": [0.001, 0.01, 0.1]}`.
# - Write a method of your own, and check it
#   ([Your own method](02_your_own_method.ipynb)).
#
# The [documentation](https://fedjax-opt.github.io/fedjax_opt) lists all
# settings of a run.
