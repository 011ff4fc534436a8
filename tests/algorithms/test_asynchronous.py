"""Asynchronous methods against plain event loops, and what holds exactly."""

import functools
import itertools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedjax_opt as fo
from fedjax_opt.engine.clock import Clock
from fedjax_opt.engine.config import Config
from fedjax_opt.engine.traced.batches import draw_batches
from fedjax_opt.schedules import by_hand
from tests import reference
from tests.helpers import cases, jax_problems, refusals
from tests.helpers.refusals import refusal

STEPS, SEED = 30, 0
WORK = {"batch_size": 4, "local_epochs": 1.5}
UNIFORM = WORK | {"weighting": "uniform"}


@jax.jit
def batches_of(client, version, draw, rows, size):
  """As `draw_batches` gives them, of one client."""
  plan = Config.create(cases.DATA, WORK, cases.PARAMS).plan
  key = jax.random.fold_in(jax.random.key(SEED), version)
  key = jax.random.fold_in(jax.random.fold_in(key, 1), client)
  key = jnp.where(draw, jax.random.fold_in(key, draw), key)
  return draw_batches(plan, key[None], rows[None], size[None])


@functools.cache
def batches(x64, client, version, draw):
  """The rows of each local step of a client that was sent out."""
  rows = np.zeros(max(cases.SIZES), np.int32)
  own_rows = cases.PROBLEM.client_rows[client]
  rows[: len(own_rows)] = own_rows
  with jax.enable_x64(x64):  # Wider numbers are drawn otherwise.
    rows_drawn, counts, steps = jax.device_get(
      batches_of(client, version, draw, rows, np.int32(len(own_rows)))
    )
  return [rows_drawn[0, k, : counts[0, k]] for k in range(steps[0])]


def durations_of(system, rng):
  """`client -> seconds`, drawn anew each time that it is sent out."""
  if system == "four speeds":
    return lambda client: rng.uniform(*fo.systems.FADAS[client % 4])
  if system == "whole seconds":  # Several arrive at one instant.
    return lambda client: float(rng.integers(1, 6))
  speeds = rng.uniform(0.5, 4, cases.M)
  return lambda client: speeds[client] * rng.lognormal(0, 0.5)


def follow(server, x64, *, concurrency, buffer, lost=0.0, mu=0.0, system=""):
  """The models and sendings of an event loop of STEPS steps."""
  rng = np.random.default_rng(0)
  seconds = durations_of(system, rng)

  def work(x, client, version, draw):
    def objective(y, rows):
      loss, grad = cases.GRADIENT(y, rows)
      return loss, grad + mu * (y - x)

    rows = batches(x64, client, version, draw)
    rule = reference.Sgd(cases.LR)
    return reference.descend(x, objective, rows, rule).xs[-1]

  def choose(flying):
    return rng.choice([c for c in range(cases.M) if c not in flying])

  is_lost = lambda: rng.random() < lost
  return reference.events(
    server, work, choose, seconds, is_lost, concurrency, buffer, STEPS
  )


def table_of(record):
  """The timetable of the sendings of an event loop."""
  field = lambda name: np.array(
    [[getattr(sending, name) for sending in step] for step in record]
  )
  timetable = by_hand(
    field("client"),
    field("version"),
    taken=~field("lost"),
    time=field("end").max(1),
    starts=field("start"),
    ends=field("end"),
  )
  np.testing.assert_array_equal(timetable.draws, field("draw"))
  return timetable


def models(algorithm, schedule, **options):
  """[T, d], the models after each step."""
  simulator = fo.Simulator(algorithm, cases.DATA, schedule=schedule, **options)
  state, points = simulator.init(cases.PARAMS, SEED), []
  for _ in schedule.time:
    state, _ = simulator.run(state, 1)
    points.append(cases.flat(jax.device_get(simulator.params(state))))
  return np.array(points)


def hinge(tau):
  return 1.0 if tau <= 2 else 1 / (0.7 * (tau - 2) + 1)


