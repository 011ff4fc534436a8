"""A run that was stopped, at whatever moment, goes on bit for bit."""

import dataclasses
import functools
import operator
import os
import shutil
import signal

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedjax_opt as fo
from fedjax_opt import samplers
from fedjax_opt.arrays import counters
from fedjax_opt.data.population import Population
from fedjax_opt.engine.tally import Tally
from fedjax_opt.results.checkpoint import Checkpoints
from tests.helpers import jax_problems
from tests.helpers.commands import new_python
from tests.helpers.refusals import refusal

TASK = jax_problems.softmax()
OPTIONS = {
  "rounds": 11,
  "cohort_size": 3,
  "batch_size": 4,
  "local_epochs": 1.5,
  "eval_every": 4,
}


class Killed(Exception):
  """In place of a kill."""


def evaluate(params, data, test):
  largest = jnp.max(jnp.abs(params["kernel"]))
  return {"train_loss": largest**2, "bias": jnp.sum(params["bias"])}


def run(case, checkpoints=None, on_evaluation=None, **changes):
  """One of the ways to run something, with or without checkpoints."""
  changes |= {"checkpoints": checkpoints, "on_evaluation": on_evaluation}
  options = OPTIONS | {"evaluate": evaluate} | changes
  if case in ("one", "on_host"):  # With memory of every client.
    options |= {"client_memory": "host"} if case == "on_host" else {}
    algorithm = fo.scaffold(TASK.loss_fn, 0.3)
    return TASK.simulate(algorithm, **options)
  if case == "traced":  # In files bfloat16 would be bytes without a meaning.
    algorithm = fo.fed_avg(TASK.loss_fn, fo.delta_sgd(eta_0=0.1))
    options |= {"trace": ["step_size"], "precision": "bfloat16"}
    return TASK.simulate(algorithm, **options)
  # Most rates diverge, and are dropped before the first checkpoint.
  rates = [*np.geomspace(1e20, 1e30, 12), 0.05, 0.1, 0.2, 0.3]
  make = lambda rate: fo.fed_avg(TASK.loss_fn, optax.chain(optax.sgd(rate)))
  grid = {"rate": rates}
  return TASK.sweep(make, grid, seeds=[3, 8], grid_map=case, **options)


whole = functools.cache(run)


def killed_after(case, folder, rounds, every=3):
  """Runs until the evaluation after so many rounds is reported."""

  def on_evaluation(report):
    if report.round == rounds:
      raise Killed

  with pytest.raises(Killed):
    run(case, Checkpoints(folder, every), on_evaluation)


def assert_same(actual, expected):
  parts = operator.attrgetter(
    *("params", "state", "client_state", "traces", "cost", "padding_waste"),
    *("rounds", "history.rounds", "history.metrics"),
  )
  chex.assert_trees_all_equal(parts(actual), parts(expected))


@pytest.mark.parametrize("case", ["one", "on_host", "traced", "vmap", "scan"])
@pytest.mark.default_cases("one")
@pytest.mark.quick_cases("one")
def test_a_killed_run_goes_on_bit_for_bit(case, tmp_path):
  killed_after(case, tmp_path, 8)
  assert sorted(os.listdir(tmp_path)) == ["3.npz", "6.npz"]
  reports = []
  result = run(case, Checkpoints(tmp_path, 3, resume=True), reports.append)
  assert_same(result, whole(case))
  # What was measured before is told again.
  assert [report.round for report in reports] == [0, 4, 8, 11]
  assert {report.is_grid for report in reports} == {result.is_grid}
  biases = [report.metrics["bias"] for report in reports]
  expected = result.history.metrics["bias"]
  np.testing.assert_array_equal(np.transpose(biases), expected)
  assert sorted(os.listdir(tmp_path)) == ["11.npz", "9.npz"]

  if case in ("one", "vmap", "scan"):
    # One that is complete has nothing to do but to say so; of a grid most
    # points were dropped.
    repeated = run(case, Checkpoints(tmp_path, 3, resume=True))
    assert_same(repeated, result)


@pytest.mark.slow
def test_points_that_diverge_in_the_last_evaluation_of_a_shorter_run(tmp_path):
  """They would have gone on until the next evaluation of the longer one."""

  of_rate = lambda rate: jax_problems.own_algorithm(
    lambda state, cohort: (state + rate, ())
  )

  def loss(params, data, test):  # Of the first nine after 6 rounds, not 4.
    return {"train_loss": jnp.where(params < 100, params, jnp.nan)}

  def run(rounds, folder, resume=False):
    return fo.sweep(
      of_rate, {"rate": [*np.linspace(20, 23, 9), *np.linspace(1, 2, 7)]},
      jnp.float32(0), TASK.data, grid_map="vmap", evaluate=loss,
      cohort_size=3, batch_size=4, eval_every=4, rounds=rounds,
      checkpoints=Checkpoints(folder, 4, resume=resume),
    )  # fmt: skip

  result = run(6, tmp_path / "a")
  assert result.history.diverged()[:, -1].sum() == 9
  assert_same(run(12, tmp_path / "a", True), run(12, tmp_path / "b"))


