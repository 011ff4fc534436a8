"""Times methods: against FedAvg, FedJAX's rounds and LAPACK.

  PYTHONPATH=. python benchmarks/methods.py all [--workloads cnn mlp]
  PYTHONPATH=. python benchmarks/methods.py lasso --fedjax_python=P
  PYTHONPATH=. python benchmarks/methods.py singular_values

The contenders of a part take turns, so that the noise of the machine is shared;
medians count.

all: a round of each method over FedAvg's, with the same clients, batches and
local steps, and plain steps. "gradients" is how many gradients of an example a
method evaluates for one of FedAvg, and the last column what is left of the time
when they are divided out: state that is kept, what is sent besides the model,
and element-wise work in the local steps.

lasso: LASSO I of the composite optimization paper, 9 x 7 rates, 500 rounds.
FedJAX has no composite algorithm and no grids: its time is that of one plain
FedAvg round of the same size (10 clients x 13 steps x 10), times rounds, points
and algorithms.

singular_values: soft thresholding of those of small matrices, as a step of
FedDualAvg with the nuclear norm does for each client and grid point. The error
is the largest difference to NumPy's decomposition in float64, over thresholds
from 1e-4 to 0.9 of the largest singular value, in units of that value.
"""

import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence

import fedjax_opt_worker as ours
import jax
import jax.numpy as jnp
import numpy as np
import optax
import shared
from jax import lax

import fedjax_opt as fo

Turn = Callable[[], float]  # Returns seconds.


def medians(contenders: Mapping[str, Turn], turns: int) -> dict[str, float]:
  """Seconds of each; a first turn of all compiles."""
  taken = {name: [] for name in contenders}
  for _ in range(1 + turns):
    for name, turn in contenders.items():
      taken[name].append(turn())
  return {name: statistics.median(some[1:]) for name, some in taken.items()}


def timed(run: Callable[[], jax.Array], number: int) -> Turn:
  """Seconds of one of so many that a call of a program does."""

  def turn() -> float:
    start = time.perf_counter()
    jax.block_until_ready(run())
    return (time.perf_counter() - start) / number

  return turn


# All methods.

_RATES = ("scaffold", "domo", "fed_nova", "fed_cm", "mime_lite", "prox_skip",
          "mo_fed_sam", "fed_speed")  # fmt: skip
_RULES = ("fed_avg", "fed_prox", "fed_dyn", "fed_exp", "fed_sam", "diloco",
          "ditto")  # fmt: skip
NAMES = (*_RULES, *_RATES)


def every(options) -> tuple[Sequence[str], list[list[str]]]:
  """A row for each method and workload."""
  names = tuple(dict.fromkeys(["fed_avg", *options.methods]))
  found = [
    row
    for workload in options.workloads
    for row in of_workload(shared.WORKLOADS[workload], options.turns, names)
  ]
  return ("round", "method", "ms", "of FedAvg", "gradients", "left"), found


def of_workload(
  workload: shared.Workload, turns: int, names: Sequence[str]
) -> list[list[str]]:
  """A row for each method."""
  loss_fn, params = ours.make_loss(workload)
  data, gradients = jax.device_put(ours.client_data(workload)), {}

  def contender(name: str) -> Turn:
    rate = workload.learning_rate
    given = rate if name in _RATES else optax.sgd(rate)
    algorithm = getattr(fo, name)(loss_fn, given)

    def turn() -> float:
      result = fo.simulate(
        algorithm, params, data, rounds=workload.rounds_per_turn,
        batch_size=workload.batch_size, local_steps=workload.num_steps,
        eval_every=ours.MAX_ROUNDS,
      )  # fmt: skip
      gradients[name] = result.cost["gradient_evaluations_per_round"]
      return result.run_seconds / workload.rounds_per_turn

    return turn

  seconds = medians({name: contender(name) for name in names}, turns)
  rows = []
  for name in names:
    ratio = seconds[name] / seconds["fed_avg"]
    work = gradients[name] / gradients["fed_avg"]
    numbers = f"{1e3 * seconds[name]:.3g} {ratio:.2f} {work:.2f}"
    rows.append([workload.name, name, *numbers.split(), f"{ratio / work:.2f}"])
  return rows


# LASSO.


