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
# # Heterogeneity
#
# If the data of clients differ, local steps go towards each client's own
# minimum. This notebook shows this *drift* in the plane, measures what it costs
# four methods, and finds out when local steps help.
#
# [![Open In Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/fedjax-opt/fedjax_opt/blob/main/notebooks/05_heterogeneity.ipynb)

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
    zetas=[0.01, 0.1, 0.3, 1.0, 3.0, 10.0],
    local_steps=[1, 2, 4, 8, 16, 32, 64],
    starts=10,
    rates=[0.001, 0.0025, 0.006, 0.016, 0.04, 0.1, 0.25, 0.6],
    rounds=300,
    images="cifar10",
    hidden=(100,),
    image_rates=[0.01, 0.03, 0.1, 0.3, 1.0, 3.0],
    image_rounds=500,
    image_steps=16,
    image_seeds=6,
  )
else:
  sizes = dict(
    zetas=[0.1, 0.3, 1.0, 3.0, 10.0],
    local_steps=[1, 4, 16, 64],
    starts=4,
    rates=[0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0],
    rounds=150,
    images="digits",
    hidden=(),
    image_rates=[0.3, 1.0, 3.0, 10.0, 30.0],
    image_rounds=30,
    image_steps=8,
    image_seeds=6,
  )

# %%
import jax.numpy as jnp
import numpy as np
import optax

import fedjax_opt as fo

# %% [markdown]
# ## Client drift, seen
#
# Three clients have the losses
# $f_i(x) = \frac{1}{2} (x - a_i)^\top H_i (x - a_i)$ in the plane. Each client
# has one "example", its $H_i$ and $a_i$, so its gradients are exact. The server
# wants the minimum of the mean, $x^* = (\sum_i H_i)^{-1} \sum_i H_i a_i$.


