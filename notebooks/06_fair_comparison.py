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
# # A fair comparison
#
# This notebook compares methods at their best settings, with equal budgets for
# tuning, and with intervals and costs. Then it uses many devices, and resumes a
# run after a lost connection.
#
# [![Open In Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/fedjax-opt/fedjax_opt/blob/main/notebooks/06_fair_comparison.ipynb)

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
  sizes = dict(
    images="fashion_mnist",
    hidden=(100,),
    num_clients=200,
    examples_per_client=500,
    rates=[0.01, 0.03, 0.1, 0.3, 1.0, 3.0],
    tuning_seeds=[0, 1, 2],
    report_seeds=list(range(10, 20)),
    rounds=200,
    target=0.85,
  )
else:
  sizes = dict(
    images="digits",
    hidden=(32,),
    num_clients=100,
    examples_per_client=100,
    rates=[0.03, 0.1, 0.3, 1.0, 3.0, 10.0],
    tuning_seeds=[0, 1, 2, 3, 4],
    report_seeds=list(range(10, 20)),
    rounds=60,
    target=0.85,
  )

# %%
import pathlib
import tempfile

import jax.numpy as jnp
import numpy as np
import optax

import fedjax_opt as fo

# %% [markdown]
# ## The problem
#
# Clients have mixtures of labels from a Dirichlet distribution: with a small α
# each client has few labels. The validation examples, on which settings are
# chosen, are held out *before* clients get theirs. No choice uses the test
# examples.


# %%
def load(name):
  if name == "digits":
    return fo.datasets.embedded.digits()
  return tuple(
    fo.datasets.tfds.load(name, split) for split in ("train", "test")
  )


train, test = load(sizes["images"])
train, validation = fo.data.hold_out(train, fraction=0.1)
highest = float(train["x"].max()) or 1.0

model = fo.models.MLP(
  hidden=sizes["hidden"], num_classes=10, activation=jax.nn.softplus
)
blank_image = jnp.zeros((1, *train["x"].shape[1:]))


def init(key):
  return model.init(key, blank_image)["params"]


def logits(params, batch):
  return model.apply({"params": params}, batch["x"] / highest)


def loss_fn(params, batch, rng):  # [B]
  del rng
  cross_entropy = optax.softmax_cross_entropy_with_integer_labels
  return cross_entropy(logits(params, batch), batch["y"])


def evaluate(params, data, test, validation=None):
  del data  # Training examples are not measured here.
  metrics = {}
  for split, batch in (("validation", validation), ("test", test)):
    if batch is not None:
      right = logits(params, batch).argmax(-1) == batch["y"]
      metrics[f"{split}_accuracy"] = right.mean()
      metrics[f"{split}_loss"] = loss_fn(params, batch, None).mean()
  return metrics


def clients(seed, alpha):
  rows = fo.partition.dirichlet(
    train["y"],
    num_clients=sizes["num_clients"],
    alpha=alpha,
    examples_per_client=sizes["examples_per_client"],
    seed=seed,
  )
  return fo.ClientData.from_partition(train, rows, keep_pool=True)


# %% [markdown]
# ## The study
#
# `fo.compare` tries every rate of a method with the tuning seeds, as one
# program. It chooses the rate with the best mean validation accuracy. This rate
# then runs with fresh seeds: other partitions, cohorts and initial models. All
# methods that are tuned must try the same number of settings, or the call is
# refused. Δ-SGD finds its step sizes by itself, and has one setting.

# %%
grid = {"rate": sizes["rates"]}
methods = {
  "FedAvg": fo.Method(lambda rate: fo.fed_avg(loss_fn, optax.sgd(rate)), grid),
  "SCAFFOLD": fo.Method(lambda rate: fo.scaffold(loss_fn, rate), grid),
  "Δ-SGD": fo.Method(lambda: fo.fed_avg(loss_fn, fo.delta_sgd())),
}
conditions = [{"alpha": 1.0}, {"alpha": 0.1}]
options = dict(cohort_size=10, batch_size=25, evaluate=evaluate, eval_every=2)
study = fo.compare(
  methods,
  init,
  clients,
  conditions=conditions,
  rounds=sizes["rounds"],
  seeds=sizes["tuning_seeds"],
  report_seeds=sizes["report_seeds"],
  validation=validation,
  test=test,
  target=sizes["target"],
  title="Three methods",
  **options,
)
study

