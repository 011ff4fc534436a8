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
# # Composite objectives
#
# This notebook finds sparse and low-rank models. It shows what a proximal step
# at each client does, and why it matters what the server averages.
#
# [![Open In Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/fedjax-opt/fedjax_opt/blob/main/notebooks/04_composite.ipynb)

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
if on_accelerator:  # Problem II of the paper.
  lasso = dict(dim=1024, num_nonzero=64, examples_per_client=128)
  low_rank = dict(dim=32, rank=4, examples_per_client=128)
  rounds, recorded_rounds, batch_size = 500, 300, 10
  recorded_rate, seeds = 0.001, [0, 1, 2, 3, 4]
else:
  lasso = dict(dim=256, num_nonzero=16, examples_per_client=64)
  low_rank = dict(dim=16, rank=2, examples_per_client=64)
  rounds, recorded_rounds, batch_size = 200, 100, 8
  recorded_rate, seeds = 0.003, [0, 1, 2]
num_clients, cohort_size, eval_every = 64, 10, 10
plane_rounds = 10
rates, server_rates = [0.0001, 0.0003, 0.001, 0.003], [1.0, 3.0, 10.0, 30.0]

# %%
import base64
import pathlib
import tempfile

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax
from IPython.display import HTML
from matplotlib import animation

import fedjax_opt as fo
from fedjax_opt.metrics import Criterion, rank

# %% [markdown]
# ## Which coefficients are not zero?
#
# The objective is $F(w) + \psi(w)$: $F$ is the mean of the clients' losses, and
# $\psi$ a regularizer that all clients know, here $\lambda\|w\|_1$. In this
# LASSO problem the first coefficients are 1 and all others 0. The features of
# each client have their own mean.

# %%
problem = fo.synthetic.lasso(num_clients=num_clients, **lasso)
threshold = 0.01  # Coefficients below it count as zero.
strength = 0.1


def loss_fn(params, batch, rng):  # [B]
  x = batch["x"].reshape(len(batch["x"]), -1)
  prediction = x @ params["kernel"].reshape(-1) + params["bias"]
  return jnp.square(prediction - batch["y"])


def start(problem):
  return {"kernel": jnp.zeros(problem.w_real.shape), "bias": jnp.zeros([])}


def per_example(params, batch):  # {name: [B]}
  return {"loss": loss_fn(params, batch, None)}


def of_support(params):
  w_real = jnp.asarray(problem.w_real)
  return fo.evaluation.recovered_support(params["kernel"], w_real, threshold)


psi = fo.prox.kernels(fo.prox.l1(strength))  # The bias is left out.
options = dict(
  cohort_size=cohort_size, batch_size=batch_size, eval_every=eval_every
)
solution = fo.optimum(loss_fn, psi, start(problem), problem.data)
found = jax.device_get(of_support(solution.params))
print(f"true density: {np.mean(problem.w_real != 0):.4f}")
print(
  f"minimizer on the data of all clients: density {found['density']:.4f}, "
  f"F1 {found['f1']:.3f}"
)

# %% [markdown]
# FedMiD takes proximal steps at the clients, averages their models, and takes
# one more proximal step at the server. FedDualAvg averages *dual* states. A
# dual state is a sum of gradient steps; the proximal operator makes a model of
# it. The versions called OSP apply the operator only at the server.
#
# Each method tries the same client and server rates, with the same seeds. The
# picture shows each method at the rates with the lowest loss on *validation*
# examples. The true coefficients have no part in this choice.

# %%
methods = {
  "FedMiD": (fo.fed_mid, False),
  "FedMiD-OSP": (fo.fed_mid, True),
  "FedDualAvg": (fo.fed_dual_avg, False),
  "FedDualAvg-OSP": (fo.fed_dual_avg, True),
}
grid = {"learning_rate": rates, "server_learning_rate": server_rates}


def diverged(history):
  return int(np.isnan(history.values("train_loss")[:, -1]).sum())


