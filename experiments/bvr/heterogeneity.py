"""Rounds until the gradient is small, against heterogeneity and local steps.

  python -m experiments.bvr.heterogeneity --figures_dir=figures

How many rounds local steps save depends on how much the clients' Hessians
differ (zeta). Their gradients differ in any case. All methods have the same
K B examples of each client in a round, and each is shown at its best rate. The
large gradient that begins a stage of BVR-L-SGD or SARAH counts as a round.
"""

import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from absl import app, flags

import fedjax_opt as fo
from experiments.tasks import nonconvex
from fedjax_opt import algorithms, plots
from fedjax_opt.data import synthetic

FLAGS = flags.FLAGS
flags.DEFINE_string("figures_dir", "runs/bvr/figures", "Folder of the picture.")
flags.DEFINE_integer("rounds", 300, "Rounds, at most.")
flags.DEFINE_float("eps", 1e-4, "Squared gradient norm to be reached.")
flags.DEFINE_integer("batch_size", 2, "B, examples in a local step.")
flags.DEFINE_integer("seeds", 3, "Runs of each setting.")

METHODS = {
  "Minibatch SGD": algorithms.minibatch_sgd,
  "Minibatch SARAH": algorithms.minibatch_sarah,
  "Local SGD": algorithms.local_sgd,
  "SCAFFOLD": algorithms.scaffold,
  "BVR-L-SGD": algorithms.bvr_l_sgd,
}
IN_STAGES = ("Minibatch SARAH", "BVR-L-SGD")
ZETAS = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0)
LOCAL_STEPS = (1, 4, 16, 64)  # K
SMALL_ZETA, MANY_STEPS = 0.1, 64  # while the other one varies
RATES = (0.001, 0.0025, 0.006, 0.016, 0.04, 0.1, 0.25, 0.6)


class Best(NamedTuple):
  """What the best rate reaches."""

  rounds: float  # inf if eps is not reached
  rate: float


def main(argv: list[str]) -> None:
  del argv
  problem = synthetic.heterogeneous(SMALL_ZETA)
  against_zeta, against_steps = {}, {}
  for method in METHODS:
    of_steps = {
      steps: measure(method, problem, steps, (SMALL_ZETA,))[0]
      for steps in LOCAL_STEPS
      if steps != MANY_STEPS
    }
    of_zeta = measure(method, problem, MANY_STEPS, ZETAS)
    of_steps[MANY_STEPS] = of_zeta[ZETAS.index(SMALL_ZETA)]
    against_zeta[method] = of_zeta
    against_steps[method] = [of_steps[steps] for steps in LOCAL_STEPS]
  print(table(f"ζ, at K = {MANY_STEPS}", ZETAS, against_zeta))
  print(table(f"K, at ζ = {SMALL_ZETA:g}", LOCAL_STEPS, against_steps))
  folder = pathlib.Path(FLAGS.figures_dir)
  folder.mkdir(parents=True, exist_ok=True)
  draw(against_zeta, against_steps, folder / "heterogeneity.png")


def measure(
  method: str,
  problem: synthetic.Heterogeneous,
  local_steps: int,
  zetas: Sequence[float],
) -> list[Best]:
  """The best rate at each zeta; zetas, rates and seeds are one program."""
  if method.startswith("Minibatch"):
    # In the mean over all clients at one point, zeta cancels.
    zetas, copies = zetas[:1], len(zetas)
  else:
    copies = 1

  def make(zeta, rate):
    return METHODS[method](problem._replace(zeta=zeta).loss_fn, rate)

  def evaluate(params, data, test):
    del data, test  # The objective is known, and the same for all zetas.
    gradient = jax.grad(problem.objective)(params)
    return {"grad_norm_sq": jnp.sum(jnp.square(gradient))}

  result = fo.sweep(
    make,
    {"zeta": zetas, "rate": RATES},
    nonconvex.start(problem),
    problem.data,
    rounds=FLAGS.rounds,
    seeds=range(FLAGS.seeds),
    local_steps=local_steps,
    batch_size=FLAGS.batch_size,
    replacement=True,
    evaluate=evaluate,
    eval_every=1,
  )
  values = result.history.metrics["grad_norm_sq"]
  values = values.reshape(len(zetas), len(RATES), FLAGS.seeds, -1)
  reached = values.mean(axis=2) <= FLAGS.eps  # [zetas, rates, R + 1]
  rounds = np.where(reached.any(-1), reached.argmax(-1), np.inf)
  if method in IN_STAGES:
    budget = local_steps * FLAGS.batch_size
    stage = math.ceil(1 + problem.data.max_size / budget)
    rounds = rounds + np.ceil(rounds / stage)
  rounds[rounds > FLAGS.rounds] = np.inf
  best = [Best(min(own), RATES[np.argmin(own)]) for own in rounds]
  return best * copies


def table(
  title: str, columns: Sequence[float], rows: Mapping[str, Sequence[Best]]
) -> str:
  """Rounds, and in brackets the rate, in Markdown."""
  names = [f"{value:g}" for value in columns]
  rule = "|---" * (1 + len(names)) + "|"
  lines = ["", f"| {title} | {' | '.join(names)} |", rule]
  for method, results in rows.items():
    cells = [
      f"{best.rounds:.0f} ({best.rate:g})"
      if np.isfinite(best.rounds)
      else f"> {FLAGS.rounds}"
      for best in results
    ]
    lines.append(f"| {method} | {' | '.join(cells)} |")
  return "\n".join(lines)


def draw(
  against_zeta: Mapping[str, Sequence[Best]],
  against_steps: Mapping[str, Sequence[Best]],
  path: pathlib.Path,
) -> None:
  """Two panels; a cross above the line is a method that did not get there."""
  with plots.figure(columns=2) as (figure, axes):
    left, right = axes[0]
    panel(left, ZETAS, against_zeta)
    left.set_xlabel("ζ, how far clients' Hessians differ")
    left.set_ylabel(f"Rounds until |∇f|² ≤ {FLAGS.eps:g}")
    left.set_title(f"K = {MANY_STEPS} local steps")
    panel(right, LOCAL_STEPS, against_steps)
    right.set_xlabel("K, local steps in a round")
    right.set_title(f"ζ = {SMALL_ZETA:g}")
    right.sharey(left)
    handles, names = left.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=3)
    figure.savefig(path)


def panel(axes, values: Sequence[float], rows) -> None:
  """Rounds on a log axis; the values are evenly spaced."""
  failed = 1.5 * FLAGS.rounds
  places = np.arange(len(values))
  for i, (method, results) in enumerate(rows.items()):
    rounds = np.array([best.rounds for best in results])
    look = {"color": plots.COLORS[i], "markersize": 4}
    axes.plot(
      places,
      np.where(np.isfinite(rounds), rounds, np.nan),
      label=method,
      marker="o",
      linestyle="--" if method.startswith("Minibatch") else "-",
      **look,
    )
    lost = places[~np.isfinite(rounds)]
    # Side by side where several fail.
    axes.plot(lost + 0.1 * (i - 2), [failed] * len(lost), "x", **look)
  axes.axhline(FLAGS.rounds, color="#808080", linewidth=0.7)
  axes.annotate(
    "not reached", (0, 1), xycoords="axes fraction", fontsize=7, va="top"
  )
  axes.set_yscale("log")
  axes.set_ylim(1.5, 2.2 * FLAGS.rounds)
  axes.yaxis.set_major_formatter("{x:g}")
  axes.set_xticks(places, [f"{value:g}" for value in values])


if __name__ == "__main__":
  app.run(main)
