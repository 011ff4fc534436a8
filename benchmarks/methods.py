"""Times methods: against FedAvg, FedJAX's rounds and FLSim's server steps.

  PYTHONPATH=. python benchmarks/methods.py all [--workloads cnn mlp]
  PYTHONPATH=. python benchmarks/methods.py grid --workloads mlp
  PYTHONPATH=. python benchmarks/methods.py flsim --flsim_python=P
  PYTHONPATH=. python benchmarks/methods.py lasso --fedjax_python=P

The contenders of a part take turns, so that the noise of the machine is shared;
medians count.

all: a round of each method over FedAvg's, with the same clients, batches and
local steps, and plain steps. "gradients" is how many gradients of an example a
method evaluates for one of FedAvg, and the last column what is left of the time
when they are divided out: state that is kept, what is sent besides the model,
and element-wise work in the local steps. With --processor times are seconds of
the processor, for a machine that has other work; in the next two parts too.

grid: a server step of FedBuff with 10 arrivals of 20 clients that are away, of
40, at 24 points beside the same at one: 8 rates with 3 seeds, each seed with a
timetable of its own. "of as many runs" is the time of a point over that of one
run. The compilations are what the first turns took more.

flsim: such a step at one point beside FLSim's (flsim_worker.py).

lasso: LASSO I of the composite optimization paper, 9 x 7 rates, 500 rounds.
FedJAX has no composite algorithm and no grids: its time is that of one plain
FedAvg round of the same size (10 clients x 13 steps x 10), times rounds, points
and algorithms.
"""

import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence

import fedjax_opt_worker as ours
import jax
import optax
import shared

import fedjax_opt as fo

Turn = Callable[[], float]  # Returns seconds.


def medians(contenders: Mapping[str, Turn], turns: int) -> dict[str, float]:
  """Seconds of each; a first turn of all compiles."""
  taken = {name: [] for name in contenders}
  for _ in range(1 + turns):
    for name, turn in contenders.items():
      taken[name].append(turn())
  return {name: statistics.median(some[1:]) for name, some in taken.items()}


# All methods.

_RATES = ("scaffold", "domo", "fed_nova", "fed_cm", "mime_lite", "prox_skip",
          "mo_fed_sam", "fed_speed", "fed_gamma",
          "fed_dc", "fed_smoo", "fed_adamw", "fed_lada",
          "p_fed_me", "per_fed_avg")  # fmt: skip
_RULES = ("fed_avg", "fed_prox", "fed_dyn", "fed_exp", "fed_sam", "fed_acg",
          "fed_lesam", "diloco", "ditto")  # fmt: skip
# FedAvg with AdamW, beside which methods with Adam's moments stand.
_ADAMW = "local_adamw"
NAMES = (*_RULES, *_RATES, _ADAMW)


def every(options) -> tuple[Sequence[str], list[list[str]]]:
  """A row for each method and workload."""
  names = tuple(dict.fromkeys(["fed_avg", *options.methods]))
  found = [
    row
    for workload in options.workloads
    for row in of_workload(shared.WORKLOADS[workload], options, names)
  ]
  return ("round", "method", "ms", "of FedAvg", "gradients", "left"), found


def of_workload(
  workload: shared.Workload, options, names: Sequence[str]
) -> list[list[str]]:
  """A row for each method."""
  clock = time.process_time if options.processor else time.perf_counter
  loss_fn, params = ours.make_loss(workload)
  data, gradients = jax.device_put(ours.client_data(workload)), {}

  def contender(name: str) -> Turn:
    rate = workload.learning_rate
    given = rate if name in _RATES else optax.sgd(rate)
    given = optax.adamw(rate) if name == _ADAMW else given
    factory = fo.fed_avg if name == _ADAMW else getattr(fo, name)
    algorithm = factory(loss_fn, given)
    settings = {
      "batch_size": workload.batch_size,
      "local_steps": workload.num_steps,
      "eval_every": ours.MAX_ROUNDS,
    }
    cost = fo.simulate(algorithm, params, data, rounds=1, **settings).cost
    gradients[name] = cost["gradient_evaluations_per_round"]
    simulator = fo.Simulator(algorithm, data, **settings)
    state = simulator.init(params)

    def turn() -> float:
      nonlocal state
      start = clock()
      state, _ = simulator.run(state, workload.rounds_per_turn)
      jax.block_until_ready(state.server)
      return (clock() - start) / workload.rounds_per_turn

    return turn

  contenders = {name: contender(name) for name in names}
  seconds = medians(contenders, options.turns)
  rows = []
  for name in names:
    ratio = seconds[name] / seconds["fed_avg"]
    work = gradients[name] / gradients["fed_avg"]
    numbers = f"{1e3 * seconds[name]:.3g} {ratio:.2f} {work:.2f}"
    rows.append([workload.name, name, *numbers.split(), f"{ratio / work:.2f}"])
  return rows