def tuned(name, problem, psi, of_params, seeds):
  """The history of all points, and the points of the best setting."""
  factory, only_server_prox = methods[name]

  def make(learning_rate, server_learning_rate):
    return factory(
      loss_fn,
      psi,
      learning_rate,
      server_learning_rate,
      only_server_prox=only_server_prox,
    )

  result = fo.sweep(
    make,
    grid,
    start(problem),
    problem.data,
    rounds=rounds,
    seeds=seeds,
    validation=problem.validation,
    evaluate=fo.evaluation.federated(per_example, of_params=of_params),
    **options,
  )
  points = fo.grid_points(grid, seeds)
  best = rank(result.history, points, Criterion("validation_loss", "min"))[0]
  chosen = [points[best.points[0]][name] for name in grid]
  edges = [{values[0], values[-1]} for values in grid.values()]
  is_edge = any(c in edge for c, edge in zip(chosen, edges, strict=True))
  print(
    f"{name}: client rate {chosen[0]:g}, server rate {chosen[1]:g}"
    f"{' (at an edge)' if is_edge else ''}; "
    f"{diverged(result.history)} of {len(points)} diverged"
  )
  return result.history, best.points


curves = {"f1": {}, "density": {}, "recovery_error": {}}
for name in methods:
  history, best = tuned(name, problem, psi, of_support, seeds)
  for metric, of_methods in curves.items():
    values = history.values(metric)[best, 1:]
    of_methods[name] = (np.array(history.rounds[1:]), values)

# %% [markdown]
# *At an edge* means that a chosen rate is the smallest or largest that was
# tried: another may be better. The grid is small, so that this notebook is
# quick.
#
# F1 is the harmonic mean of precision and recall of the nonzero coefficients.
# It is 1 if exactly the true ones are found. Lines are means over the seeds,
# bands are their range.

# %%
for name in methods:
  last = {n: of[name][1][:, -1].mean() for n, of in curves.items()}
  print(
    f"{name:15} F1 {last['f1']:.3f}, density {last['density']:.4f}, distance "
    f"to the true coefficients {last['recovery_error']:.3f}"
  )
looks = fo.plots.method_styles(methods)
fo.plots.study_curves(curves["f1"], None, metric="f1", styles=looks)

# %%
true_density = np.mean(problem.w_real != 0)
with fo.plots.figure(1, scale=(1.28, 1.1)) as (figure, axes):
  panel = axes[0, 0]
  for name, (x, values) in curves["density"].items():
    color = looks[name].color
    panel.plot(x, values.mean(axis=0), label=name, color=color)
    ends = values.min(axis=0), values.max(axis=0)
    panel.fill_between(x, *ends, color=color, alpha=0.2)
  panel.axhline(true_density, color="black", linestyle=":", label="true")
  fo.plots.log_scale(panel.yaxis, (0.04, 1))
  panel.set_xlabel("Communication round")
  panel.set_ylabel("Density: share of nonzero coefficients")
  panel.legend()
figure

# %% [markdown]
# FedMiD applies $\psi$ twice, at the clients and at the server; FedMiD-OSP
# applies it once. Applied twice, $\psi$ pulls the model closer to 0 than the
# objective asks for. So the coefficients that FedMiD finds are too small: they
# are further from the true ones than those of FedMiD-OSP.
#
# ## What is averaged
#
# An `fo.Algorithm` is a record of functions, so it can be wrapped. With the
# wrapper below each client keeps the model at which its local steps ended, and
# returns the density of this model as a metric. Messages and means do not
# change. Here a coefficient is nonzero unless it is exactly 0.


# %%
def density(params):
  return jnp.mean(params["kernel"] != 0, dtype=jnp.float32)


class Recorder:
  """A worker that also remembers where a client's local steps ended."""

  def __init__(self, worker):
    self.worker = worker

  def __getattr__(self, name):
    return getattr(self.worker, name)

  def descend(self, loss_fn, rule, params):
    return self.descend_from(loss_fn, rule, params, rule.init(params))[0]

  def descend_from(self, loss_fn, rule, params, state):
    self.end, state = self.worker.descend_from(loss_fn, rule, params, state)
    return self.end, state


class RecordedCohort:
  """A cohort whose clients also keep their local model."""

  recorder = Recorder

  def __init__(self, cohort):
    self.cohort = cohort

  def __getattr__(self, name):
    return getattr(self.cohort, name)

  def mean(self, one_client, broadcast):
    def recorded_client(worker, broadcast):
      recorder = self.recorder(worker)
      message = one_client(recorder, broadcast)
      return self.output(message, recorder.end)

    return self.cohort.mean(recorded_client, broadcast=broadcast)

  def output(self, message, end):
    metrics = {"density": density(end)}
    return fo.ClientOutput(message, state=end, metrics=metrics)


