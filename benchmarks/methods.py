"""Times methods: against FedAvg, and against FLSim's server steps.

  python benchmarks/methods.py all
  python benchmarks/methods.py grid
  python benchmarks/methods.py flsim --flsim_python=P

The contenders of a part take turns, so that the noise of the machine is shared;
medians count.

all: a round of each method over FedAvg's, with the same clients, batches and
local steps, and plain steps. "gradients" is how many gradients of an example a
method evaluates for one of FedAvg, and the last column what is left of the time
when they are divided out: state that is kept, what is sent besides the model,
and element-wise work in the local steps. With --clock=processor_seconds times
are those of the processor, for a machine that has other work; in the next two
parts too.

grid: a server step of FedBuff with 10 arrivals of 20 clients that are away, of
40, at 24 points beside the same at one: 8 rates with 3 seeds, each seed with a
timetable of its own. "of as many runs" is the time of a point over that of one
run. The compilations are what the first turns took more.

flsim: such a step at one point beside FLSim's (flsim_worker.py).
"""

import functools
import time
from collections.abc import Callable, Mapping

import fedjax_opt_worker as ours
import jax
import optax
import pandas
import shared

import fedjax_opt as fo
from fedjax_opt.algorithms import ALGORITHMS

TURNS = 7
# Of a turn: long enough for the clock, short enough to take turns.
ROUNDS = {"cnn": 5, "mlp": 5, "least_squares": 100}
Turn = Callable[[], float]  # Returns seconds.
# Which of the seconds that a worker answers with too.
CLOCKS = {"seconds": time.perf_counter, "processor_seconds": time.process_time}


def in_turns(
  contenders: Mapping[str, Turn], rounds: int
) -> tuple[pandas.Series, pandas.Series]:
  """Milliseconds of a round, medians; and seconds that first turns took more.

  Args:
    contenders: by name.
    rounds: of a turn.
  """
  seconds = pandas.DataFrame(
    [{n: turn() for n, turn in contenders.items()} for _ in range(1 + TURNS)]
  )
  medians = seconds[1:].median()
  return 1e3 * medians / rounds, seconds.iloc[0] - medians


def turn_of(
  simulator: fo.Simulator, workload: shared.Workload, clock: str
) -> Turn:
  """Rounds of all points together."""
  _, init = ours.make_loss(workload)
  state, now = simulator.init(init(jax.random.key(0))), CLOCKS[clock]

  def turn() -> float:
    nonlocal state
    start = now()
    state, _ = simulator.run(state, ROUNDS[workload.name])
    jax.block_until_ready(state.server)
    return now() - start

  return turn


# All methods.

# FedAvg with AdamW, beside which methods with Adam's moments stand.
_ADAMW = "local_adamw"
NAMES = (
  "fed_avg", "fed_prox", "fed_dyn", "fed_exp", "fed_sam", "fed_acg",
  "fed_lesam", "diloco", "ditto", "scaffold", "domo", "fed_nova", "fed_cm",
  "mime_lite", "prox_skip", "mo_fed_sam", "fed_speed", "fed_gamma", "fed_dc",
  "fed_smoo", "fed_adamw", "fed_lada", "p_fed_me", "per_fed_avg", _ADAMW,
)  # fmt: skip


def all_methods(options) -> shared.Rows:
  """A row for each method and workload."""
  return [
    row
    for workload in shared.WORKLOADS.values()
    for row in of_workload(workload, options.clock)
  ]