# %%
for cell in study.cells:
  if cell.tuning is not None:
    edges = ", ".join(f"{e.side} {e.name}" for e in cell.tuning.edges)
    note = f"; at the edge of the grid: {edges}" if edges else ""
    lost = cell.tuning.num_diverged + cell.num_collapsed
    note += f"; {lost} failed" if lost else ""
    print(
      f"{cell.method:9} α = {cell.condition['alpha']:<4g} rate "
      f"{cell.chosen['rate']:<4g} of {cell.budget}{note}"
    )
  else:
    print(f"{cell.method:9} α = {cell.condition['alpha']:<4g} has one setting")

# %% [markdown]
# If the chosen rate is at the edge of its grid, a better one may lie outside.
# The report below says so, too.
#
# ## With an untuned baseline
#
# Take SCAFFOLD with its tuned rate, and FedAvg with a rate that nobody tuned.
# How far ahead is SCAFFOLD? The bars differ only in FedAvg's rate. All values
# are from tuning: validation accuracies, as means over the tuning seeds.

# %%
with fo.plots.figure(columns=2, scale=(1.2, 1.0)) as (figure, axes):
  for panel, condition in zip(axes[0], conditions, strict=True):
    ours = 100 * study.cell("SCAFFOLD", condition).tuning.score
    baseline = study.cell("FedAvg", condition).tuning
    lead = ours - 100 * baseline.scores
    best = baseline.settings.index(baseline.best)
    places = np.arange(len(lead))
    colors = [fo.plots.COLORS[2 if i == best else 0] for i in places]
    panel.bar(places, lead, color=colors)
    panel.axhline(0, color="k", linewidth=0.8)
    panel.bar_label(panel.containers[0], fmt="{:+.1f}", fontsize=7, padding=2)
    panel.margins(y=0.15)
    names = [f"{rate:g}" for rate in sizes["rates"]]
    names[best] += "\n(tuned)"
    panel.set_xticks(places, names)
    panel.set_title(f"α = {condition['alpha']:g}")
    panel.set_xlabel("FedAvg's rate")
    print(
      f"α = {condition['alpha']:g}: SCAFFOLD's lead is {lead[best]:+.1f} "
      f"points over tuned FedAvg, up to {np.nanmax(lead):+.1f} if untuned"
    )
  axes[0, 0].set_ylabel("SCAFFOLD's lead (points)")
figure

# %% [markdown]
# ## Intervals, with few seeds and with more
#
# The picture shows the runs of the report, with only the first n seeds. Bands
# are 95 % intervals of the mean (`fo.statistics.mean_interval`).

# %%
hard = conditions[-1]
finals = {
  name: 100 * cell.final("test_accuracy")
  for name, cell in study.under(hard).items()
}
looks = fo.plots.method_styles(finals)
numbers = np.arange(2, len(sizes["report_seeds"]) + 1)


def draw(panel, name, values, interval):
  """A mean and its interval, as seeds come in."""
  look = looks[name]
  mean, low, high = np.transpose([interval(values[:n]) for n in numbers])
  style = {"color": look.color, "marker": look.marker, "markersize": 3}
  panel.plot(numbers, mean, label=name, **style)
  panel.fill_between(numbers, low, high, color=look.color, alpha=0.15)


with fo.plots.figure(columns=2, scale=(1.25, 1.2)) as (figure, axes):
  left, right = axes[0]
  for name, values in finals.items():
    draw(left, name, values, fo.statistics.mean_interval)
    if name != "FedAvg":
      pairs = np.stack([values, finals["FedAvg"]], axis=1)  # [seeds, 2]
      draw(right, name, pairs, lambda p: fo.statistics.paired_difference(*p.T))
  right.axhline(0, color="k", linewidth=0.8)
  # The first intervals, of two seeds, may be longer than all the rest.
  means = [values.mean() for values in finals.values()]
  left.set_ylim(min(means) - 12, 100)
  reach = 12 + max(means) - min(means)
  right.set_ylim(-reach, reach)
  left.set_title(f"each method, α = {hard['alpha']:g}")
  right.set_title("paired difference to FedAvg")
  left.set_ylabel("test accuracy (%)")
  right.set_ylabel("difference (points)")
  for panel in axes[0]:
    panel.set_xlabel("seeds looked at")
  handles, labels = left.get_legend_handles_labels()
  figure.legend(handles, labels, loc="outside lower center", ncols=4)