# Of each the algorithm, its loop, and how many are in flight and in a step.
# Messages have one weight, but for those by examples.
ONES = np.ones(cases.M)
RULE = optax.sgd(cases.LR)
ASYNC = functools.partial(fo.fed_async, cases.loss_fn, RULE)
METHODS = {
  "fed_buff": (
    fo.fed_buff(cases.loss_fn, RULE),
    lambda x: reference.FedBuff(x, 0.5, reference.Sgd(1.0), ONES),
    {"concurrency": 5, "buffer": 3, "lost": 0.2},
  ),
  "fed_buff by examples": (
    fo.fed_buff(
      cases.loss_fn, RULE, optax.sgd(0.7, momentum=0.5), staleness_power=1.0
    ),
    lambda x: reference.FedBuff(
      x, 1, reference.Momentum(0.7, 0.5), cases.masses("")
    ),
    {"concurrency": 6, "buffer": 2, "lost": 0.2},
  ),
  "fed_async": (
    ASYNC(),
    lambda x: reference.FedAsync(x, 0.6, lambda tau: (tau + 1) ** -0.5),
    {"concurrency": 5, "buffer": 1, "mu": 0.005},
  ),
  "fed_async constant": (
    ASYNC(alpha=0.3, mu=0.1, staleness="constant"),
    lambda x: reference.FedAsync(x, 0.3, lambda tau: 1.0),
    {"concurrency": 5, "buffer": 1, "mu": 0.1},
  ),
  "fed_async hinge": (
    ASYNC(mu=0.0, staleness="hinge", hinge_slope=0.7, hinge_start=2.0),
    lambda x: reference.FedAsync(x, 0.6, hinge),
    {"concurrency": 6, "buffer": 1, "lost": 0.2},
  ),
  "ca2fl": (
    fo.ca2fl(cases.loss_fn, RULE, optax.sgd(0.5)),
    lambda x: reference.Ca2fl(x, 0.5, cases.M),
    {"concurrency": 5, "buffer": 3, "lost": 0.2},
  ),
  "fadas": (
    fo.fadas(cases.loss_fn, RULE, 0.05, eps=1e-3),
    lambda x: reference.Fadas(x, 0.05, 0.9, 0.99, 1e-3, 1),
    {"concurrency": 6, "buffer": 2, "lost": 0.2},
  ),
  "fadas without delays": (
    fo.fadas(cases.loss_fn, RULE, 0.05, b1=0.5, delay_threshold=None, eps=1e-3),
    lambda x: reference.Fadas(x, 0.05, 0.5, 0.99, 1e-3, None),
    {"concurrency": 5, "buffer": 9},  # More than there are clients.
  ),
}


@pytest.mark.parametrize(
  ("name", "x64", "system"),
  [
    *((name, True, "lognormal") for name in METHODS),
    ("fed_buff by examples", False, "lognormal"),
    *itertools.product(
      ("fed_buff", "fed_async", "ca2fl", "fadas"),
      (True,),
      ("four speeds", "whole seconds"),
    ),
  ],
)
@pytest.mark.default_cases(
  "ca2fl-True-whole seconds",
  *(f"{n}-True-lognormal" for n in ("fed_buff", "fed_async", "fadas")),
)
def test_method_is_its_event_loop(name, x64, system):
  algorithm, loop, settings = METHODS[name]
  expected, record = follow(loop(cases.X0), x64, **settings, system=system)
  schedule = table_of(record)
  assert schedule.staleness.max() >= (3 if settings["buffer"] < cases.M else 1)
  assert (~schedule.taken).any() == ("lost" in settings)
  assert any(cases.M - 1 in row for row in schedule.clients)  # Owns nothing.
  with jax.enable_x64(x64):
    options = WORK if name == "fed_buff by examples" else UNIFORM
    actual = models(algorithm, schedule, **options)
  cases.assert_close(list(actual), expected, 1e-10 if x64 else 1e-5)
  assert np.linalg.norm(actual[-1] - cases.X0) > 0.05