def lasso(options) -> tuple[Sequence[str], list[list[str]]]:
  """Whole grids of four algorithms, once with evaluations."""
  grid = {"client_lr": ours.CLIENT_RATES, "server_lr": ours.SERVER_RATES}
  points, workload = 63, shared.WORKLOADS["least_squares"]
  fedjax = shared.Worker("fedjax", options.fedjax_python)
  theirs, rows, totals = [], [], {None: 0.0, 10: 0.0}
  for name in ours.ALGORITHMS:
    for eval_every in totals:  # After an evaluation diverged points stop.
      result = ours.run_lasso_grid(name, grid, options.rounds, eval_every)
      totals[eval_every] += result.run_seconds
      answer = fedjax.run("fed_avg", workload)
      theirs.append(answer["seconds"] / workload.rounds_per_turn)
      how = "every 10 rounds" if eval_every else "at the end"
      seconds = f"{result.run_seconds:.1f} {result.compile_seconds:.1f}"
      rows.append([name, how, *seconds.split()])
  fedjax.close()
  one = statistics.median(theirs[1:])  # The first one compiles.
  total = one * options.rounds * points * len(ours.ALGORITHMS)
  ratios = (f"{total / seconds:.0f}" for seconds in totals.values())
  rows.append(
    [f"FedJAX, {1e3 * one:.2f} ms a round and point", "", f"{total:.0f}", ""]
  )
  rows.append([f"of all four: {', '.join(ratios)} times", "", "", ""])
  return ("algorithm", "evaluated", "seconds", "compile s"), rows


# Singular values.

SIZE = 32


def svd(matrix, threshold):
  """The definition."""
  u, s, vt = jnp.linalg.svd(matrix, full_matrices=False)
  return (u * jax.nn.relu(s - threshold)) @ vt


THRESHOLDS = {
  "jnp.linalg.svd": svd,
  "fedjax_opt.prox": fo.prox.soft_threshold_singular_values,
}


def matrices(batch: int) -> np.ndarray:
  """Half of them noise, half of them of low rank with a tenth of noise."""
  noise = np.random.default_rng(0).normal(size=(batch, SIZE, SIZE))
  low_rank = np.diag(np.arange(SIZE) < SIZE // 2)
  halves = np.arange(batch) % 2
  return np.where(halves[:, None, None], low_rank + 0.1 * noise, noise)


def error(contender) -> float:
  """The largest error over matrices and thresholds, relative to the norm."""
  x = matrices(100)
  largest = np.linalg.norm(x, 2, axis=(1, 2))
  u, s, vt = np.linalg.svd(x)
  mapped, worst = jax.jit(jax.vmap(contender)), 0.0
  for relative in (1e-4, 1e-3, 1e-2, 0.1, 0.3, 0.9):
    t = relative * largest
    exact = (u * np.maximum(s - t[:, None], 0)[:, None, :]) @ vt
    found = np.asarray(mapped(jnp.asarray(x), jnp.asarray(t)), float)
    worst = max(worst, np.max(np.abs(found - exact).max((1, 2)) / largest))
  return worst


def compiled_loop(contender, batch: int) -> Turn:
  """Microseconds a matrix; each input needs the last output."""
  x, length = jnp.asarray(matrices(batch)), -(-630 // batch)
  t = jnp.full(batch, 0.1 * SIZE**0.5, x.dtype)

  @jax.jit
  def run(x):
    step = lambda out, _: (jax.vmap(contender)(x + 1e-6 * out, t), None)
    return lax.scan(step, x, length=length)[0]

  return timed(lambda: run(x), length * batch)


def singular_values(options) -> tuple[Sequence[str], list[list[str]]]:
  """Microseconds a matrix, by how many are thresholded at once."""
  batches, rows = (1, 63, 630), {name: [name] for name in THRESHOLDS}
  for batch in batches:
    loops = {n: compiled_loop(f, batch) for n, f in THRESHOLDS.items()}
    for name, seconds in medians(loops, options.turns).items():
      rows[name].append(f"{1e6 * seconds:.0f}")
  for name, contender in THRESHOLDS.items():
    rows[name].append(f"{error(contender):.1e}")
  header = (f"{b} at once, µs" for b in batches)
  return (f"{SIZE} x {SIZE}", *header, "largest error"), list(rows.values())


PARTS = {
  "all": every, "lasso": lasso, "singular_values": singular_values
}  # fmt: skip


def main() -> None:
  parser = shared.parser(__doc__, fedjax="FedJAX")
  parser.add_argument("part", choices=PARTS)
  parser.add_argument("--turns", type=int, default=9)
  parser.add_argument("--rounds", type=int, default=500, help="of lasso")
  known = list(shared.WORKLOADS)
  parser.add_argument("--workloads", nargs="+", choices=known, default=known)
  parser.add_argument("--methods", nargs="+", choices=NAMES, default=NAMES)
  options = parser.parse_args()
  print(f"{shared.machine()}; jax {jax.__version__}", flush=True)
  print(shared.table(*PARTS[options.part](options)))


if __name__ == "__main__":
  sys.exit(main())