def recorded(algorithm):
  return algorithm._replace(
    round=lambda state, cohort: algorithm.round(state, RecordedCohort(cohort)),
    init_client=lambda params: params,
  )


# %% [markdown]
# Both methods run with the same rates, and with all clients in each round.

# %%
records = {}
for name in ("FedMiD", "FedDualAvg"):
  records[name] = fo.simulate(
    recorded(methods[name][0](loss_fn, psi, recorded_rate)),
    start(problem),
    problem.data,
    rounds=recorded_rounds,
    evaluate=lambda params, data, test: {"density": density(params)},
    batch_size=batch_size,
    eval_every=1,
  )
  server = records[name].history.metrics["density"][0, -1]
  clients = records[name].traces["density"][-1].mean()
  kernels = np.asarray(records[name].client_state["kernel"])
  mean = np.mean(kernels.mean(axis=0) != 0)
  print(
    f"{name:10} density: clients {clients:.3f} on average, their mean "
    f"{mean:.3f}, server {server:.3f}"
  )

x = np.arange(1, recorded_rounds + 1)
shown_coefficients = 6 * lasso["num_nonzero"]
with fo.plots.figure(3, scale=(0.85, 1.1)) as (figure, axes):
  first, *others = axes[0]
  for name, record in records.items():
    color = looks[name].color
    server = record.history.metrics["density"][0, 1:]
    at_clients = record.traces["density"].mean(axis=1)
    first.plot(x, server, color=color, label=f"{name}, server")
    first.plot(x, at_clients, "--", color=color, label=f"{name}, clients")
  fo.plots.log_scale(first.yaxis, (0.04, 1))
  first.set(xlabel="Communication round", ylabel="Density")
  for panel, (name, record) in zip(others, records.items(), strict=True):
    kernels = np.asarray(record.client_state["kernel"])
    is_nonzero = kernels[:, :shown_coefficients] != 0
    look = dict(cmap="Greys", aspect="auto", interpolation="nearest")
    panel.imshow(is_nonzero, **look)
    panel.axvline(lasso["num_nonzero"] - 0.5, color="#D55E00")
    panel.grid(visible=False)
    panel.set_title(f"{name}: nonzero at a client")
    panel.set(xlabel="Coefficient", ylabel="Client")
  figure.legend(loc="outside lower center", ncols=4)
figure

# %% [markdown]
# In the panels of nonzero coefficients each row is a client's model in the last
# round. It is black where a coefficient is not 0; the true ones are left of the
# line. In FedMiD a local step lowers coefficients only by $\eta_c\lambda$, and
# the next gradient moves them by more. So few coefficients are 0, and their
# mean is 0 only where all clients have a 0. The mean is dense, and the server
# must apply the operator again. In FedDualAvg the weight of $\psi$ is the sum
# of all step sizes so far. So clients keep zeros, mostly at the same places.
#
# ## Low rank
#
# If $\psi$ is the nuclear norm of a matrix, the proximal operator lowers all
# singular values. The rank counts the singular values above the same threshold.
# Rates are chosen as before, with one seed.

# %%
problem_of_rank = fo.synthetic.low_rank(num_clients=num_clients, **low_rank)
nuclear = fo.prox.kernels(fo.prox.nuclear(0.5))


def of_rank(params):
  w_real = jnp.asarray(problem_of_rank.w_real)
  return fo.evaluation.recovered_rank(params["kernel"], w_real, threshold)


with fo.plots.figure(2, scale=(1.2, 1)) as (figure, axes):
  left, right = axes[0]
  for name in ("FedMiD", "FedDualAvg"):
    history, best = tuned(name, problem_of_rank, nuclear, of_rank, seeds[:1])
    look, x = dict(label=name, color=looks[name].color), history.rounds[1:]
    ranks = history.values("rank")[best[0]]
    errors = history.values("recovery_error")[best[0]]
    left.plot(x, ranks[1:], **look)
    right.plot(x, errors[1:], **look)
    print(f"  at the end rank {ranks[-1]:g}, ", end="")
    print(f"distance to the true matrix {errors[-1]:.3f}")
  left.axhline(low_rank["rank"], color="black", linestyle=":", label="true")
  left.set(ylabel="Rank", ylim=(0, low_rank["dim"]))
  right.set_ylabel("Distance to the true matrix")
  fo.plots.log_scale(right.yaxis, tuple(right.dataLim.intervaly))
  for panel in axes[0]:
    panel.set_xlabel("Communication round")
  handles, labels = left.get_legend_handles_labels()
  figure.legend(handles, labels, loc="outside lower center", ncols=3)
