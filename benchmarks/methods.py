"""Times methods: against FedAvg and FedJAX's rounds.

  PYTHONPATH=. python benchmarks/methods.py all [--workloads cnn mlp]
  PYTHONPATH=. python benchmarks/methods.py clock [--workloads cnn mlp]
  PYTHONPATH=. python benchmarks/methods.py lasso --fedjax_python=P

The contenders of a part take turns, so that the noise of the machine is shared;
medians count.

all: a round of each method over FedAvg's, with the same clients, batches and
local steps, and plain steps. "gradients" is how many gradients of an example a
method evaluates for one of FedAvg, and the last column what is left of the time
when they are divided out: state that is kept, what is sent besides the model,
and element-wise work in the local steps. With --processor times are seconds of
the processor, for a machine that has other work.

clock: a server step of FedBuff with 10 arrivals of 20 clients in flight, which
start from older models, over a round of FedAvg with 10 of as many clients; the
same step as other simulators take it, in an event loop of Python; and the CPU
seconds for a timetable of a million arrivals.

lasso: LASSO I of the composite optimization paper, 9 x 7 rates, 500 rounds.
FedJAX has no composite algorithm and no grids: its time is that of one plain
FedAvg round of the same size (10 clients x 13 steps x 10), times rounds, points
and algorithms.
"""

import heapq
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence

import fedjax_opt_worker as ours
import jax
import numpy as np
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


# A clock.

_ARRIVALS, _FLYING = 10, 20


def clock(options) -> tuple[Sequence[str], list[list[str]]]:
  """A row for each workload, and one for a long timetable."""
  rows = [
    asynchronous(shared.WORKLOADS[workload], options.turns)
    for workload in options.workloads
  ]
  speeds = fo.systems.lognormal(1.0, 1.0)
  durations = fo.systems.sample(100_000, speeds).durations()
  start = time.process_time()  # It has one thread.
  steps = 1_000_000 // _ARRIVALS
  table = fo.schedules.buffered(durations, steps, 1000, _ARRIVALS)
  taken = time.process_time() - start
  clients = f"{table.clients.size:,} arrivals of 100,000 clients: {taken:.1f} s"
  return (
    (
      "workload",
      "FedAvg ms",
      "FedBuff ms",
      "event loop ms",
      "ratio",
      "quarter",
      "three",
      "slots",
    ),
    [*rows, [clients, *[""] * 7]],
  )


def asynchronous(workload: shared.Workload, turns: int) -> list[str]:
  """A row: medians of both, and the quartiles of the ratio of turns."""
  loss_fn, params = ours.make_loss(workload)
  data = ours.client_data(workload._replace(num_clients=2 * _FLYING))
  rule, rounds = optax.sgd(workload.learning_rate), workload.rounds_per_turn
  durations = fo.systems.sample(
    2 * _FLYING, fo.systems.lognormal(1.0, 1.0)
  ).durations()
  table = fo.schedules.buffered(
    durations, (turns + 1) * rounds, _FLYING, _ARRIVALS
  )
  settings = dict(
    batch_size=workload.batch_size, local_steps=workload.num_steps,
    weighting="uniform", eval_every=rounds,
  )  # fmt: skip
  both = [
    fo.Simulator(fo.fed_avg(loss_fn, rule), data, cohort_size=10, **settings),
    fo.Simulator(fo.fed_buff(loss_fn, rule), data, schedule=table, **settings),
  ]
  states, taken = [each.init(params) for each in both], []
  loop = event_loop(workload, durations.seconds_per_step)
  for _ in range(turns + 1):
    taken.append([])
    for i, simulator in enumerate(both):
      start = time.perf_counter()
      states[i], _ = simulator.run(states[i], rounds)
      jax.block_until_ready(states[i].server)
      taken[-1].append((time.perf_counter() - start) / rounds)
    start = time.perf_counter()
    loop(rounds)
    taken[-1].append((time.perf_counter() - start) / rounds)
  seconds = [statistics.median(some) for some in zip(*taken[1:], strict=True)]
  ratios = [buffered / plain for plain, buffered, _ in taken[1:]]
  low, middle, high = statistics.quantiles(ratios, n=4)
  slots = len(jax.tree.leaves(states[1].server.versions)[0])
  numbers = (f"{value:.2f}" for value in (middle, low, high))
  return [
    workload.name, *(f"{1e3 * each:.3g}" for each in seconds), *numbers,
    str(slots),
  ]  # fmt: skip


def event_loop(workload: shared.Workload, durations) -> Callable[[int], None]:
  """Server steps of FedBuff as a heap of events, one client at a time.

  The local steps of a client and the server's step are compiled; the model
  stays on the device.
  """
  loss_fn, params = ours.make_loss(workload)
  shards, rng = shared.make_shards(workload), np.random.default_rng(0)
  shards = [jax.device_put(shard) for shard in shards]
  key, batches = jax.random.key(0), (workload.num_steps, workload.batch_size)
  grad = jax.grad(lambda p, batch: loss_fn(p, batch, key).mean())

  @jax.jit
  def local(params, shard, rows):
    def step(p, chosen):
      grads = grad(p, jax.tree.map(lambda leaf: leaf[chosen], shard))
      return optax.tree.add_scale(p, -workload.learning_rate, grads), None

    return jax.lax.scan(step, params, rows)[0]

  @jax.jit
  def server(params, arrived):
    for start, end, weight in arrived:
      moved = optax.tree.sub(end, start)
      params = optax.tree.add_scale(params, weight / _ARRIVALS, moved)
    return params

  def run(steps: int) -> None:
    newest, heap, arrived, step, now = params, [], [], 0, 0.0
    free = [*rng.permutation(len(durations))]
    while step < steps:
      while len(heap) < _FLYING:
        client = free.pop()
        rows = rng.permutation(workload.examples_per_client).reshape(batches)
        end = local(newest, shards[client % len(shards)], rows)
        until = now + float(durations[client])
        heapq.heappush(heap, (until, int(client), step, newest, end))
      now, client, version, start, end = heapq.heappop(heap)
      free.insert(rng.integers(len(free) + 1), client)
      arrived.append((start, end, (1 + step - version) ** -0.5))
      if len(arrived) == _ARRIVALS:
        newest, arrived, step = server(newest, arrived), [], step + 1
    jax.block_until_ready(newest)

  return run


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


PARTS = {"all": every, "clock": clock, "lasso": lasso}


def main() -> None:
  parser = shared.parser(__doc__, fedjax="FedJAX")
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