def test_rounds_lost_before_an_evaluation_that_is_forgotten():
  """They count until the next scheduled one."""
  record = Tally(1, 1)

  def loss_after(**options):
    metrics = record.with_counts({"train_loss": np.ones(1)}, **options)
    record.history.append(record.done, metrics)
    return metrics["train_loss"]

  two = counters.counter(2)[None]
  lost = {name: two for name in ("lost_rounds", "rejected_clients")}
  record.add_rounds(4, {}, {})
  loss_after()
  record.add_rounds(6, {}, {})
  loss_after(is_evaluation_round=False)
  record.drop_extra_evaluation(6)
  record.add_rounds(8, lost, {})
  assert loss_after() == 1  # Two rounds of four.
  record.add_rounds(10, lost, {})
  assert np.isnan(loss_after())
  assert record.history.rounds == [4, 8, 10]


@pytest.mark.parametrize(
  ("number", "moment", "presses"),
  [
    (signal.SIGTERM, "evaluation", 1),
    (signal.SIGINT, "checkpoint", 2),
    (signal.SIGINT, "both", 10),
  ],
)
@pytest.mark.slow
def test_no_number_of_signals_costs_the_last_checkpoint(
  number, moment, presses, tmp_path, monkeypatch
):
  handler = signal.signal(signal.SIGINT, signal.default_int_handler)
  handlers = signal.getsignal(signal.SIGTERM), signal.default_int_handler
  is_early = moment != "checkpoint"
  # Those of early signals are between the rounds that have one anyway.
  checkpoints = Checkpoints(tmp_path, 100 if is_early else 4)
  save, last_round = Checkpoints.save, 4 if is_early else 8

  def press():
    for _ in range(presses):
      os.kill(os.getpid(), number)

  def on_evaluation(report):
    assert report.round <= last_round
    if report.round == 4 and is_early:
      press()

  def pressed_within(self, round, *arguments):
    if round == 4 and moment != "evaluation":
      press()
    save(self, round, *arguments)

  monkeypatch.setattr(Checkpoints, "save", pressed_within)
  try:
    result = run("one", checkpoints, on_evaluation)
    assert handlers == tuple(
      map(signal.getsignal, (signal.SIGTERM, signal.SIGINT))
    )
  finally:
    signal.signal(signal.SIGINT, handler)
  assert result.interrupted == number
  assert result.rounds == last_round
  names = {f"{round}.npz" for round in (0 if is_early else 4, last_round)}
  assert set(os.listdir(tmp_path)) == names
  reports = []
  checkpoints = Checkpoints(tmp_path, None, resume=True)
  resumed = run("one", checkpoints, reports.append)
  assert_same(resumed, whole("one"))
  assert resumed.interrupted == 0
  for report in reports:
    assert report.is_repeated == (report.round <= last_round)
    assert not report.is_repeated or report.params is None


def test_a_signal_after_the_last_round_is_no_interruption(tmp_path):
  def on_evaluation(report):
    if report.round == OPTIONS["rounds"]:
      os.kill(os.getpid(), signal.SIGTERM)

  result = run("one", Checkpoints(tmp_path, 3), on_evaluation)
  assert result.interrupted == 0
  assert_same(result, whole("one"))


def test_a_run_goes_on_past_what_was_half_written_or_damaged(tmp_path):
  killed_after("one", tmp_path, 8)
  shutil.copy(tmp_path / "6.npz", tmp_path / "7.npz.tmp")
  os.truncate(tmp_path / "6.npz", 500)
  with pytest.warns(UserWarning, match="checkpoint of round 6 .*; ignored"):
    result = run("one", Checkpoints(tmp_path, 3, resume=True))
  assert_same(result, whole("one"))
  names = ["11.npz", "6.npz.damaged", "9.npz"]
  assert sorted(os.listdir(tmp_path)) == names


MOVED = TASK.data.examples | {"x": TASK.data.examples["x"] + np.float32(1)}


def turned(data):
  """The same clients in another order."""
  return dataclasses.replace(
    data, indices=data.indices[::-1], sizes=data.sizes[::-1]
  )


def started(
  folder, *, resume=False, rate=0.1, loss=TASK.loss_fn, server=None, **changes
):
  options = OPTIONS | {"rounds": 2, "evaluate": evaluate, "data": TASK.data}
  options |= {"test": {**TASK.data.examples}, "params": TASK.params} | changes
  return fo.simulate(
    fo.fed_avg(loss, optax.sgd(rate), server),
    checkpoints=Checkpoints(folder, None, resume=resume),
    **options,
  )


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
  """The folder of a run's checkpoints."""
  folder = tmp_path_factory.mktemp("saved")
  started(folder)
  return folder