figure

# %% [markdown]
# ## The path of the iterates
#
# Now three clients have a quadratic loss each, in two dimensions, and
# $\psi = \lambda\|w\|_1$. The minimizer of the whole objective is on the axis:
# its second coefficient is 0. A second recorder stores the point after each
# step in the state of the client's rule. `trace` reads it there.

# %%
centers = np.array([[3.0, 1.2], [0.4, -2.6], [2.6, 1.0]], np.float32)
angles, curvatures = [0.5, -0.4, 0.9], [(0.4, 1.0), (1.2, 0.8), (0.5, 1.6)]
turn = lambda a: np.array([[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]])
hessians = np.array(
  [
    turn(a) @ np.diag(c) @ turn(a).T
    for a, c in zip(angles, curvatures, strict=True)
  ],
  np.float32,
)
plane = fo.ClientData.from_partition(
  {"center": centers, "hessian": hessians}, np.arange(3)[:, None]
)
plane_psi = fo.prox.l1(0.5)
begin = jnp.array([-0.6, 1.6])
plane_rate, plane_steps = 0.1, 5


def quadratic(w, batch, rng=None):  # [B]
  gap = w - batch["center"]
  return jnp.einsum("bi,bij,bj->b", gap, batch["hessian"], gap) / 2


class PathRecorder(Recorder):
  """Notes the point after each local step in the state of the rule."""

  def descend_from(self, loss_fn, rule, params, state):
    def update(grads, state, params=None):
      updates, inner = rule.update(grads, state["inner"], params)
      x, y = optax.apply_updates(params, updates)
      return updates, {"inner": inner, "x": x, "y": y}

    noting = optax.GradientTransformation(rule.init, update)
    noted = {"inner": state, "x": params[0], "y": params[1]}
    self.end, noted = self.worker.descend_from(loss_fn, noting, params, noted)
    return self.end, noted["inner"]


class PathCohort(RecordedCohort):
  recorder = PathRecorder

  def output(self, message, end):
    return message


def with_path(algorithm):
  return algorithm._replace(
    round=lambda state, cohort: algorithm.round(state, PathCohort(cohort))
  )


best = fo.optimum(quadratic, plane_psi, begin, plane).params
print(f"minimizer: {np.round(best, 3) + 0.0}")
paths = {}  # name -> (servers [R + 1, 2], clients [R, C, K, 2])
for name in ("FedMiD", "FedDualAvg"):
  result = fo.simulate(
    with_path(methods[name][0](quadratic, plane_psi, plane_rate)),
    begin,
    plane,
    rounds=plane_rounds,
    local_steps=plane_steps,
    batch_size=1,
    evaluate=lambda w, data, test: {"x": w[0], "y": w[1]},
    eval_every=1,
    trace=("x", "y"),
    sampler="fixed",
  )
  servers = np.stack([result.history.metrics[n][0] for n in "xy"], axis=-1)
  locals_ = np.stack([result.traces[n] for n in "xy"], axis=-1)
  paths[name] = servers, locals_
  mean = locals_[-1, :, -1].mean(axis=0)
  print(
    f"{name:10} clients' mean {np.round(mean, 3) + 0.0}, server "
    f"{np.round(servers[-1], 3) + 0.0}, "
    f"distance {np.linalg.norm(servers[-1] - best):.3f}"
  )

# %%
colors = [fo.plots.COLORS[i] for i in (0, 1, 2)]


def objective(w):
  pool = {name: jnp.asarray(v) for name, v in plane.examples.items()}
  return quadratic(w, pool).mean() + plane_psi.value(w)


x, y = np.linspace(-0.8, 2.0, 80), np.linspace(-1.4, 1.8, 80)
mesh = jnp.stack(jnp.meshgrid(x, y), axis=-1)
heights = np.asarray(jax.vmap(jax.vmap(objective))(mesh))