# Distinct clients in a step, so that samplers can draw it too.
ROWS = np.array(
  [np.random.default_rng(t).permutation(cases.M)[:4] for t in range(8)]
)
FED_BUFF = fo.fed_buff(cases.loss_fn, RULE)


def final(algorithm, schedule, data=cases.DATA, **options):
  """A run of all steps of a schedule, if no other number is given."""
  options = {"schedule": schedule} | UNIFORM | options
  options = {"rounds": len(schedule.time)} | options
  return fo.simulate(algorithm, cases.PARAMS, data, **options)


@functools.cache
def stale():
  """A timetable with staleness, repeated clients, and lost updates."""
  _, loop, settings = METHODS["fed_buff"]
  _, record = follow(loop(cases.X0), False, **settings)
  return table_of(record)


@pytest.mark.slow
@pytest.mark.parametrize(
  "name", ["fed_avg", "fed_buff", "scaffold", "fed_buff in chunks"]
)
def test_no_staleness_is_the_synchronous_method_bit_for_bit(name):
  chunking = {"client_chunk": 2} if "chunks" in name else {}
  algorithm = {
    "fed_avg": fo.fed_avg(cases.loss_fn, RULE),
    "scaffold": fo.scaffold(cases.loss_fn, cases.LR),
  }.get(name, FED_BUFF)
  synchronous = fo.fed_avg(cases.loss_fn, RULE) if "buff" in name else algorithm
  sampler = lambda key, round: jnp.asarray(ROWS, jnp.int32)[round]
  options = {"sampler": sampler, "cohort_size": 4} | UNIFORM | chunking
  expected = cases.TASK.simulate(synchronous, rounds=len(ROWS), **options)
  actual = final(algorithm, by_hand(ROWS), **chunking)
  chex.assert_trees_all_equal(actual.params, expected.params)
  assert actual.cost == expected.cost | {"time_per_round": 1.0}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fed_buff", "fed_async"])
def test_one_client_at_a_time_is_sequential_sgd(name):
  """One model goes from client to client; the loop has no server."""
  system = fo.systems.sample(cases.M, fo.systems.lognormal(1.0, 1.0))
  schedule = fo.schedules.buffered(system.durations(), STEPS, 1, 1)
  algorithm = FED_BUFF if name == "fed_buff" else ASYNC(alpha=1.0, mu=0.0)
  x, expected = cases.X0, []
  with jax.enable_x64(True):
    for step, client in enumerate(schedule.clients[:, 0].tolist()):
      for rows in batches(True, client, step, 0):
        x = x - cases.LR * cases.GRADIENT(x, rows)[1]
      expected.append(x)
    actual = models(algorithm, schedule, **UNIFORM)
  cases.assert_close(list(actual), expected, 1e-10)
  assert np.linalg.norm(actual[-1] - cases.X0) > 0.05


@pytest.mark.slow
def test_a_resumed_run_is_a_whole_one(tmp_path):
  algorithm = METHODS["ca2fl"][0]
  store = functools.partial(fo.Checkpoints, tmp_path / "saved", every=7)
  evaluate = lambda params, data, test: {"one": jnp.float32(1)}
  options = {"evaluate": evaluate, "eval_every": 5}
  final(algorithm, stale(), rounds=14, checkpoints=store(), **options)
  result = final(algorithm, stale(), checkpoints=store(resume=True), **options)
  expected = final(algorithm, stale(), **options)
  chex.assert_trees_all_equal(result.state, expected.state)
  assert result.history.rounds == expected.history.rounds