figure

# %% [markdown]
# Two methods with the same seed have the same clients and the same initial
# model. An effect of the seed that is the same for both cancels in their
# difference. So the paired interval can be much shorter than the intervals of
# the two means suggest.

# %%
print("difference to FedAvg in points, and its paired 95 % interval:")
for name, values in finals.items():
  if name == "FedAvg":
    continue
  for n in (3, len(values)):
    one, other = values[:n], finals["FedAvg"][:n]
    alone = [fo.statistics.mean_interval(each) for each in (one, other)]
    overlap = max(a.low for a in alone) <= min(a.high for a in alone)
    paired = fo.statistics.paired_difference(one, other)
    excludes = paired.low > 0 or paired.high < 0
    print(
      f"{name:9} {n:2} seeds: {paired.estimate:+.1f} "
      f"({paired.low:+.1f} to {paired.high:+.1f}), "
      f"which {'excludes' if excludes else 'includes'} 0; intervals of the "
      f"means {'overlap' if overlap else 'do not overlap'}"
    )

# %% [markdown]
# Here both ways agree. They need not: where the intervals of two means overlap,
# the paired one can still exclude 0. These intervals are bootstrap ones of one
# pair. The verdicts of the study use t-tests, adjusted for all pairs
# ([how](https://fedjax-opt.github.io/fedjax_opt/how_to/verdicts.html)).
#
# ## The value of tuning
#
# The picture shows the best validation accuracy to expect if n settings are
# drawn from the grid without repetition (`fo.statistics.expected_best`), over
# the tuning seeds. A method whose curve is high at n = 1 needs little tuning.
# Δ-SGD was not tuned: its marker is its one setting, over the fresh seeds.

# %%
chance = 1 / len(np.unique(train["y"]))  # For a setting that diverged.


def tuning_curve(cell):
  if cell.tuning is None:
    return [1], [cell.final("validation_accuracy").mean()]
  best = fo.statistics.expected_best(
    cell.tuning.scores, replace=False, if_diverged=chance
  )
  return np.arange(1, len(best) + 1), best


fo.plots.tuning_curves(
  {
    f"α = {condition['alpha']:g}": {
      name: tuning_curve(cell) for name, cell in study.under(condition).items()
    }
    for condition in conditions
  },
  None,
  metric="validation_accuracy",
  styles=looks,
)

# %% [markdown]
# ## Rounds and bytes to a target
#
# A method that needs fewer rounds may send more in each: SCAFFOLD sends a
# control variate with every model. Rounds and megabytes of a client are means
# over the fresh seeds. *Not all* means that some seeds did not reach the
# target; in brackets stands how many did.

# %%
target = sizes["target"]
print(f"until {100 * target:g} %          rounds      MB")
for cell in study.cells:
  spent = [
    fo.statistics.to_target(
      cell.report_runs.history, "test_accuracy", target, cost
    )
    for cost in ("rounds", "bytes")
  ]
  reached = np.isfinite(spent[0])
  shown = f"not all ({reached.sum()} of {reached.size} seeds)"
  if reached.all():
    shown = f"{spent[0].mean():6.1f} {spent[1].mean() / 1e6:7.3f}"
  print(f"{cell.method:10} α = {cell.condition['alpha']:<4g} {shown}")

# %% [markdown]
# ## The report
#
# `study.write` makes a folder: one page with everything, tables as Markdown,
# LaTeX and CSV, and each picture as PNG, PDF and SVG.

# %%
folder = pathlib.Path(tempfile.mkdtemp())
study.write(folder / "report")
pictures = sorted((folder / "report" / "pictures").glob("*.png"))
print(*sorted(p.name for p in (folder / "report").iterdir()))
print(*(picture.stem for picture in pictures), sep="\n")

# %%
study.plot("learning_curves")

# %%
study.plot("sensitivity_rate")

