"""The simulator: rounds of clients in one compiled program.

In call order: `simulate` checks its settings; `drive` compiles once and goes
from evaluation to evaluation; `run_rounds` loops over the rounds in between,
inside the program; `_one_round` gives the algorithm a `Cohort`, which goes on
in cohort.py and, for one client, in worker.py.
"""

import contextlib
import dataclasses
import signal
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedjax_opt import host_memory, sharding
from fedjax_opt.base import Algorithm, Batch, Params, State
from fedjax_opt.checkpoint import Checkpoints
from fedjax_opt.cohort import Cohort, Totals
from fedjax_opt.data.clients import ClientData
from fedjax_opt.data.population import Population
from fedjax_opt.host_memory import HostMemory
from fedjax_opt.ledger import Ledger, Record
from fedjax_opt.metrics import History
from fedjax_opt.program import Program
from fedjax_opt.registry import check_seeds
from fedjax_opt.streaming import Loader, OnDisk, Stretch, reading


class Report(NamedTuple):
  """What `on_evaluation` is told after each evaluation."""

  round: int  # rounds done
  metrics: dict[str, np.ndarray]  # name -> [S]
  compile_seconds: float
  run_seconds: float  # so far, without compilation


@dataclasses.dataclass
class Result:
  """What a simulation leaves.

  Of a grid, `params`, `state` and `traces` have the leading axis S.

  Attributes:
    params: the evaluated model after the last round.
    state: the algorithm's state after the last round.
    history: the metrics of every evaluated round.
    traces: {name: [R, C, K]}, the traced fields of the client rule's state; a
      step that a client did not take is NaN.
    rounds: rounds done; fewer than asked for if interrupted.
    interrupted: the number of the signal that ended the run early, such as
      that of Ctrl-C; 0 if none did.
    compile_seconds: time to trace and compile.
    run_seconds: time of all rounds and evaluations.
    cost: per client and round: `bytes_down`, `bytes_up` and
      `gradient_evaluations` (in examples), as if none had dropped out; with a
      label before the name, such as `stage_start_bytes_up`, the part of phases
      with that label. If there are such phases, `communication_rounds` is how
      many rounds one is where each of them counts as one more.
    padding_waste: fraction of the computed examples that were padding.
  """

  params: Params
  state: State
  history: History
  traces: dict[str, np.ndarray]
  rounds: int
  interrupted: int
  compile_seconds: float
  run_seconds: float
  cost: dict[str, float]
  padding_waste: float


