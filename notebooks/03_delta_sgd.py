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
# # Δ-SGD
#
# With Δ-SGD clients find their step sizes by themselves. This notebook
# shows how the step sizes adapt, and compares Δ-SGD with tuned SGD.
#
# [![Open In Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/fedjax-opt/fedjax_opt/blob/main/notebooks/03_delta_sgd.ipynb)

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
  num_clients, cohort_size, rounds, examples = 100, 10, 500, 500
  rates = [0.003, 0.01, 0.03, 0.1, 0.3, 1.0]
else:
  num_clients, cohort_size, rounds, examples = 100, 10, 80, 500
  rates = [0.03, 0.1, 0.3, 1.0, 3.0]
alphas = [1.0, 0.1, 0.01]
batch_size, eval_every = 64, rounds // 4
seeds, report_seeds = [0, 1, 2], [3, 4, 5, 6, 7]

# %%
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax

import fedjax_opt as fo

# %% [markdown]
# ## Clients whose labels differ
#
# Each client draws its examples with replacement from its own mixture of
# labels. The mixture is drawn from a Dirichlet distribution: the smaller α,
# the fewer labels a client has. A tenth of the training examples is held out
# for validation, before clients get the rest.


# %%
def load():
  """Training and test examples, images [N, height, width, 1] of ten classes."""
  # 8 x 8 pixels; they come with sklearn.
  train, test = fo.datasets.embedded.digits()
  if on_accelerator:
    try:
      names = ("train", "test")
      return [fo.datasets.tfds.load("fashion_mnist", name) for name in names]
    except ValueError as error:
      print(f"no Fashion-MNIST; small digits are enlarged instead ({error})")
    grow = lambda x: np.pad(
      x.repeat(3, 1).repeat(3, 2), ((0, 0), *[(2, 2)] * 2, (0, 0))
    )
    train, test = ({**part, "x": grow(part["x"])} for part in (train, test))
  return train, test


train, test = load()
scale = train["x"].max()
train, validation = fo.data.hold_out(train, fraction=0.1)


def clients(seed, alpha):
  rows = fo.partition.dirichlet(
    train["y"], num_clients, alpha, examples_per_client=examples, seed=seed
  )
  return fo.ClientData.from_partition(train, rows, keep_pool=True)


if on_accelerator:
  model = fo.models.CNN(num_classes=10, dropout=0.0)
else:
  model = fo.models.MLP(hidden=(64,), num_classes=10)


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
  evaluate=fo.evaluation.federated(per_example),
  eval_every=eval_every,
)

# %% [markdown]
# ## How a step size is found
#
# Δ-SGD (Kim et al., ICLR 2024) is SGD whose step size is the smaller of two
# numbers. If $x_k$ is the model of a client after $k$ local steps, and $g$ the
# gradient on the current batch,
#
# $$\eta_k = \min\left\{\frac{\gamma\,\|x_k - x_{k-1}\|}
# {2\,\|g(x_k) - g(x_{k-1})\|},\;
# \sqrt{1 + \delta\,\theta_{k-1}}\;\eta_{k-1}
# \right\}, \qquad \theta_k = \frac{\eta_k}{\eta_{k-1}}.$$
#
# The first number, the smoothness branch, is small if the gradient changes
# fast. The second, the growth branch, lets the step size rise by only a few
# percent in a step. In each round each client starts at $\eta_0$ again. The
# whole notebook uses the defaults below.

# %%
eta_0 = 0.2
delta_sgd = fo.delta_sgd(gamma=2.0, delta=0.1, eta_0=eta_0)  # The defaults.


def make_delta_sgd():
  return fo.fed_avg(loss_fn, client=delta_sgd)


branches = {
  "step_size": "step_size",
  "smoothness": "smoothness_step",
  "growth": "growth_step",
}
watched_alpha = alphas[1]
result = fo.simulate(
  make_delta_sgd(),
  init(jax.random.key(0)),
  clients(0, watched_alpha),
  rounds=rounds,
  test=test,
  trace=tuple(branches.values()),
  **{**options, "local_epochs": 4},
)
trace = {name: result.traces[field] for name, field in branches.items()}
num_rounds, num_in_cohort, num_steps = trace["step_size"].shape
print(f"{num_rounds} rounds, {num_in_cohort} clients, {num_steps} local steps")
result

# %% [markdown]
# `trace` names fields of the rule's state, which are recorded at each local
# step of each client. The first picture shows one client in the last round,
# with both branches. While the smoothness branch is the larger one, the step
# size grows slowly. As soon as it is the smaller one, it is the step size.

# %%
last_round = {name: values[-1, 0] for name, values in trace.items()}
fo.plots.step_sizes(last_round, None, title="One client, last round")