FUNCTION = "another algorithm, or option that is a function"


@pytest.mark.parametrize(
  ("other", "difference"),
  [
    ({"rate": 0.2}, FUNCTION),
    ({"loss": lambda *of: 2 * TASK.loss_fn(*of)}, FUNCTION),
    ({"batch_size": 5}, "batch_size=4, not 5"),
    ({"seed": 3}, "seed=0, not 3"),
    ({"evaluate": lambda *_: {"train_loss": 1.0}}, "another evaluate"),
    (
      {"sampler": samplers.fixed([[0, 1, 2]])},
      f"another sampler, {FUNCTION}",
    ),
    (
      {"data": dataclasses.replace(TASK.data, examples=MOVED)},
      "other data (train examples)",
    ),
    ({"test": MOVED}, "other data (test)"),
  ],
  ids=range(8),
)
@pytest.mark.default_cases("2", "6")
def test_another_run_is_not_resumed(saved, other, difference):
  assert refusal(started, saved, resume=True, rounds=4, **other) == (
    f"resume=True: '{saved}' is of a run with {difference}; give what that run "
    "had, or another folder"
  )


@pytest.mark.slow
def test_what_may_differ_in_a_resumed_run(saved, tmp_path):
  """Objects that say the same, the model given, and how it is computed.

  Numbers may be NumPy's.
  """
  folder = shutil.copytree(saved, tmp_path / "copy")
  for extra in range(2):  # In the second run the functions were used before.
    loss = lambda params, batch, rng: TASK.loss_fn(params, batch, rng)
    zeros = jax.tree.map(jnp.zeros_like, TASK.params)
    data = jax.tree.map(np.copy, TASK.data)
    result = started(
      folder, resume=True, rounds=4 + extra, params=zeros, data=data, loss=loss,
      client_chunk=1, client_map="vmap", batch_size=np.int64(4),
      eval_every=np.int64(4),
    )  # fmt: skip
    assert result.rounds == 4 + extra


@pytest.mark.slow
def test_what_the_rounds_do_not_show_is_compared(tmp_path):
  """The initial state of the server; cohorts that are drawn on the host."""
  server = lambda start: {"server": optax.adagrad(0.1, start)}
  started(tmp_path / "server", **server(0.1))
  with pytest.raises(ValueError, match="another initial state of the algor"):
    started(tmp_path / "server", resume=True, rounds=4, **server(0.9))
  population = Population.of_client_data(tmp_path / "clients", TASK.data)
  options = lambda clients: {
    "data": population, "evaluate": None, "test": None, "cohort_size": 1,
    "sampler": samplers.fixed([clients]),
  }  # fmt: skip
  started(tmp_path / "disk", **options([0]))
  with pytest.raises(ValueError, match="of a run with another sampler; give"):
    started(tmp_path / "disk", resume=True, rounds=4, **options([1]))


@pytest.mark.slow
def test_another_process_goes_on(saved, tmp_path):
  """The text of programs is the same in each process."""
  folder = shutil.copytree(saved, tmp_path / "copy")
  code = (
    "from tests.results.test_checkpoint import started; "
    f"assert started({str(folder)!r}, resume=True, rounds=4).rounds == 4"
  )
  new_python("-c", code, PYTHONHASHSEED="7")


@pytest.mark.slow
def test_another_grid_or_partition_of_a_seed_is_not_resumed(tmp_path):
  def some(folder, rates=(0.1, 0.2), seeds=(0, 1), order=(1, -1), resume=True):
    data_of = lambda seed: TASK.data if order[seed] > 0 else turned(TASK.data)
    return fo.sweep(
      lambda rate: fo.fed_avg(TASK.loss_fn, optax.sgd(rate)),
      {"rate": list(rates)}, TASK.params, data_of, seeds=list(seeds),
      checkpoints=Checkpoints(folder, None, resume=resume),
      **OPTIONS | {"rounds": 1},
    )  # fmt: skip

  some(tmp_path, resume=False)
  for other, difference in (
    ({"rates": (0.1, 0.3)}, r"grid={'rate': \[0.1, 0.2\]}, not {'rate'"),
    ({"seeds": (1, 0)}, r"other data \(partition\), seed=\[0, 1\], not"),
    ({"order": (1, 1)}, r"other data \(partition\); give"),
  ):
    with pytest.raises(ValueError, match=difference):
      some(tmp_path, **other)


@pytest.mark.slow
def test_an_identity_that_is_given_is_all_that_counts(tmp_path):
  identity = {"name": "one"}
  checkpoints = lambda resume, **entries: Checkpoints(
    tmp_path, None, resume=resume, identity=identity | entries
  )
  run("one", checkpoints(False), rounds=1)
  run("one", checkpoints(True), rounds=2, client_dropout=0.1)
  with pytest.raises(ValueError, match="name=one, not two"):
    checkpoints(True, name="two")