def simulate(
  algorithm: Algorithm,
  params: Params,
  data: ClientData | Population,
  *,
  rounds: int,
  seed: int = 0,
  test: Batch | None = None,
  on_evaluation: Callable[[Report], None] | None = None,
  checkpoints: Checkpoints | None = None,
  **settings: Any,
) -> Result:
  """Simulates an algorithm on a population of clients.

  Args:
    algorithm: from `fedjax_opt`, or your own.
    params: the initial model.
    data: the clients' examples, in memory; or on disk, then those of each
      cohort are read while the rounds before it are computed, and metrics of
      training are those of a sample of the clients, see `OnDisk`.
    rounds: R, communication rounds.
    seed: of cohorts, batches and dropout.
    test: pooled test examples, {name: [N, ...]}, passed to `evaluate`.
    on_evaluation: called with a `Report` after each evaluation, first with
      those that a resumed run has made before.
    checkpoints: where to save the run, and whether to go on with it.
    **settings: those of `Program.create`. Of a round: `cohort_size` (all
      clients if None), `batch_size`, `local_epochs` or `local_steps` (one
      epoch if None), `replacement` (batches drawn with replacement, not by
      shuffling), `drop_remainder`, `weighting` ('examples' or 'uniform'),
      `client_map` ('auto', 'vmap' or 'scan'), `client_chunk`,
      `client_dropout` (how likely a client drops out of a round),
      `client_devices` (over how many devices the clients of a cohort are
      divided; all there are if None),
      `precision`
      (in which types clients compute: 'float32' stands for those of `params`;
      'mixed' computes losses and gradients in bfloat16; 'bfloat16' also takes
      the local steps in it; the server, messages and evaluation keep the types
      of `params`), `client_memory` (where what clients keep between rounds is:
      'device', 'host' or 'auto', the host where it fills half of a device; from
      there the cohort's part goes to the device before each round). Of what is
      recorded: `evaluate` (metrics of a model, see
      `fedjax_opt.evaluation`), `eval_every` (rounds; round 0 and the last one
      are always evaluated; the cost so far, per client, is added to the
      metrics), `trace` (names of fields of the client rule's state).

  Returns:
    The final model and all that was recorded.

  Raises:
    ValueError: naming the argument that cannot be, before anything is
      compiled.
  """
  check_seeds([seed])
  program = Program.create(data, params, **settings)

  def init():
    of_jax = jax.tree.map(jnp.asarray, params)
    return algorithm.init(of_jax, data.num_clients)

  program, memory = host_memory.place(
    program, algorithm, init, data.num_clients, [seed], is_grid=False
  )

  def advance(state, own, shared, stretch, *numbers):
    del own
    return run_rounds(
      program, algorithm, state, *shared, *numbers, stretch=stretch
    )

  with reading(data, program, [seed], with_seeds=False) as (known, loader):
    result = drive(
      program,
      advance,
      memory,
      own=(),
      shared=(jax.random.key(seed), known, test),
      rounds=rounds,
      on_evaluation=on_evaluation,
      checkpoints=checkpoints,
      loader=loader,
    )
  result.params = algorithm.params(result.state)
  return result