# %% [markdown]
# The next picture shows all clients of three rounds. In a panel all clients
# start from the same model; their examples differ.

# %%
shown_rounds = [0, num_rounds // 4, num_rounds - 1]
shown = trace["step_size"][shown_rounds]
limits = 0.9 * shown.min(), 1.1 * shown.max()
with fo.plots.figure(3, scale=(0.8, 1)) as (figure, axes):
  for panel, round, steps in zip(axes[0], shown_rounds, shown, strict=True):
    local_steps = np.arange(1, num_steps + 1)
    panel.plot(local_steps, steps.T, linewidth=0.9, alpha=0.8)
    fo.plots.log_scale(panel.yaxis, limits)
    panel.set(title=f"Round {round + 1}", xlabel="Local step", ylim=limits)
  axes[0, 0].set_ylabel("Step size of a client")
figure

# %% [markdown]
# The last picture shows all rounds: the median over clients and local steps,
# and how often each branch was the minimum.

# %%
figure = fo.plots.step_sizes(trace, None, title=f"α = {watched_alpha:g}")
is_smooth = trace["smoothness"] <= trace["growth"]
share = is_smooth[:, :, 1:].mean(axis=(1, 2))  # The first step has no branch.
quarter = max(1, num_rounds // 4)
early, late = share[:quarter].mean(), share[-quarter:].mean()
print("share of steps (without the first of a round) of the smoothness branch:")
print(f"  first {quarter} rounds {early:.0%}, last {quarter} rounds {late:.0%}")
low, high = np.quantile(trace["step_size"], [0.05, 0.95])
print(f"90 % of all step sizes are between {low:.3g} and {high:.3g}")
num_epoch = -(-examples // batch_size)
growth = (trace["step_size"][:, :, num_epoch - 1] / eta_0).max()
print(
  f"largest growth in the first {num_epoch} steps: a factor of {growth:.2f}"
)
figure

# %% [markdown]
# ## Against tuned SGD
#
# For each seed both methods get the same clients, cohorts, batches, rounds and
# initial model. SGD is tuned for each α: it tries all its rates with three
# seeds, and the rate with the best mean accuracy on the validation examples is
# kept. Δ-SGD is not tuned. Then both run with five fresh seeds. The table
# has their accuracy on the test examples, with 95 % intervals. Both take the
# same number of steps; a step of Δ-SGD costs two gradients, a step of SGD
# one. The cost of tuning is not counted.


# %%
def make_sgd(learning_rate):
  return fo.fed_avg(loss_fn, client=optax.sgd(learning_rate))


study = fo.compare(
  {
    "SGD, tuned": fo.Method(make_sgd, {"learning_rate": rates}),
    "Δ-SGD": fo.Method(make_delta_sgd),
  },
  init,
  clients,
  conditions=[{"alpha": alpha} for alpha in alphas],
  rounds=rounds,
  seeds=seeds,
  report_seeds=report_seeds,
  validation=validation,
  test=test,
  title="SGD with a tuned rate, and Δ-SGD",
  **options,
)
study

# %%
finals = {
  method: [
    study.cell(method, {"alpha": alpha}).final("test_accuracy")
    for alpha in alphas
  ]
  for method in study.methods
}
intervals = {
  method: np.array([fo.statistics.mean_interval(f) for f in of_alphas]).T
  for method, of_alphas in finals.items()
}
tuning_runs = len(rates) * len(seeds) * len(alphas)
print(f"runs that tuning took: SGD {tuning_runs}, Δ-SGD 0")
for alpha, sgd, delta in zip(alphas, *finals.values(), strict=True):
  gap, low, high = 100 * np.array(fo.statistics.paired_difference(delta, sgd))
  side = "excludes" if low * high > 0 else "includes"
  print(
    f"α = {alpha:g}: Δ-SGD minus SGD {gap:+.1f} points of accuracy "
    f"({low:+.1f} to {high:+.1f}), which {side} 0"
  )

fo.plots.study_values(
  intervals,
  None,
  metric="test_accuracy",
  x_name="alpha",
  x_values=alphas,
  interval=f"mean and 95 % interval over {len(report_seeds)} seeds",
)

# %% [markdown]
# ## A rate tuned elsewhere
#
# A new population of clients is often trained with the rate of another one. The
# picture shows how SGD's rates scored in tuning, at each α; a ring marks the
# choice.

# %%
labels = {alpha: f"α = {alpha:g}" for alpha in alphas}
seen, chosen = {}, {}
for alpha in alphas:
  cell = study.cell("SGD, tuned", {"alpha": alpha})
  values = cell.tuning_runs.history.values("validation_accuracy")[:, -1]
  values = values.reshape(len(rates), len(seeds))
  seen[labels[alpha]] = (np.array(rates), values.T)
  chosen[labels[alpha]] = cell.chosen["learning_rate"]

fo.plots.sensitivity(
  seen,
  None,
  metric="validation_accuracy",
  x_name="learning_rate",
  chosen=chosen,
  interval=f"mean and range of {len(seeds)} seeds",
)

# %% [markdown]
# Now all rates run at all α, with the fresh seeds, on the test examples. A box
# marks the rate that was tuned for the α of its column. Look along the row of a
# box to see this rate at the other α.

# %%
of_alpha = []
for alpha in alphas:
  outcome = fo.sweep(
    make_sgd,
    {"learning_rate": rates},
    init,
    lambda seed, alpha=alpha: clients(seed, alpha),
    rounds=rounds,
    seeds=report_seeds,
    test=test,
    **options,
  )
  last = outcome.history.metrics["test_accuracy"][:, -1]
  of_alpha.append(last.reshape(len(rates), len(report_seeds)))
rows = np.stack([*np.swapaxes(of_alpha, 0, 1), finals["Δ-SGD"]])
table = 100 * rows.mean(axis=-1)  # [rates and Δ-SGD, alphas]
tuned = [rates.index(chosen[labels[alpha]]) for alpha in alphas]

with fo.plots.figure(1, scale=(1.28, 1)) as (figure, axes):
  panel = axes[0, 0]
  low = max(table.min(), table.max() - 20)
  image = panel.imshow(table, vmin=low, aspect="auto")
  for i, j in np.ndindex(*table.shape):
    is_dark = table[i, j] < np.mean(image.get_clim())
    look = dict(ha="center", va="center", color="white" if is_dark else "black")
    panel.text(j, i, f"{table[i, j]:.1f}", **look)
  for j, i in enumerate(tuned):
    box = plt.Rectangle((j - 0.46, i - 0.44), 0.92, 0.88)
    box.set(fill=False, color="#D55E00", linewidth=2)
    panel.add_patch(box)
  panel.set_xticks(range(len(alphas)), [f"{alpha:g}" for alpha in alphas])
  names = [*(f"SGD, rate {rate:g}" for rate in rates), "Δ-SGD"]
  panel.set_yticks(range(len(table)), names)
  panel.set_xlabel("α (clients differ more →)")
  panel.set_title("Test accuracy (%)")
  panel.grid(visible=False)
figure

# %%
print("points of accuracy lost by a rate that was tuned at another α:")
if len(set(tuned)) == 1:
  print("  none, as all α chose the same rate")
for j, alpha in enumerate(alphas):
  for other, i in zip(alphas, tuned, strict=True):
    if i == tuned[j]:
      continue  # The same rate.
    gap = fo.statistics.paired_difference(rows[tuned[j], j], rows[i, j])
    lost, low, high = 100 * np.array(gap)
    print(
      f"  used at {alpha:g}, tuned at {other:g}: {lost:.1f} "
      f"({low:.1f} to {high:.1f})"
    )
for j, alpha in enumerate(alphas):
  below = int((table[:-1, j] < table[-1, j]).sum())
  best = table[tuned[j], j]
  print(
    f"α = {alpha:g}: Δ-SGD is above {below} of {len(rates)} rates;\n"
    f"  against the tuned one it has {table[-1, j] - best:+.1f} points, "
    f"and the worst rate {table[:-1, j].min() - best:+.1f}"
  )

# %% [markdown]
# An interval that includes 0 does not show a loss. On a CPU a borrowed rate
# costs a point or less on average (intervals over the few seeds reach 3
# points), and the worst rate more than 80. Δ-SGD has no rate,
# but it has $\eta_0$. A step size can shrink at once but grows only slowly, so
# with few local steps a client does not get far above $\eta_0$.
#
# ## Try next
#
# - `fo.delta_sgd(eta_0=0.01)`, or `delta=1.0`: how many local steps does a
#   client need to come back to the same step sizes?
# - `reuse_gradients=True`: one gradient a step instead of two. The two
#   gradients of the formula are then from different batches. Compare at equal
#   gradient evaluations.
# - Add `fo.Method(make_adam, {"learning_rate": [0.001, 0.01, 0.1]})`. `compare`
#   asks for as many settings as SGD has, unless `budget="unequal"` ([A fair
#   comparison](06_fair_comparison.ipynb)).
#
# [Heterogeneity](05_heterogeneity.ipynb) shows what differences between clients
# do to other methods. The
# [documentation](https://fedjax-opt.github.io/fedjax_opt) explains rules that
# need more than a gradient.