def draw_plane(panels):
  """Draws the level lines of the objective, and the minimizer."""
  for panel, name in zip(panels, paths, strict=True):
    panel.contour(x, y, heights, 14, colors="#CCCCCC", linewidths=0.7)
    panel.axhline(0, color="#888888", linewidth=0.7)
    panel.axvline(0, color="#888888", linewidth=0.7)
    panel.plot(*best, "*", color="#CC79A7", markersize=13, label="minimizer")
    panel.set(title=name, xlabel="First coefficient", aspect="equal")
    panel.set(xlim=(x[0], x[-1]), ylim=(y[0], y[-1]))
  panels[0].set_ylabel("Second coefficient")


with fo.plots.figure(2, scale=(1.25, 1.5)) as (figure, axes):
  draw_plane(axes[0])
  for panel, (servers, locals_) in zip(axes[0], paths.values(), strict=True):
    for r in range(plane_rounds):
      for m, color in enumerate(colors):
        path = np.vstack([servers[r], locals_[r, m]])
        panel.plot(*path.T, color=color, linewidth=0.8, alpha=0.6)
        if r == 0:
          panel.plot([], [], color=color, label=f"client {m + 1}, local steps")
    means = locals_[:, :, -1].mean(axis=1)
    panel.plot(*means.T, "kx", label="mean of the clients' models")
    panel.plot(*servers.T, "ko-", markersize=3.5, label="server")
  handles, labels = axes[0, 0].get_legend_handles_labels()
  figure.legend(handles, labels, loc="outside lower center", ncols=3)
figure

# %% [markdown]
# The animation shows the same round by round. The clients start from the
# server's model. Then their models are averaged (cross), and the server takes
# its step. FedMiD's server steps from the cross. FedDualAvg's server averages
# dual states, so it need not pass through the cross.

# %%
figure, panels = plt.subplots(1, 2, figsize=(6.6, 3.3), layout="constrained")
draw_plane(panels)
artists = []
for axes in panels:
  lines = [axes.plot([], [], color=color, linewidth=1.5)[0] for color in colors]
  cross = axes.plot([], [], "x", color="black", markersize=8)[0]
  server = axes.plot([], [], "o-", color="black", markersize=3.5)[0]
  artists.append((lines, cross, server))
heading = figure.suptitle("Round 1", fontsize=9)
stages = plane_steps + 2  # Local steps, the mean, the server's step.


def draw(frame):
  r, stage = divmod(frame, stages)
  heading.set_text(f"Round {r + 1}")
  for (lines, cross, server), path in zip(artists, paths.values(), strict=True):
    servers, locals_ = path
    for line, local in zip(lines, locals_[r], strict=True):
      walked = np.vstack([servers[r], local[: min(stage + 1, plane_steps)]])
      line.set_data(*walked.T)
    mean = locals_[r, :, -1].mean(axis=0, keepdims=True)
    cross.set_data(*(mean if stage >= plane_steps else mean[:0]).T)
    server.set_data(*servers[: r + 1 + (stage == stages - 1)].T)


figure.canvas.draw()
figure.set_layout_engine("none")  # The panels stay where they are.
film = animation.FuncAnimation(figure, draw, frames=plane_rounds * stages)
with tempfile.TemporaryDirectory() as folder:
  file = pathlib.Path(folder, "path.gif")
  film.save(file, animation.PillowWriter(fps=6), dpi=80)
  gif = file.read_bytes()
plt.close(figure)
print(f"{len(gif) / 1000:.0f} kB")
image = base64.b64encode(gif).decode()
HTML(f'<img alt="Paths of the iterates" src="data:image/gif;base64,{image}">')

# %% [markdown]
# ## Try next
#
# - Other regularizers: `fo.prox.kernels(fo.prox.l1(0.1) +
#   fo.prox.squared_l2(0.01))`, or a constraint, `fo.prox.l1_ball(16.0)`.
# - `fo.fed_mid(..., only_server_prox=True)` in the plane: where does it end,
#   and where with more local steps?
# - `fo.fed_dual_avg(..., averaged=True)`: the average of all iterates, as in
#   the paper's theorem. How sparse is it?
#
# The [documentation](https://fedjax-opt.github.io/fedjax_opt) has the
# algorithms of Yuan, Zaheer and Reddi, "Federated Composite Optimization" (ICML
# 2021), and their settings. [Your own method](02_your_own_method.ipynb) writes
# an algorithm. [Heterogeneity](05_heterogeneity.ipynb) shows what drives
# clients apart.