def drive(
  program: Program,
  advance: Callable[..., tuple[State, Record]],
  memory: HostMemory,
  own: Any,
  shared: Any,
  rounds: int,
  on_evaluation: Callable[[Report], None] | None = None,
  checkpoints: Checkpoints | None = None,
  grid: Any = None,
  loader: Loader | None = None,
) -> Result:
  """Compiles `advance` and calls it from evaluation to evaluation.

  Args:
    program: static settings.
    advance: `(state, own, shared, stretch, first, count, is_due) -> (state,
      record)`, pure; `stretch` as of `run_rounds`.
    memory: makes the algorithm's state and lends it to the devices.
    own: a pytree of arrays with the leading axis of a grid's state.
    shared: a pytree of arrays, the same in every call.
    rounds: R.
    on_evaluation: see `simulate`.
    checkpoints: see `simulate`.
    grid: the `sweep.Settings` that are computed, if there are several.
    loader: of the clients, if they are on disk.

  Returns:
    The result, without `params`. Ctrl-C ends the run with the evaluations
    done so far; so does SIGTERM, where checkpoints are saved.
  """
  if rounds < 0:
    raise ValueError(f"rounds={rounds}: must not be negative")

  layout = program.layout

  def build(*inputs):
    while True:
      # Traced anew each time: what a grid computes side by side may change.
      def advance_on_devices(*inputs):
        return layout.over_devices(advance)(*inputs)

      zero, flag = np.int32(0), due_flag(True)
      jitted = jax.jit(advance_on_devices, donate_argnums=0)
      compiled = jitted.lower(*inputs, zero, zero, flag).compile()
      if grid is None or not grid.shrink(compiled):
        return compiled

  ledger = Ledger()
  saved = None
  if checkpoints is not None:
    saved = checkpoints.load(memory.shapes())
  sharding.check_alike(
    "the checkpoint to go on from", 0 if saved is None else saved.round
  )
  if saved is None:
    state = memory.start()
  else:
    ledger, state = Ledger.of_record(saved), saved.state
    saved = saved._replace(state=None)  # Held once.
    if grid is not None:
      state, own = grid.take_up(saved.record, state, own)

  stops = _stops(program, rounds, checkpoints, loader)
  due = lambda stop: stop % program.eval_every == 0 or stop == rounds
  # A program that has no choice is smaller. Of all stops, so that a run which
  # goes on has the same one.
  has_choice = not all(map(due, stops))
  due_flag = lambda is_due: np.bool_(is_due) if has_choice else None
  stops = [stop for stop in stops if saved is None or stop > saved.round]

  state, own = memory.put(state), layout.put_own(own)
  shared = layout.put_shared(shared)
  stretch = None
  if loader is not None:
    # A run that is over still shows what it exchanges, by a stretch of nothing.
    loader.start(stops or [ledger.done], ledger.done)
    stretch = loader.take()
  start = time.perf_counter()
  compiled = build(memory.lend(state, ledger.done), own, shared, stretch)
  compile_seconds = time.perf_counter() - start

  def report(round, metrics):
    if on_evaluation is not None:
      seconds = (compile_seconds, ledger.run_seconds)
      on_evaluation(Report(round, metrics, *seconds))

  for e, round in enumerate(ledger.history.rounds):
    earlier = ledger.history.metrics.items()
    report(round, {name: values[:, e] for name, values in earlier})
  interrupted = 0
  with _signals(checkpoints is not None) as pressed:
    try:
      for stop in stops:
        start = time.perf_counter()
        is_due = due(stop)
        if stretch is None and loader is not None:
          stretch = loader.take()
        first, count = np.int32(ledger.done), np.int32(stop - ledger.done)
        inputs = (own, shared, stretch, first, count, due_flag(is_due))
        state, record = memory.run(compiled, state, ledger.done, *inputs)
        jax.block_until_ready(record)
        stretch = inputs = None
        ledger.run_seconds += time.perf_counter() - start
        record = sharding.fetch(record)
        if grid is not None:
          record = grid.widen(record)
        metrics = ledger.add(program, stop, record, is_due)
        if is_due:
          if metrics:
            ledger.history.append(stop, metrics)
          report(stop, metrics)
        start = time.perf_counter()
        fewer = None
        if grid is not None:
          fewer = grid.drop(ledger.history, state, own)
        if fewer is not None:
          before = jax.tree.map(jnp.shape, state)
          state, own = memory.put(fewer[0]), layout.put_own(fewer[1])
          if jax.tree.map(jnp.shape, state) != before and stop < rounds:
            if loader is not None:
              stretch = loader.take()
            inputs = (memory.lend(state, stop), own, shared, stretch)
            compiled = build(*inputs)
            compile_seconds += time.perf_counter() - start
        # Read once: a signal that comes later ends the run after more rounds.
        stopping = sharding.of_any_process(pressed[0] if pressed else 0)
        if checkpoints is not None and (
          stopping or stop == rounds or checkpoints.is_due(stop)
        ):
          whole = state if grid is None else grid.restore(state)
          if layout.mesh is not None:  # Fewer devices may go on with it.
            whole = sharding.fetch(whole)
          numbers = {} if grid is None else grid.numbers()
          if sharding.is_first_process():
            checkpoints.save(stop, whole, ledger.to_record() | numbers)
        if stopping and stop < rounds:
          interrupted = stopping
          break
    except KeyboardInterrupt:
      interrupted = signal.SIGINT

  return Result(
    params=None,
    state=sharding.fetch_global(state),
    history=ledger.history,
    traces=ledger.joined_traces(),
    rounds=ledger.done,
    interrupted=int(interrupted),
    compile_seconds=compile_seconds,
    run_seconds=ledger.run_seconds,
    cost=ledger.cost(program),
    padding_waste=ledger.padding_waste(),
  )


def _stops(program, rounds, checkpoints, loader):
  """After which rounds to come back from the compiled program.

  The first call takes no round: it evaluates the initial model.
  """
  stops = {*range(0, rounds, program.eval_every), rounds}
  if checkpoints is not None and checkpoints.every is not None:
    stops |= set(range(checkpoints.every, rounds, checkpoints.every))
  if loader is not None:
    stops |= set(range(loader.rounds, rounds, loader.rounds))
  if program.client_memory == "host":
    stops |= set(range(1, rounds))
  return sorted(stops)