def of_workload(workload: shared.Workload, clock: str) -> shared.Rows:
  """A row for each method."""
  loss_fn, init = ours.make_loss(workload)
  params, gradients = init(jax.random.key(0)), {}
  data = jax.device_put(ours.client_data(workload))
  settings = {
    "batch_size": workload.batch_size,
    "local_steps": workload.num_steps,
    "eval_every": ours.MAX_ROUNDS,
  }

  def contender(name: str) -> Turn:
    rate = workload.learning_rate
    entry = ALGORITHMS["fed_avg" if name == _ADAMW else name]
    rule = optax.adamw if name == _ADAMW else optax.sgd
    rule_or_rate = rule(rate) if entry.client_takes == "rule" else rate
    algorithm = entry.factory(loss_fn, rule_or_rate)
    once = fo.simulate(algorithm, params, data, rounds=1, **settings)
    gradients[name] = once.cost["gradient_evaluations_per_round"]
    return turn_of(fo.Simulator(algorithm, data, **settings), workload, clock)

  contenders = {name: contender(name) for name in NAMES}
  ms, _ = in_turns(contenders, ROUNDS[workload.name])
  work = pandas.Series(gradients) / gradients["fed_avg"]
  ratio = ms / ms["fed_avg"]
  columns = {"ms": ms, "of FedAvg": ratio, "gradients": work}
  frame = pandas.DataFrame(columns | {"left": ratio / work})
  frame = frame.rename_axis("method").reset_index().assign(round=workload.name)
  return frame.to_dict("records")


# Server steps of FedBuff.

_ARRIVALS, _AWAY, _CLIENTS = 10, 20, 40
_RATES_OF_GRID, _SEEDS_OF_GRID = 8, 3


def asynchronous(name: str) -> shared.Workload:
  """A workload with more clients than are away."""
  return shared.WORKLOADS[name]._replace(num_clients=_CLIENTS)


def server_steps(
  workload: shared.Workload, clock: str, rates: int = 1, seeds: int = 1
) -> Turn:
  """Server steps of all points together."""
  loss_fn, _ = ours.make_loss(workload)
  rounds = ROUNDS[workload.name]
  speeds = fo.systems.sample(_CLIENTS, fo.systems.lognormal(1.0, 1.0))
  schedule = {
    seed: fo.schedules.buffered(
      speeds.durations(seed=seed), (TURNS + 1) * rounds, _AWAY, _ARRIVALS
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


def grid(options) -> shared.Rows:
  """A row for each workload."""
  points, rows = _RATES_OF_GRID * _SEEDS_OF_GRID, []
  for workload in map(asynchronous, ("least_squares", "mlp")):
    steps = functools.partial(server_steps, workload, options.clock)
    contenders = {"one": steps(), "all": steps(_RATES_OF_GRID, _SEEDS_OF_GRID)}
    ms, compiling = in_turns(contenders, ROUNDS[workload.name])
    rows.append(
      {
        "server step": workload.name,
        "one point, ms": ms["one"],
        f"{points} points, ms": ms["all"],
        "of as many runs": ms["all"] / ms["one"] / points,
        "compile s": compiling["one"],
        f"of {points}": compiling["all"],
      }
    )
  return rows


def flsim(options) -> shared.Rows:
  """A row."""
  workload = asynchronous("least_squares")
  rounds, epoch = ROUNDS[workload.name], workload.num_clients // _ARRIVALS
  settings = {"buffer": _ARRIVALS, "concurrency": _AWAY, "rounds": epoch}
  with shared.Process("flsim_worker", options.flsim_python) as process:
    ask = lambda: process.call("fed_buff", workload=workload, **settings)
    # An epoch is a turn of FLSim.
    flsim_turn = lambda: ask()[options.clock] * rounds / epoch
    our_turn = server_steps(workload, options.clock)
    ms, compiling = in_turns({"here": our_turn, "FLSim": flsim_turn}, rounds)
  compiled = {"compile s": compiling["here"]}
  return [{"server step": workload.name, **ms.add_suffix(" ms"), **compiled}]


PARTS = {"all": all_methods, "grid": grid, "flsim": flsim}


def main() -> None:
  parser = shared.parser(__doc__, ("flsim",))
  parser.add_argument("--clock", choices=CLOCKS, default="seconds")
  shared.print_part(parser, PARTS)


if __name__ == "__main__":
  main()