# %%
def ellipse(angle, *eigenvalues):
  turn = np.array(
    [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
  )
  return turn @ np.diag(eigenvalues) @ turn.T


examples = {
  "hessian": np.stack(
    [ellipse(0, 1, 0.1), ellipse(1.2, 0.8, 0.05), ellipse(2.2, 0.3, 0.15)]
  ).astype(np.float32),
  "center": np.array([[-2, 1], [2, 1.5], [0.5, -2]], np.float32),
}
hessians, centers = examples["hessian"], examples["center"]
optimum = np.linalg.solve(
  hessians.sum(0), np.einsum("mij,mj->i", hessians, centers)
)


def quadratic(params, batch, rng):  # [B]
  del rng
  offset = params - batch["center"]
  return jnp.einsum("bi,bij,bj->b", offset, batch["hessian"], offset) / 2


def distance(params, data, test):
  del data, test
  return {"distance": jnp.linalg.norm(params - optimum)}


# %% [markdown]
# A `Simulator` can run round by round. FedAvg (here `local_sgd`) averages the
# clients' points after `local_steps`. SCAFFOLD adds $c - c_i$ to each local
# gradient. Client i keeps the *control variate* $c_i$, an estimate of its own
# gradient, and $c$ is the mean of all $c_i$.
#
# The simulator returns only the end of each round. To draw the steps within a
# round, a plain loop takes the same steps again, from the server's point and
# the control variates. The mean of the end points must be the server's next
# point.

# %%
start = jnp.array([-2.5, -2.0])
rate, local_steps, rounds, drawn_rounds = 0.3, 16, 30, 4
clients = fo.ClientData.from_partition(examples, [[0], [1], [2]])


def follow(algorithm):
  """Server points [R + 1, 2], and corrections of each round [R, M, 2]."""
  simulator = fo.Simulator(
    algorithm, clients, batch_size=1, local_steps=local_steps
  )
  state = simulator.init(start)
  points, corrections = [state.server.params], []
  for _ in range(rounds):
    kept = state.client_state
    corrections.append(
      np.zeros_like(centers)
      if kept is None
      else np.asarray(state.server.control - kept)
    )
    state, _ = simulator.run(state, rounds=1)
    points.append(state.server.params)
  return np.array(points), np.array(corrections)


def plain_steps(point, correction):
  """The local steps of all clients in one round, [K + 1, M, 2]."""
  x = np.tile(point, (len(centers), 1))
  steps = [x]
  for _ in range(local_steps):
    gradient = np.einsum("mij,mj->mi", hessians, x - centers)
    x = x - rate * (gradient + correction)
    steps.append(x)
  return np.array(steps)


paths = {}
for name, algorithm in {
  "FedAvg": fo.local_sgd(quadratic, rate),
  "SCAFFOLD": fo.scaffold(quadratic, rate),
}.items():
  points, corrections = follow(algorithm)
  steps = np.array(
    [plain_steps(*each) for each in zip(points, corrections, strict=False)]
  )
  error = np.abs(steps[:, -1].mean(axis=1) - points[1:]).max()
  print(
    f"{name}: after {rounds} rounds {np.linalg.norm(points[-1] - optimum):.4f}"
    f" from the optimum; plain loop differs by {error:.0e}"
  )
  paths[name] = points, steps

# %%
grid = np.stack(np.meshgrid(np.linspace(-3, 3, 121), np.linspace(-3, 3, 121)))
offsets = np.moveaxis(grid, 0, -1)[:, :, None] - centers  # [y, x, M, 2]
heights = np.einsum("yxmi,mij,yxmj->yx", offsets, hessians, offsets) / 6

with fo.plots.figure(columns=2, scale=(1.25, 1.35)) as (figure, axes):
  for panel, (name, (points, steps)) in zip(
    axes[0], paths.items(), strict=True
  ):
    panel.contour(*grid, heights, levels=12, colors="#C0C0C0", linewidths=0.6)
    for client, color in enumerate(fo.plots.COLORS[:3]):
      for each in steps[:drawn_rounds]:
        panel.plot(
          *each[:, client].T, color=color, marker=".", markersize=2.5, lw=0.8
        )
      panel.plot(
        *centers[client],
        color=color,
        marker="s",
        linestyle="",
        label=f"minimum of client {client + 1}",
      )
    panel.plot(*points.T, "k-o", markersize=3, linewidth=1.2, label="server")
    panel.plot(
      *optimum, "*", color="#E69F00", markersize=13, mec="k", label="optimum"
    )
    panel.set_title(f"{name}, K = {local_steps} local steps")
    panel.set_xlabel("first coordinate of x")
    panel.set_aspect("equal")
  axes[0, 0].set_ylabel("second coordinate of x")
  handles, labels = axes[0, 0].get_legend_handles_labels()
  figure.legend(handles, labels, loc="outside lower center", ncols=5)
figure

# %% [markdown]
# Thin lines are local steps of the first rounds. In both panels clients first
# go towards their own minima. FedAvg's clients do so in every round, and the
# server stops where their movements cancel, beside the optimum. SCAFFOLD's
# clients soon move together.
#
# ## Where FedAvg ends
#
# K steps with the rate $\eta$ bring client i to $a_i + P_i (x - a_i)$, where
# $P_i = (I - \eta H_i)^K$. The server stops where the mean of these points is
# $x$:
#
# $$x_K = \Bigl(\sum_i (I - P_i)\Bigr)^{-1} \sum_i (I - P_i) a_i.$$
#
# With one step this is $x^*$; with very many steps it is the plain mean of the
# $a_i$.
#
# In the next cell all K and all rates are one program. The clients of a sweep
# may depend on the seed, so the "seed" here is K: a client with K copies of its
# one example takes K steps in an epoch.

# %%
rates, many_steps = [0.1, 0.3, 1.0], [1, 2, 4, 8, 16, 32, 64]


def copies(pool, number):
  """Clients with `number` copies of their only example."""
  rows = np.arange(len(next(iter(pool.values()))))
  return fo.ClientData.from_partition(pool, np.tile(rows[:, None], number))


ends = {}
for name, method in {"FedAvg": fo.local_sgd, "SCAFFOLD": fo.scaffold}.items():
  result = fo.sweep(
    lambda rate, method=method: method(quadratic, rate),
    {"rate": rates},
    start,
    lambda number: copies(examples, number),
    seeds=many_steps,
    rounds=600,
    batch_size=1,
    local_epochs=1,
    evaluate=distance,
    eval_every=600,
  )
  final = result.history.metrics["distance"][:, -1]
  ends[name] = final.reshape(len(rates), len(many_steps))


def rest(rate, steps):
  """Where FedAvg comes to rest."""
  shrink = np.linalg.matrix_power(np.eye(2) - rate * hessians, steps)
  left = np.eye(2) - shrink
  right = np.einsum("mij,mj->i", left, centers)
  return np.linalg.solve(left.sum(0), right)


theory = np.array(
  [
    [np.linalg.norm(rest(rate, k) - optimum) for k in range(1, 65)]
    for rate in rates
  ]
)
gap = np.abs(theory[:, np.array(many_steps) - 1] - ends["FedAvg"]).max()
print(f"FedAvg, simulated and in closed form: at most {gap:.0e} apart")
print(f"SCAFFOLD: at most {ends['SCAFFOLD'].max():.0e} from the optimum")

# %%
with fo.plots.figure(columns=1, scale=(1.28, 1.6)) as (figure, axes):
  panel = axes[0, 0]
  for i, rate in enumerate(rates):
    look = {"color": fo.plots.COLORS[i]}
    panel.plot(
      range(1, 65), theory[i], label=f"closed form, η = {rate}", **look
    )
    panel.plot(many_steps, ends["FedAvg"][i], "o", **look)
    panel.plot(many_steps, ends["SCAFFOLD"][i], "x", clip_on=False, **look)
  of_mean = np.linalg.norm(centers.mean(0) - optimum)
  panel.axhline(of_mean, color="k", ls=":", label="mean of clients' minima")
  panel.plot([], [], "ko", label="FedAvg, simulated")
  panel.plot([], [], "kx", label="SCAFFOLD, simulated")
  panel.set_xscale("log", base=2)
  panel.set_xticks(many_steps, many_steps)
  panel.set_ylim(bottom=0)
  panel.set_xlabel("K, local steps in a round")
  panel.set_ylabel("distance from the optimum after 600 rounds")
  figure.legend(loc="outside lower center", ncols=2)
figure

# %% [markdown]
# ## A dial for heterogeneity
#
# `fo.synthetic.heterogeneous` makes a non-convex problem of 10 clients, with
# two wells in each of 10 coordinates. The mean objective is the same for every
# ζ. Clients' gradients differ in any case; ζ is how far their *Hessians*
# differ. There is no noise, and each client has one example. So local gradients
# are exact, and the picture shows only drift. With one local step (K = 1) all
# methods are gradient descent, except DOMO, which has momentum.
#
# Every method tries the same rates. We count the rounds until
# $|\nabla f|^2 \leq 0.01$. The rate is chosen for one half of the starting
# points, and reported for the other half. In BVR-L-SGD the large gradient that
# begins a stage needs an extra communication round, which counts too.

# %%
METHODS = {
  "FedAvg": fo.local_sgd,
  "SCAFFOLD": fo.scaffold,
  "BVR-L-SGD": fo.bvr_l_sgd,
  "DOMO": fo.domo,
}
TARGET = 0.01
problem = fo.synthetic.heterogeneous(
  examples_per_client=1, noise=0, curvature_noise=0
)
axis_k, starts = sizes["local_steps"], sizes["starts"]


def gradient_norm(params, data, test):
  del data, test  # The objective is known, and the same for all zetas.
  gradient = jax.grad(problem.objective)(params)
  return {"grad_norm_sq": jnp.sum(jnp.square(gradient))}


def best_rounds(method):
  """Rounds to the target at the best rates, inf if not reached. [zeta, K]"""

  def make(zeta, rate):
    return method(problem._replace(zeta=zeta).loss_fn, rate)

  result = fo.sweep(
    make,
    {"zeta": sizes["zetas"], "rate": sizes["rates"]},
    lambda key: 2 * jax.random.normal(key, problem.scales.shape),
    lambda seed: copies(problem.data.examples, axis_k[seed // starts]),
    seeds=range(len(axis_k) * starts),
    rounds=sizes["rounds"],
    batch_size=1,
    local_epochs=1,
    evaluate=gradient_norm,
    eval_every=1,
  )
  needed = fo.statistics.to_target(result.history, "grad_norm_sq", TARGET)
  needed = np.where(np.isnan(needed), np.inf, needed)
  needed = needed.reshape(
    len(sizes["zetas"]), len(sizes["rates"]), len(axis_k), starts
  )
  chosen = needed[..., : starts // 2].mean(-1).argmin(axis=1)  # [zeta, K]
  reported = needed[..., starts // 2 :].mean(-1)
  reported = np.take_along_axis(reported, chosen[:, None], axis=1)[:, 0]
  return reported * result.cost.get("communication_rounds", 1)


needed = {name: best_rounds(method) for name, method in METHODS.items()}

# %%
looks = fo.plots.method_styles(METHODS)
small, large = sizes["zetas"][0], sizes["zetas"][-1]
middle = axis_k.index(16)


def draw(panel, x, values):
  """Rounds on a log axis; a cross above the line did not get there."""
  failed = 1.6 * sizes["rounds"]
  places = np.arange(len(x))
  for i, (name, of_method) in enumerate(values.items()):
    look, reached = looks[name], np.isfinite(of_method)
    panel.plot(
      places,
      np.where(reached, of_method, np.nan),
      color=look.color,
      marker=look.marker,
      markersize=4,
      label=name,
    )
    lost = places[~reached] + 0.12 * (i - 1.5)
    panel.plot(lost, np.full(len(lost), failed), "x", color=look.color)
  panel.axhline(1.15 * sizes["rounds"], color="#808080", linewidth=0.7)
  panel.set_yscale("log")
  panel.set_ylim(0.8, 2.4 * sizes["rounds"])
  panel.yaxis.set_major_formatter("{x:g}")
  panel.set_xticks(places, [f"{each:g}" for each in x])
  panel.set_xlim(-0.4, len(x) - 0.6)


with fo.plots.figure(columns=3, scale=(0.85, 1.1)) as (figure, axes):
  left, center, right = axes[0]
  draw(left, sizes["zetas"], {n: v[:, middle] for n, v in needed.items()})
  left.set_title(f"K = {axis_k[middle]} local steps")
  left.set_xlabel("ζ, how far Hessians differ")
  left.set_ylabel(f"rounds until |∇f|² ≤ {TARGET}")
  for panel, zeta in ((center, small), (right, large)):
    row = sizes["zetas"].index(zeta)
    draw(panel, axis_k, {n: v[row] for n, v in needed.items()})
    panel.set_title(f"ζ = {zeta:g}")
    panel.set_xlabel("K, local steps in a round")
  handles, labels = left.get_legend_handles_labels()
  figure.legend(handles, labels, loc="outside lower center", ncols=4)
figure

# %% [markdown]
# Each point in the picture is a mean over starting points that had no part in
# the choice of its rate. There are few starting points, so no interval is
# drawn. Crosses above the grey line mean that the target was not reached. So
# when do local steps help? The next cell answers from the same numbers.

# %%
for name, rounds_of in needed.items():
  for zeta, row in zip(sizes["zetas"], rounds_of, strict=True):
    if zeta not in (small, large):
      continue
    best = int(np.argmin(row))
    verdict = (
      f"K = 1: {row[0]:4.1f} rounds; fewest {row[best]:4.1f} "
      f"(K = {axis_k[best]})"
    )
    never = [k for k, each in zip(axis_k, row, strict=True) if np.isinf(each)]
    if never:
      verdict += f"; never with K = {str(never)[1:-1]}"
    print(f"{name:9} ζ = {zeta:<3g}  {verdict}")

# %% [markdown]
# ## Real examples: class fraction and similarity
#
# Two partitions have such a dial. There are 10 clients. With `class_q`, client
# p has the fraction q of class p, and the other clients share the rest; q = 0.1
# is homogeneous. With `similarity`, a fraction s of the examples is dealt at
# random, and the others in blocks, sorted by label; s = 1 is homogeneous.

# %%
CONDITIONS = [
  *(("class_q", {"class_fraction": q}) for q in (0.1, 0.5, 0.9)),
  *(("similarity", {"similarity": s}) for s in (0.5, 0.1, 0.0)),
]
seeds_each = sizes["image_seeds"]


def load(name):
  if name == "digits":
    return fo.datasets.embedded.digits()
  return tuple(
    fo.datasets.tfds.load(name, split) for split in ("train", "test")
  )


train, test = load(sizes["images"])
train, validation = fo.data.hold_out(train, fraction=0.1)


def image_clients(seed):
  """Clients of a condition and a repetition: both are in the seed."""
  condition, repetition = divmod(seed, seeds_each)
  scheme, dial = CONDITIONS[condition]
  rows = fo.partition.split(scheme, train["y"], 10, seed=repetition, **dial)
  return fo.ClientData.from_partition(train, rows, keep_pool=True)


with fo.plots.figure(columns=3, rows=2, scale=(0.42, 0.55)) as (figure, axes):
  for i, (panel, (_, dial)) in enumerate(
    zip(axes.flat, CONDITIONS, strict=True)
  ):
    counts = image_clients(i * seeds_each).label_counts(10)
    most = np.bincount(train["y"]).max()
    panel.imshow(counts.T, cmap="Blues", origin="lower", vmin=0, vmax=most)
    ((name, value),) = dial.items()
    panel.set_title(f"{'q' if name == 'class_fraction' else 's'} = {value}")
    panel.grid(False)
    panel.set_xticks([0, 9])
    panel.set_yticks([0, 9])
  figure.supxlabel("client", fontsize=8)
  figure.supylabel("label (dark: many examples)", fontsize=8)
figure

# %%
highest = float(train["x"].max()) or 1.0
model = fo.models.MLP(
  hidden=sizes["hidden"], num_classes=10, activation=jax.nn.softplus
)
blank = jnp.zeros((1, *train["x"].shape[1:]))


def logits(params, batch):
  return model.apply({"params": params}, batch["x"] / highest)


def loss_fn(params, batch, rng):  # [B]
  del rng
  cross_entropy = optax.softmax_cross_entropy_with_integer_labels
  return cross_entropy(logits(params, batch), batch["y"])


def evaluate(params, data, test, validation=None):
  del data
  correct = logits(params, test).argmax(-1) == test["y"]
  return {
    "validation_loss": loss_fn(params, validation, None).mean(),
    "test_accuracy": correct.mean(),
  }


# %% [markdown]
# For each method, one program runs all rates, conditions and repetitions. All
# methods try the same number of rates. DOMO's rates are a tenth of the others',
# because its two momenta add up many gradients. Under each condition the first
# repetitions choose the rate with the lowest validation loss. The other
# repetitions, with other partitions and initial models, are reported.

# %%
tuning = seeds_each // 3


def image_runs(method, rates):
  """Test accuracy [repetitions, conditions] and the chosen rates."""
  result = fo.sweep(
    lambda rate: method(loss_fn, rate),
    {"rate": rates},
    lambda key: model.init(key, blank)["params"],
    image_clients,
    seeds=range(len(CONDITIONS) * seeds_each),
    rounds=sizes["image_rounds"],
    local_steps=sizes["image_steps"],
    batch_size=16,
    replacement=True,
    evaluate=evaluate,
    eval_every=sizes["image_rounds"],
    validation=validation,
    test=test,
  )
  shape = (len(rates), len(CONDITIONS), seeds_each)
  last = {
    name: result.history.values(name)[:, -1].reshape(shape)
    for name in ("validation_loss", "test_accuracy")
  }
  # NaN, of a run that diverged, is never the lowest.
  losses = last["validation_loss"][..., :tuning].mean(-1)
  chosen = np.where(np.isnan(losses), np.inf, losses).argmin(axis=0)
  accuracy = last["test_accuracy"][chosen, range(len(CONDITIONS)), tuning:]
  return accuracy.T, np.array(rates)[chosen]


accuracies = {}
for name, method in METHODS.items():
  factor = 0.1 if name == "DOMO" else 1.0
  rates = [round(factor * rate, 6) for rate in sizes["image_rates"]]
  accuracies[name], chosen = image_runs(method, rates)
  edges = sum(rate in (rates[0], rates[-1]) for rate in chosen)
  print(
    f"{name:10} of {rates[0]:g} to {rates[-1]:g}: "
    f"{', '.join(f'{rate:g}' for rate in chosen)} ({edges} at an edge)"
  )

# %%
names = {"class_q": "class_fraction", "similarity": "similarity"}


def against(scheme):
  columns = [i for i, (name, _) in enumerate(CONDITIONS) if name == scheme]
  return fo.plots.study_values(
    {
      name: tuple(fo.statistics.mean_interval(values[:, columns]))
      for name, values in accuracies.items()
    },
    None,
    metric="test_accuracy",
    x_name=names[scheme],
    x_values=[CONDITIONS[i][1][names[scheme]] for i in columns],
    interval=f"mean and 95 % interval, {seeds_each - tuning} repetitions",
    styles=looks,
  )


against("class_q")

# %%
against("similarity")

# %% [markdown]
# The next cell prints what heterogeneity costs each method: the accuracy that
# it loses from the clients that are most alike to those that differ most.

# %%
for name, values in accuracies.items():
  for scheme in names:
    columns = [i for i, (each, _) in enumerate(CONDITIONS) if each == scheme]
    loss = fo.statistics.paired_difference(
      100 * values[:, columns[0]], 100 * values[:, columns[-1]]
    )
    print(
      f"{name:10} {scheme:10} loses {loss.estimate:5.1f} points "
      f"(95 % interval {loss.low:.1f} to {loss.high:.1f})"
    )

# %% [markdown]
# ## Try next
#
# - Put the clients of the plane closer together (`centers * 0.1`), or give all
#   the same Hessian. Which of the two ends FedAvg's drift?
# - Add `"FedProx": lambda loss_fn, rate: fo.fed_prox(loss_fn,
#   optax.sgd(rate), mu=0.1)` to `METHODS`, and run from there.
# - Let 3 of the 10 clients take part in a round (`cohort_size=3`). Then control
#   variates are old when a client takes part again.
#
# [A fair comparison](06_fair_comparison.ipynb) tunes and compares methods with
# `fo.compare`. [Your own method](02_your_own_method.ipynb) writes one. The
# [documentation](https://fedjax-opt.github.io/fedjax_opt) has the results of
# the papers of BVR-L-SGD and DOMO.