# %% [markdown]
# ## All devices
#
# If there are several devices, a run uses as many as it can; no argument is
# needed. The devices form groups of the same size. The groups divide the
# settings of the grid, so their number is a divisor of the number of settings.
# The devices of a group divide the clients of each cohort.

# %%
simulator = fo.Simulator(
  methods["FedAvg"].make,
  lambda seed: clients(seed, hard["alpha"]),
  grid=grid,
  seeds=sizes["tuning_seeds"],
  cohort_size=options["cohort_size"],
  batch_size=options["batch_size"],
)
state, _ = simulator.run(simulator.init(init), rounds=2)
layout = state.config.layout
print(f"{jax.device_count()} device(s): {jax.devices()[0].device_kind}")
print(
  f"{len(sizes['rates'])} settings over {layout.grid_devices} device(s), "
  f"{options['cohort_size']} clients of each cohort over "
  f"{layout.client_devices}"
)
leaf = jax.tree.leaves(state.server.params)[0]  # [settings, seeds, ...]
print(f"a parameter of the server, {leaf.shape}:\n  {leaf.sharding}")
if jax.device_count() > 1:
  jax.debug.visualize_array_sharding(leaf.reshape(len(leaf), -1))
else:
  print("One device holds all of it; a TPU or several GPUs show their parts.")

# %% [markdown]
# ## A lost connection
#
# With checkpoints a run that died continues from its last checkpoint. On Colab
# put the folder on Google Drive (`google.colab.drive.mount`), because the
# machine is lost with the connection. The next cell trains twice. The first run
# reaches its end. In the second one a callback raises an error in the middle,
# as if the kernel were lost.


# %%
def run(checkpoints=None, on_evaluation=None):
  return fo.simulate(
    fo.scaffold(loss_fn, 0.1),
    init(jax.random.key(0)),
    clients(0, hard["alpha"]),
    rounds=sizes["rounds"],
    checkpoints=checkpoints,
    on_evaluation=on_evaluation,
    test=test,
    **options,
  )


class Disconnected(Exception):
  pass


def disconnect(report):
  if report.round > sizes["rounds"] // 2:
    raise Disconnected(f"lost after round {report.round}")


undisturbed = run()
every = sizes["rounds"] // 6
try:
  run(fo.Checkpoints(folder / "checkpoints", every=every), disconnect)
except Disconnected as error:
  print(error)
saved = sorted(int(p.stem) for p in (folder / "checkpoints").iterdir())
print("checkpoints of rounds", *saved)

# %% [markdown]
# In a new kernel, run the cells above again, down to the function `run`. Then
# `resume=True` continues from the newest checkpoint.

# %%
resumed = run(fo.Checkpoints(folder / "checkpoints", every=every, resume=True))

name = "test_accuracy"
for label, result in {"undisturbed": undisturbed, "resumed": resumed}.items():
  values = result.history.metrics[name][0]
  print(f"{label:11} {len(values)} evaluations, the last {values[-1]:.10f}")
same_history = np.array_equal(
  undisturbed.history.metrics[name], resumed.history.metrics[name]
)
same_model = jax.tree.all(
  jax.tree.map(np.array_equal, undisturbed.params, resumed.params)
)
same_clients = jax.tree.all(
  jax.tree.map(np.array_equal, undisturbed.client_state, resumed.client_state)
)
print(
  f"identical: history {same_history}, model {same_model}, control variates "
  f"of all clients {same_clients}"
)

# %% [markdown]
# ## Try next
#
# - Give Δ-SGD a budget too: `fo.Method(lambda delta: fo.fed_avg(loss_fn,
#   fo.delta_sgd(delta=delta)), {"delta": [...]})` with as many values as there
#   are rates.
# - Compare local work instead of heterogeneity: `clients` with a fixed `alpha`,
#   and `conditions=[{"local_steps": 1}, {"local_steps": 8}]`.
# - Kill the kernel in the middle of the run with checkpoints, and resume in a
#   new kernel.
#
# [Five minutes](01_five_minutes.ipynb) shows how a grid becomes one program.
# [Heterogeneity](05_heterogeneity.ipynb) shows why methods differ at small α.
# On the command line a study is one command, and nothing runs twice
# ([documentation](https://fedjax-opt.github.io/fedjax_opt)).
