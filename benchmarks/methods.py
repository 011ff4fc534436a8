"""Times methods: against FedAvg, FedJAX's rounds and FLSim's server steps.

  python benchmarks/methods.py all
  python benchmarks/methods.py grid
  python benchmarks/methods.py flsim --flsim_python=P
  python benchmarks/methods.py lasso --fedjax_python=P

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

import contextlib
import statistics
import time
from collections.abc import Callable, Mapping, Sequence

import fedjax_opt_worker as ours
import jax
import optax
import shared

import fedjax_opt as fo

TURNS = 7
Turn = Callable[[], float]  # Returns seconds.
Clock = Callable[[], float]


def in_turns(
  contenders: Mapping[str, Turn],
) -> tuple[dict[str, float], dict[str, float]]:
  """Seconds of each: of the first turn, which compiles; medians of others."""
  taken = {name: [] for name in contenders}
  for _ in range(1 + TURNS):
    for name, turn in contenders.items():
      taken[name].append(turn())
  first = {name: some[0] for name, some in taken.items()}
  return first, {n: statistics.median(some[1:]) for n, some in taken.items()}


def turn_of(
  simulator: fo.Simulator, workload: shared.Workload, clock: Clock
) -> Turn:
  """A turn returns the seconds of one round, of all points together."""
  _, init = ours.make_loss(workload)
  state = simulator.init(init(jax.random.key(0)))

  def turn() -> float:
    nonlocal state
    start = clock()
    state, _ = simulator.run(state, workload.rounds_per_turn)
    jax.block_until_ready(state.server)
    return (clock() - start) / workload.rounds_per_turn

  return turn


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


def every(options, clock: Clock) -> tuple[Sequence[str], list[list[str]]]:
  """A row for each method and workload."""
  found = []
  for workload in shared.WORKLOADS.values():
    found += of_workload(workload, clock)
  return ("round", "method", "ms", "of FedAvg", "gradients", "left"), found


def of_workload(workload: shared.Workload, clock: Clock) -> list[list[str]]:
  """A row for each method."""
  loss_fn, init = ours.make_loss(workload)
  data, gradients = jax.device_put(ours.client_data(workload)), {}

  def contender(name: str) -> Turn:
    rate = workload.learning_rate
    given = rate if name in _RATES else optax.sgd(rate)
    given = optax.adamw(rate) if name == _ADAMW else given
    factory = fo.fed_avg if name == _ADAMW else getattr(fo, name)
    settings = {
      "batch_size": workload.batch_size,
      "local_steps": workload.num_steps,
      "eval_every": ours.MAX_ROUNDS,
    }
    algorithm = factory(loss_fn, given)
    once = fo.simulate(algorithm, init, data, rounds=1, **settings)
    gradients[name] = once.cost["gradient_evaluations_per_round"]
    return turn_of(fo.Simulator(algorithm, data, **settings), workload, clock)

  _, seconds = in_turns({name: contender(name) for name in NAMES})
  rows = []
  for name in NAMES:
    ratio = seconds[name] / seconds["fed_avg"]
    work = gradients[name] / gradients["fed_avg"]
    numbers = f"{1e3 * seconds[name]:.3g} {ratio:.2f} {work:.2f}"
    rows.append([workload.name, name, *numbers.split(), f"{ratio / work:.2f}"])
  return rows


# Server steps of FedBuff.

_ARRIVALS, _AWAY, _CLIENTS = 10, 20, 40
_RATES_OF_GRID, _SEEDS_OF_GRID = 8, 3


def asynchronous(name: str) -> shared.Workload:
  """A workload with more clients than are away."""
  return shared.WORKLOADS[name]._replace(num_clients=_CLIENTS)


def server_steps(
  workload: shared.Workload, clock: Clock, rates: int = 1, seeds: int = 1
) -> Turn:
  """A turn returns the seconds of one server step of all points together."""
  loss_fn, _ = ours.make_loss(workload)
  rounds = workload.rounds_per_turn
  system = fo.systems.sample(
    workload.num_clients, fo.systems.lognormal(1.0, 1.0)
  )
  schedule = {
    seed: fo.schedules.buffered(
      system.durations(seed=seed), (TURNS + 1) * rounds, _AWAY, _ARRIVALS
    )
    for seed in range(seeds)
  }
  simulator = fo.Simulator(
    lambda rate: fo.fed_buff(loss_fn, optax.sgd(rate)),
    ours.client_data(workload),
    grid={"rate": [workload.learning_rate / (1 + i) for i in range(rates)]},
    seeds=range(seeds),
    schedule=schedule,
    batch_size=workload.batch_size,
    local_steps=workload.num_steps,
    weighting="uniform",
    eval_every=rounds,
  )
  return turn_of(simulator, workload, clock)


def grid(options, clock: Clock) -> tuple[Sequence[str], list[list[str]]]:
  """A row for each workload."""
  points, rows = _RATES_OF_GRID * _SEEDS_OF_GRID, []
  for workload in map(asynchronous, ("least_squares", "mlp")):
    first, seconds = in_turns(
      {
        "one": server_steps(workload, clock),
        "all": server_steps(workload, clock, _RATES_OF_GRID, _SEEDS_OF_GRID),
      }
    )
    ratio = seconds["all"] / seconds["one"]
    numbers = [f"{1e3 * each:.3g}" for each in seconds.values()]
    compiling = [
      f"{workload.rounds_per_turn * (first[of] - each):.1f}"
      for of, each in seconds.items()
    ]
    rows.append([workload.name, *numbers, f"{ratio / points:.2f}", *compiling])
  titles = ("one point, ms", f"{points} points, ms", "of as many runs")
  return ("server step", *titles, "compile s", f"of {points}"), rows


def flsim(options, clock: Clock) -> tuple[Sequence[str], list[list[str]]]:
  """A row."""
  workload = asynchronous("least_squares")
  epoch = workload.num_clients // _ARRIVALS
  kind = "processor_seconds" if options.processor else "seconds"
  asked = {"buffer": _ARRIVALS, "concurrency": _AWAY, "rounds": epoch}
  process = shared.Process("flsim_worker", options.flsim_python)
  with contextlib.closing(process):
    there = lambda: process.call("fed_buff", workload=workload, **asked)[kind]
    here = server_steps(workload, clock)
    first, seconds = in_turns({"here": here, "FLSim": lambda: there() / epoch})
  numbers = (f"{1e3 * each:.3g}" for each in seconds.values())
  compiling = workload.rounds_per_turn * (first["here"] - seconds["here"])
  row = [workload.name, *numbers, f"{compiling:.1f}"]
  return ("server step", "here ms", "FLSim ms", "compile s"), [row]


# LASSO.

_ALGORITHMS = ("fed_mid", "fed_mid_osp", "fed_dual_avg", "fed_dual_avg_osp")
_ROUNDS, _POINTS = 500, 63


def lasso(options, clock: Clock) -> tuple[Sequence[str], list[list[str]]]:
  """Whole grids of four algorithms, once with evaluations."""
  workload, theirs, rows = shared.WORKLOADS["least_squares"], [], []
  asked = {"workload": workload, "rounds": workload.rounds_per_turn}
  process = shared.Process(
    "fedjax_worker", options.fedjax_python, shared.ON_CPU
  )
  with contextlib.closing(process):
    # After an evaluation diverged points stop.
    for how, every in {"at the end": None, "every 10 rounds": 10}.items():
      results = []
      for name in _ALGORITHMS:
        results.append(ours.run_lasso_grid(name, _ROUNDS, every))
        answer = process.call("fed_avg", **asked)
        theirs.append(answer["seconds"] / workload.rounds_per_turn)
      run = sum(result.run_seconds for result in results)
      compiling = sum(result.compile_seconds for result in results)
      rows.append([f"evaluated {how}", f"{run:.1f}", f"{compiling:.1f}"])
  one = statistics.median(theirs[1:])  # The first one compiles.
  total = f"{one * _ROUNDS * _POINTS * len(_ALGORITHMS):.0f}"
  of_one = f"FedJAX, {1e3 * one:.2f} ms a round and point"
  return ("four grids", "rounds s", "compile s"), [*rows, [of_one, total, ""]]


PARTS = {"all": every, "grid": grid, "flsim": flsim, "lasso": lasso}


def main() -> None:
  parser = shared.parser(__doc__, ("fedjax", "flsim"))
  parser.add_argument("part", choices=PARTS)
  parser.add_argument("--processor", action="store_true")
  options = parser.parse_args()
  clock = time.process_time if options.processor else time.perf_counter
  print(f"{shared.machine()}; jax {jax.__version__}", flush=True)
  print(shared.table(*PARTS[options.part](options, clock)))


if __name__ == "__main__":
  main()