# Server steps of FedBuff.

_ARRIVALS, _AWAY, _CLIENTS = 10, 20, 40
_GRID = {"rates": 8, "seeds": 3}


def asynchronous(options) -> list[shared.Workload]:
  """The chosen workloads, with more clients than are away."""
  chosen = [shared.WORKLOADS[name] for name in options.workloads]
  return [each._replace(num_clients=_CLIENTS) for each in chosen]


def server_steps(
  workload: shared.Workload, options, rates: int = 1, seeds: int = 1
) -> Turn:
  """A turn returns the seconds of one server step of all points together."""
  clock = time.process_time if options.processor else time.perf_counter
  loss_fn, params = ours.make_loss(workload)
  rounds = workload.rounds_per_turn
  system = fo.systems.sample(
    workload.num_clients, fo.systems.lognormal(1.0, 1.0)
  )
  simulator = fo.Simulator(
    lambda rate: fo.fed_buff(loss_fn, optax.sgd(rate)),
    ours.client_data(workload),
    grid={"rate": [workload.learning_rate / (1 + i) for i in range(rates)]},
    seeds=range(seeds),
    schedule={
      seed: fo.schedules.buffered(
        system.durations(seed=seed),
        (options.turns + 2) * rounds,
        _AWAY,
        _ARRIVALS,
      )
      for seed in range(seeds)
    },
    batch_size=workload.batch_size,
    local_steps=workload.num_steps,
    weighting="uniform",
    eval_every=rounds,
  )
  state = simulator.init(params)

  def turn() -> float:
    nonlocal state
    start = clock()
    state, _ = simulator.run(state, rounds)
    jax.block_until_ready(state.server)
    return (clock() - start) / rounds

  return turn


def grid(options) -> tuple[Sequence[str], list[list[str]]]:
  """A row for each workload."""
  points = _GRID["rates"] * _GRID["seeds"]
  rows = []
  for workload in asynchronous(options):
    turns = {
      "one": server_steps(workload, options),
      "all": server_steps(workload, options, **_GRID),
    }
    first = {of: turn() for of, turn in turns.items()}
    seconds = medians(turns, options.turns)
    ratio = seconds["all"] / seconds["one"]
    numbers = [f"{1e3 * each:.3g}" for each in seconds.values()]
    compiling = [
      f"{workload.rounds_per_turn * (first[of] - each):.1f}"
      for of, each in seconds.items()
    ]
    rows.append([workload.name, *numbers, f"{ratio / points:.2f}", *compiling])
  titles = ("one point, ms", f"{points} points, ms", "of as many runs")
  return ("server step", *titles, "compile s", f"of {points}"), rows


def flsim(options) -> tuple[Sequence[str], list[list[str]]]:
  """A row for each workload."""
  worker = shared.Worker("flsim", options.flsim_python)
  rows = [
    beside_flsim(workload, options, worker)
    for workload in asynchronous(options)
  ]
  worker.close()
  return ("server step", "here ms", "FLSim ms", "compile s"), rows


def beside_flsim(
  workload: shared.Workload, options, worker: shared.Worker
) -> list[str]:
  """A row."""
  here = server_steps(workload, options)
  epoch = workload.num_clients // _ARRIVALS

  def there() -> float:
    settings = {"buffer": _ARRIVALS, "concurrency": _AWAY}
    answer = worker.run("fed_buff", workload, settings, epoch)
    kind = "processor_seconds" if options.processor else "seconds"
    return answer[kind] / epoch

  first = here()
  seconds = medians({"here": here, "FLSim": there}, options.turns)
  numbers = (f"{1e3 * each:.3g}" for each in seconds.values())
  compiling = workload.rounds_per_turn * (first - seconds["here"])
  return [workload.name, *numbers, f"{compiling:.1f}"]


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


PARTS = {"all": every, "grid": grid, "flsim": flsim, "lasso": lasso}


def main() -> None:
  parser = shared.parser(__doc__, fedjax="FedJAX", flsim="FLSim")
  parser.add_argument("part", choices=PARTS)
  parser.add_argument("--turns", type=int, default=9)
  parser.add_argument("--processor", action="store_true")
  parser.add_argument("--rounds", type=int, default=500, help="of lasso")
  known = list(shared.WORKLOADS)
  parser.add_argument("--workloads", nargs="+", choices=known, default=known)
  parser.add_argument("--methods", nargs="+", choices=NAMES, default=NAMES)
  options = parser.parse_args()
  print(f"{shared.machine()}; jax {jax.__version__}", flush=True)
  print(shared.table(*PARTS[options.part](options)))


if __name__ == "__main__":
  sys.exit(main())