@pytest.mark.slow
@pytest.mark.parametrize("where", ["in chunks", "kept on the host", "on disk"])
def test_where_and_how_clients_are_changes_nothing(where, tmp_path):
  algorithm, options = METHODS["ca2fl"][0], {}
  if where == "on disk":
    options["data"] = fo.Population.of_client_data(tmp_path / "all", cases.DATA)
  elif where == "in chunks":
    options["client_chunk"] = 2
  else:
    options["client_memory"] = "host"
  pair = lambda result: cases.flat((result.params, result.client_state))
  expected = pair(final(algorithm, stale()))
  actual = pair(final(algorithm, stale(), **options))
  jax_problems.assert_close(actual, expected, 1e-5)


@pytest.mark.slow
def test_only_those_that_arrive_keep_anything_of_100_000():
  num_clients = 100_000
  rows = np.arange(4 * num_clients, dtype=np.int32).reshape(num_clients, 4)
  data = fo.ClientData(
    cases.DATA.examples, rows % cases.DATA.num_examples, np.full(num_clients, 4)
  )
  system = fo.systems.sample(num_clients, fo.systems.lognormal(1.0, 1.0))
  schedule = fo.schedules.buffered(system.durations(), 20, 50, 5)
  result = final(METHODS["ca2fl"][0], schedule, data)
  client_states = cases.flat(result.client_state, lead=1)
  assert len(client_states) == num_clients
  changed_clients = np.flatnonzero(np.abs(client_states).sum(1))
  np.testing.assert_array_equal(changed_clients, np.unique(schedule.clients))


@pytest.mark.slow
def test_a_share_of_the_local_steps():
  share = np.full(ROWS.shape, 1.0)
  share[:, 0] = 0.5
  result = final(FED_BUFF, by_hand(ROWS, share=share))
  x = cases.X0
  for t, row in enumerate(ROWS):
    deltas = []
    for k, client in enumerate(row.tolist()):
      rows = batches(False, client, t, 0)
      rows = rows[: len(rows) // 2] if k == 0 else rows
      rule = reference.Sgd(cases.LR)
      end = reference.descend(x, cases.GRADIENT, rows, rule).xs[-1]
      deltas.append(end - x)
    x = x + np.mean(deltas, 0)
  jax_problems.assert_close(result.params, x, 1e-5)


def test_as_many_slots_as_versions_in_use():
  schedule = stale()
  clock = Clock((schedule,), cases.M)
  in_use = [
    {t}
    | set(schedule.versions[t:][schedule.taken[t:]].tolist()) & set(range(t))
    for t in range(STEPS)
  ]
  assert clock.num_slots == max(map(len, in_use))
  for versions in in_use:
    assert len({clock.slots[0][v] for v in versions}) == len(versions)


def test_what_is_not_taken_is_not_a_client_s_last_place():
  """The second time it would do no whole step."""
  clock = Clock((by_hand([[0, 0]], share=[[1, 0.1]]),), 1)
  columns = clock.arrivals(np.arange(1), np.array([[8]]), lambda sizes: 2)
  assert columns["is_taken"].tolist() == [[[True, False]]]
  assert columns["is_last"].tolist()[0][0][0]


def asynchronous(algorithm, **options):
  # Unlike `stale`, it compiles nothing.
  schedule = by_hand([[0, 1, 2]] * STEPS, [[0] * 3] * STEPS)
  options = {"schedule": schedule, "rounds": 8} | UNIFORM | options
  cases.TASK.simulate(algorithm, **options)


LOSS = cases.loss_fn
CLIP = {"max_update_norm": 1.0, "max_update_action": "clip"}
test_is_refused = refusals.of_table(
  "asynchronous.txt", by_hand, cases, asynchronous, STEPS=STEPS, RULE=RULE,
  ASYNC=ASYNC, FED_BUFF=FED_BUFF, LOSS=LOSS, CLIP=CLIP,
)  # fmt: skip


def test_versions_that_do_not_fit_are_refused(monkeypatch):
  monkeypatch.setattr(fo.target, "device_bytes", lambda: 100)
  message = refusal(lambda: final(FED_BUFF, stale()))
  assert message.startswith("schedule: the versions of the model")
