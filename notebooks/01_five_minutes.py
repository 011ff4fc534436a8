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
# as one compiled program. The best rate is chosen on validation examples.
#
# [![Open In Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/fedjax-opt/fedjax_opt/blob/main/notebooks/01_five_minutes.ipynb)

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
  num_clients, cohort_size, rounds, eval_every = 1000, 50, 200, 10
  rates = [0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 1.0, 3.0]
  seeds = list(range(10))
  hidden = (200, 200)
else:
  num_clients, cohort_size, rounds, eval_every = 100, 10, 100, 10
  rates = [0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0]
  seeds = [0, 1, 2, 3, 4]
  hidden = (64,)
batch_size, local_steps = 16, 5

# %%
import jax.numpy as jnp
import numpy as np
import optax

import fedjax_opt as fo

# %% [markdown]
# ## Clients
#
# All examples are stored once. A partition says which examples each client has.
# Here the classes of a client are drawn from a Dirichlet distribution, so each
# client has few classes. A tenth of the training examples is held out for
# validation before clients get the rest. Each seed has its own partition.


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
# A loss function returns the loss of each example, not their mean. The learning
# rate is an input of the compiled program. So all rates and seeds share one
# compilation, and their rounds are computed together.

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


options = dict(
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
  **options,
)
points = fo.grid_points(grid, seeds)
result

# %% [markdown]
# Each line is the mean over the seeds of one rate; its band reaches from the
# lowest to the highest seed.

# %%
fo.plots.curves(
  result.history, points, None, panels=["train_loss", "validation_accuracy"]
)

# %% [markdown]
# ## What a grid costs
#
# The table that the next cell prints has three lines: one point alone, one
# point with another rate, and the whole grid from above. The second point is
# traced again, which takes a moment, but compiles nothing, because the rate is
# an input of the program. All three run the same number of rounds, and evaluate
# equally often.


# %%
def one_point(rate):
  return fo.sweep(
    make,
    {"learning_rate": [rate]},
    init,
    clients,
    rounds=rounds,
    seeds=seeds[:1],
    validation=validation,
    test=test,
    **options,
  )


runs = {
  "one point": one_point(rates[0]),
  "another one": one_point(rates[1]),
  f"all {len(points)} points": result,
}
print(f"{'':14}{'compilation':>12}{'run':>10}{'for each point':>16}")
for name, each in runs.items():
  count = len(points) if each is result else 1
  total = each.compile_seconds + each.run_seconds
  print(
    f"{name:14}{each.compile_seconds:10.2f} s{each.run_seconds:8.2f} s"
    f"{total / count:14.2f} s"
  )

compiled = [each.compile_seconds for each in runs.values()]
run = [each.run_seconds for each in runs.values()]
with fo.plots.figure(1, scale=(1.28, 0.6)) as (figure, axes):
  panel = axes[0, 0]
  panel.barh(list(runs), compiled, color="#BBBBBB", label="compilation")
  panel.barh(list(runs), run, left=compiled, color="#0072B2", label="run")
  panel.invert_yaxis()
  panel.set_xlabel("Seconds")
  figure.legend(loc="outside lower center", ncols=2)
figure

# %% [markdown]
# ## Choose a rate
#
# The best rate has the highest mean accuracy on the *validation* examples. We
# look at the accuracy on the *test* examples only for this rate.

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
#   own step sizes, so the grid needs no rates
#   ([Δ-SGD](03_delta_sgd.ipynb)).
# - Give `fo.fed_avg` a `server=optax.adam(server_rate)` and tune both rates:
#   `grid = {"learning_rate": rates, "server_rate": [0.001, 0.01, 0.1]}`.
# - Write your own method, and check it ([Your own
#   method](02_your_own_method.ipynb)).
#
# The [documentation](https://fedjax-opt.github.io/fedjax_opt) lists all
# settings of a run.