@contextlib.contextmanager
def _signals(with_sigterm):
  """A list that Ctrl-C, or a request to end, fills with its signal's number.

  Pressed twice, Ctrl-C does what it did before. A stretch that runs cannot be
  stopped, and its start is gone, so there is nothing to gain from an exception
  at once; and one that falls into a callback of the garbage collector would be
  lost.
  """
  pressed, before = [], {}
  is_main = threading.current_thread() is threading.main_thread()

  def press(number, frame):
    if number in pressed and callable(before[number]):
      before[number](number, frame)
    pressed.append(number)

  if is_main and callable(signal.getsignal(signal.SIGINT)):
    before[signal.SIGINT] = signal.signal(signal.SIGINT, press)
  if is_main and with_sigterm:
    before[signal.SIGTERM] = signal.signal(signal.SIGTERM, press)
  try:
    yield pressed
  finally:
    for number, handler in before.items():
      signal.signal(number, handler)


def run_rounds(
  program: Program,
  algorithm: Algorithm,
  state: State,
  key: jax.Array,
  data: ClientData | OnDisk,
  test: Batch | None,
  first: jax.Array,
  count: jax.Array,
  is_due: jax.Array | None = None,
  stretch: Stretch | None = None,
) -> tuple[State, Record]:
  """Runs rounds `first` to `first + count - 1`, then evaluates if it is due.

  `count` is traced, at most `eval_every`, so that one compiled program serves
  every stretch of a run. None is due always; where an evaluation is not due
  its metrics are zeros. `stretch` has the cohorts of these rounds, leaves
  [1, ...], if the clients are on disk.
  """

  def one_round(state, round):
    clients = data
    if stretch is not None:
      of_device = jax.tree.map(lambda leaf: leaf[0], stretch)
      clients = data.round(of_device, round - first)
    return _one_round(program, algorithm, state, round, key, clients)

  def body(round, carry):
    state, totals, traces = carry
    state, cohort = one_round(state, round)
    totals = jax.tree.map(jnp.add, totals, cohort.totals)
    record = lambda all, new: all.at[round - first].set(new)
    return state, totals, jax.tree.map(record, traces, cohort.traces)

  def blank_traces(state):
    if not program.trace:
      return {}
    shapes = jax.eval_shape(
      lambda *args: one_round(*args)[1].traces, state, first
    )
    blank = lambda leaf: jnp.zeros(
      (program.eval_every, *leaf.shape), leaf.dtype
    )
    return jax.tree.map(blank, shapes)

  carry = (state, Totals.zeros(), blank_traces(state))
  state, totals, traces = lax.fori_loop(first, first + count, body, carry)

  def evaluate(state):
    params = algorithm.params(state)
    known = data if stretch is None else data.sample
    metrics = program.evaluate(params, known, test)
    if algorithm.penalty is not None:
      penalty = algorithm.penalty(params)
      metrics |= {
        f"regularized_{name}": metrics[name] + penalty
        for name in ("train_loss", "test_loss")
        if name in metrics
      }
    return jax.tree.map(jnp.asarray, metrics)

  def skip(state):
    shapes = jax.eval_shape(evaluate, state)
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)

  metrics = {}
  if program.evaluate is not None:
    if is_due is None:
      metrics = evaluate(state)
    else:
      metrics = lax.cond(is_due, evaluate, skip, state)
  return state, Record(metrics, totals, traces)


def _one_round(program, algorithm, state, round, key, data):
  """One round of the algorithm; also returns its cohort with what it noted."""
  key = jax.random.fold_in(key, round)
  cohort = Cohort(program, round, key, data)
  new = algorithm.round(state, cohort)
  lost_rounds = cohort.totals.lost_rounds + cohort.is_lost
  cohort.totals = cohort.totals._replace(lost_rounds=lost_rounds)
  # A round that is lost changes nothing. Where it has one phase memories need
  # no look: the rows of clients that were left out are what they were.
  untouched = set(map(id, cohort.memories)) if cohort.num_phases == 1 else ()

  def choose(old, new):
    return new if id(new) in untouched else jnp.where(cohort.is_lost, old, new)

  return jax.tree.map(choose, state, new), cohort
