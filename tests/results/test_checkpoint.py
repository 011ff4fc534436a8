"""A run that was stopped, at whatever moment, goes on bit for bit."""

import dataclasses
import errno
import functools
import operator
import os
import pathlib
import shutil
import signal
import subprocess
import sys

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_opt import (
  Algorithm,
  counters,
  delta_sgd,
  fed_avg,
  samplers,
  scaffold,
  simulate,
  sweep,
)
from fedjax_opt.base import STREAMS
from fedjax_opt.data.population import Population
from fedjax_opt.results import checkpoint
from fedjax_opt.results.checkpoint import CheckpointError, Checkpoints
from fedjax_opt.results.record import RunRecord
from tests import jax_problems
from tests.file_limits import limited
from tests.refusals import refusal

TASK = jax_problems.softmax()
SETTINGS = {
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


def run(case, checkpoints=None, on_evaluation=None, **others):
  """One of the ways to run something, with or without checkpoints."""
  others |= {"checkpoints": checkpoints, "on_evaluation": on_evaluation}
  settings = SETTINGS | {"evaluate": evaluate} | others
  if case in ("one", "on_host"):  # With memory of every client.
    settings |= {"client_memory": "host"} if case == "on_host" else {}
    algorithm = scaffold(TASK.loss_fn, 0.3)
    return simulate(algorithm, TASK.params, TASK.data, **settings)
  if case == "traced":
    algorithm = fed_avg(TASK.loss_fn, delta_sgd(eta_0=0.1))
    settings["trace"] = ["step_size"]
    return simulate(algorithm, TASK.params, TASK.data, **settings)
  # Most rates diverge, and are dropped before the first checkpoint.
  rates = [*np.geomspace(1e20, 1e30, 12), 0.05, 0.1, 0.2, 0.3]
  make = lambda rate: fed_avg(TASK.loss_fn, optax.chain(optax.sgd(rate)))
  return sweep(
    make, {"rate": rates}, TASK.params, TASK.data, seeds=[3, 8],
    grid_map=case, **settings,
  )  # fmt: skip


whole = functools.cache(run)


def killed_after(case, folder, rounds, every=3):
  """Runs until the evaluation after so many rounds is reported."""

  def on_evaluation(report):
    if report.round == rounds:
      raise Killed

  with pytest.raises(Killed):
    run(case, Checkpoints(folder, every), on_evaluation)


def saved_in(folder):
  """Rounds of the checkpoints, which are all that is there."""
  return sorted(int(name.removesuffix(".npz")) for name in os.listdir(folder))


def states(result):
  """What a checkpoint has."""
  return result.state, result.client_state


def assert_same(actual, expected):
  parts = operator.attrgetter(
    *("params", "state", "client_state", "traces", "cost", "padding_waste"),
    *("rounds", "history.rounds", "history.metrics"),
  )
  chex.assert_trees_all_equal(parts(actual), parts(expected))


@pytest.mark.parametrize("case", ["one", "on_host", "traced", "vmap", "scan"])
def test_a_killed_run_goes_on_bit_for_bit(case, tmp_path):
  killed_after(case, tmp_path, 8)
  assert sorted(os.listdir(tmp_path)) == ["3.npz", "6.npz"]
  reported = []
  note = lambda report: reported.append((report.round, report.metrics["bias"]))
  result = run(case, Checkpoints(tmp_path, 3, resume=True), note)
  assert_same(result, whole(case))
  # What was measured before is told again.
  assert [round for round, _ in reported] == [0, 4, 8, 11]
  measured = result.history.metrics["bias"]
  np.testing.assert_array_equal(
    np.transpose([m for _, m in reported]), measured
  )
  assert sorted(os.listdir(tmp_path)) == ["11.npz", "9.npz"]

  if case in ("one", "vmap", "scan"):
    # One that is complete has nothing to do but to say so; of a grid most
    # points were dropped.
    again = run(case, Checkpoints(tmp_path, 3, resume=True))
    assert_same(again, result)


@pytest.mark.parametrize("points", [2, 16])
def test_a_grid_with_nothing_left_to_do_that_diverged(points, tmp_path):
  """Of two points none is dropped, of sixteen all but one."""
  make = lambda rate: fed_avg(TASK.loss_fn, optax.chain(optax.sgd(rate)))

  def diverged(resume):
    return sweep(
      make, {"rate": np.geomspace(1e20, 1e30, points)}, TASK.params, TASK.data,
      checkpoints=Checkpoints(tmp_path, 3, resume=resume), grid_map="vmap",
      evaluate=evaluate, **SETTINGS,
    )  # fmt: skip

  first = diverged(resume=False)
  assert first.history.diverged()[:, -1].all()
  assert_same(diverged(resume=True), first)


# What is lost of a grid and of what is on the host is tested above.
@pytest.mark.parametrize("case", ["one", "traced", "vmap"])
def test_a_run_that_ended_is_extended_bit_for_bit(case, tmp_path):
  run(case, Checkpoints(tmp_path, 3), rounds=6)
  if case == "one":
    fewer = r"rounds=5: the checkpoint .* round 6; "
    with pytest.raises(ValueError, match=fewer):
      run(case, Checkpoints(tmp_path, 3, resume=True), rounds=5)
  reported = []
  note = lambda report: reported.append(report.round)
  result = run(case, Checkpoints(tmp_path, 3, resume=True), note)
  assert_same(result, whole(case))
  assert reported == [0, 4, 8, 11]  # Without round 6.


@pytest.mark.parametrize(("eval_every", "first"), [(2, 6), (20, 6)])
def test_whenever_it_is_evaluated(tmp_path, eval_every, first):
  how = {"eval_every": eval_every}
  expected = run("one", Checkpoints(tmp_path / "b", 5), **how, rounds=12)
  run("one", Checkpoints(tmp_path / "a", 5), **how, rounds=first)
  # What was killed before it saved anything new is extended again.
  with pytest.raises(Killed):
    run("one", Checkpoints(tmp_path / "a", 5, resume=True), kill, **how)
  checkpoints = Checkpoints(tmp_path / "a", 5, resume=True)
  result = run("one", checkpoints, **how, rounds=12)
  assert_same(result, expected)
  one, two = [
    Checkpoints(tmp_path / name, None, resume=True).load(states(expected))
    for name in "ab"
  ]
  del one.record["run_seconds"], two.record["run_seconds"]
  chex.assert_trees_all_equal(one, two)


def kill(report):
  raise Killed


def test_points_that_diverge_in_the_last_evaluation_of_a_shorter_run(tmp_path):
  """They would have gone on until the next evaluation of the longer one."""

  of_rate = lambda rate: Algorithm(
    init=lambda params, num_clients: params,
    round=lambda state, cohort: (state + rate, ()),
    params=lambda state: state,
  )

  def loss(params, data, test):  # Of the first nine after 6 rounds, not 4.
    return {"train_loss": jnp.where(params < 100, params, jnp.nan)}

  def run(rounds, folder, resume=False):
    return sweep(
      of_rate, {"rate": [*np.linspace(20, 23, 9), *np.linspace(1, 2, 7)]},
      jnp.float32(0), TASK.data, grid_map="vmap", evaluate=loss,
      cohort_size=3, batch_size=4, eval_every=4, rounds=rounds,
      checkpoints=Checkpoints(folder, 4, resume=resume),
    )  # fmt: skip

  shorter = run(6, tmp_path / "a")
  assert shorter.history.diverged()[:, -1].sum() == 9
  assert_same(run(12, tmp_path / "a", True), run(12, tmp_path / "b"))


def test_rounds_lost_before_an_evaluation_that_is_forgotten():
  """They count until the next scheduled one."""
  record, loss = RunRecord(1, 1), {"train_loss": np.ones(1)}
  lost = {n: counters.of(2)[None] for n in ("lost_rounds", "rejected_clients")}
  record.add_rounds(4, {}, {})
  record.add_metrics(loss)
  record.add_rounds(6, {}, {})
  record.add_metrics(loss, is_scheduled=False)
  record.forget(6)
  record.add_rounds(8, lost, {})
  assert record.add_metrics(loss)["train_loss"] == 1  # Two rounds of four.
  record.add_rounds(10, lost, {})
  assert np.isnan(record.add_metrics(loss)["train_loss"])
  assert record.history.rounds == [4, 8, 10]


@pytest.mark.parametrize(
  ("number", "moment", "presses"),
  [
    (signal.SIGTERM, "evaluation", 1),
    (signal.SIGINT, "checkpoint", 2),
    (signal.SIGINT, "both", 10),
  ],
)
def test_no_number_of_signals_costs_the_last_checkpoint(
  number, moment, presses, tmp_path, monkeypatch
):
  before = signal.signal(signal.SIGINT, signal.default_int_handler)
  handlers = signal.getsignal(signal.SIGTERM), signal.default_int_handler
  is_early = moment != "checkpoint"
  # Those of early signals are between the rounds that have one anyway.
  checkpoints = Checkpoints(tmp_path, 100 if is_early else 4)
  save, done = Checkpoints.save, 4 if is_early else 8

  def press():
    for _ in range(presses):
      os.kill(os.getpid(), number)

  def on_evaluation(report):
    assert report.round <= done
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
    signal.signal(signal.SIGINT, before)
  assert result.interrupted == number
  assert result.rounds == done
  assert saved_in(tmp_path) == [0 if is_early else 4, done]
  resumed = run("one", Checkpoints(tmp_path, None, resume=True))
  assert_same(resumed, whole("one"))
  assert resumed.interrupted == 0


def test_a_signal_after_the_last_round_is_no_interruption(tmp_path):
  def on_evaluation(report):
    if report.round == SETTINGS["rounds"]:
      os.kill(os.getpid(), signal.SIGTERM)

  result = run("one", Checkpoints(tmp_path, 3), on_evaluation)
  assert result.interrupted == 0
  assert_same(result, whole("one"))


def test_a_run_goes_on_past_what_was_half_written_or_damaged(tmp_path):
  killed_after("one", tmp_path, 8)
  shutil.copy(tmp_path / "6.npz", tmp_path / "9.npz.tmp")
  os.truncate(tmp_path / "6.npz", 500)
  with pytest.warns(UserWarning, match="checkpoint of round 6 .*; ignored"):
    result = run("one", Checkpoints(tmp_path, 3, resume=True))
  assert_same(result, whole("one"))
  found = ["11.npz", "6.npz.damaged", "9.npz"]
  assert sorted(os.listdir(tmp_path)) == found


STATE = {
  "w": jax.random.normal(jax.random.key(0), 2000),
  "half": jnp.arange(3, dtype=jnp.bfloat16),
  "count": np.array(7, np.int32),
  "key": jax.random.split(jax.random.key(3, impl="rbg"), 2),
}


@pytest.fixture(scope="module")
def saved_twice(tmp_path_factory):
  """The folder of checkpoints of `STATE` in rounds 3 and 6."""
  folder = tmp_path_factory.mktemp("twice")
  for round in (3, 6):
    kept = Checkpoints(folder, 3, resume=round > 3)
    kept.save(round, STATE, {"a": np.arange(2.0)})
  return folder


@pytest.fixture
def twice(saved_twice, tmp_path):
  """A copy of that folder."""
  return shutil.copytree(saved_twice, tmp_path, dirs_exist_ok=True)


def test_all_types_of_leaves_come_back(twice):
  saved = Checkpoints(twice, 3, resume=True).load(jax.eval_shape(lambda: STATE))
  chex.assert_trees_all_equal(saved.state, STATE)
  assert saved.state["key"].dtype == STATE["key"].dtype
  rows = Checkpoints(twice, 3, resume=True).load(STATE).state["count"]
  assert isinstance(rows, np.ndarray)


def test_a_flipped_bit_of_an_array(twice):
  content = bytearray((twice / "6.npz").read_bytes())
  content[content.index(np.asarray(STATE["w"]).tobytes()) + 300] ^= 1
  (twice / "6.npz").write_bytes(content)
  checkpoints = Checkpoints(twice, 3, resume=True)
  with pytest.warns(UserWarning, match=r"round 6 .* not what was writ") as told:
    assert checkpoints.load(STATE).round == 3
  assert len(told) == 1
  assert "\n" not in str(told[0].message)
  assert sorted(os.listdir(twice)) == ["3.npz", "6.npz.damaged"]
  checkpoints.save(6, STATE, {})
  assert Checkpoints(twice, 3, resume=True).load(STATE).round == 6


def test_a_checkpoint_under_the_name_of_another_round(twice):
  os.rename(twice / "6.npz", twice / "9.npz")
  with pytest.warns(UserWarning, match=r"round 9 .*\(it is of another round"):
    assert Checkpoints(twice, 3, resume=True).load(STATE).round == 3


@pytest.mark.parametrize(
  ("error", "said"),
  [
    (MemoryError("Unable to allocate 9 GiB"), "Unable to allocate 9 GiB"),
    (OSError(errno.EIO, "Input/output error"), "Input/output error"),
    (ValueError("RESOURCE_EXHAUSTED: Out of memory"), "RESOURCE_EXHAUSTED"),
  ],
)
def test_what_may_pass_costs_no_checkpoint(error, said, twice, monkeypatch):
  def fail(*args, **kwargs):
    raise error

  with monkeypatch.context() as patch:
    checkpoints = Checkpoints(twice, 3, resume=True)
    patch.setattr(np, "load", fail)
    with pytest.raises(CheckpointError) as refused:
      checkpoints.load(STATE)
  message = str(refused.value)
  assert message.startswith(
    f"resume=True: checkpoint of round 6 in {str(twice)!r} cannot be read "
    f"now ({said}"
  )
  assert message.endswith("; it is kept, so try again once that has passed")
  assert saved_in(twice) == [3, 6]
  assert Checkpoints(twice, 3, resume=True).load(STATE).round == 6


def test_what_is_of_others_stays(twice):
  """Beside checkpoints; and under the name of one it is refused."""
  (twice / "5.mine").mkdir()
  (twice / "notes.txt").write_text("mine")
  (twice / "latest").symlink_to(twice / "6.npz")
  checkpoints = Checkpoints(twice, 3, resume=True)
  assert checkpoints.load(STATE).round == 6
  for round in (9, 12, 15):
    checkpoints.save(round, STATE, {})
  kept = ["12.npz", "15.npz", "5.mine", "latest", "notes.txt"]
  assert sorted(os.listdir(twice)) == kept
  other, none = twice / "20.npz", "no checkpoint of this version"
  before = twice / "20"  # As earlier versions named theirs.
  makes = (
    (before, before.mkdir, none),
    (other, other.mkdir, none),
    (other, lambda: other.symlink_to(twice / "12.npz"), "a link"),
  )
  for number, (path, make, kind) in enumerate(makes):
    make()
    assert refusal(Checkpoints, twice, 3, resume=True) == (
      f"{str(path)!r} is {kind}, and has the name of a checkpoint; move it to "
      "another folder"
    )
    assert os.path.lexists(path)
    os.rename(path, twice / f"moved-{number}")


def test_a_folder_of_others_that_comes_later_stays(twice):
  checkpoints = Checkpoints(twice, 3, resume=True)
  checkpoints.load(STATE)
  (twice / "9.npz").mkdir()
  (twice / "9.npz" / "mine.txt").write_text("mine")
  with pytest.raises(
    OSError, match=r"checkpoint of round 9 in .* cannot be wr"
  ):
    checkpoints.save(9, STATE, {})
  assert (twice / "9.npz" / "mine.txt").read_text() == "mine"
  assert saved_in(twice) == [3, 6, 9]


def test_checkpoints_of_another_process_stay(twice):
  one, other = (Checkpoints(twice, 3, resume=True) for _ in range(2))
  for round in (9, 12):
    one.save(round, STATE, {})
  for round in (15, 18):
    other.save(round, STATE, {})
  assert saved_in(twice) == [9, 12, 15, 18]


def test_one_object_serves_one_run(tmp_path):
  checkpoints = Checkpoints(tmp_path, 3)
  assert checkpoints.load(STATE) is None
  checkpoints.save(3, STATE, {})
  with pytest.raises(ValueError, match="holds checkpoints of a run; give resu"):
    checkpoints.load(STATE)
  assert saved_in(tmp_path) == [3]


@pytest.mark.filterwarnings("ignore")
def test_none_that_can_be_read(twice):
  for path in twice.iterdir():
    os.truncate(path, path.stat().st_size // 2)
  with pytest.raises(ValueError, match=r"no checkpoint in .* can be read"):
    Checkpoints(twice, 3, resume=True).load(STATE)


def test_a_full_disk_leaves_what_was_complete(twice):
  large = {"w": np.random.default_rng(0).normal(size=100_000)}
  with (
    limited(50_000),
    pytest.raises(OSError, match=r"checkpoint of round 9 in .* cannot "),
  ):
    Checkpoints(twice, 3, resume=True).save(9, large, {"a": np.ones(2)})
  assert saved_in(twice) == [3, 6]
  assert Checkpoints(twice, 3, resume=True).load(STATE).round == 6


def test_what_cannot_be_resumed(tmp_path, monkeypatch):
  empty, folder = tmp_path / "empty", tmp_path / "full"

  assert refusal(Checkpoints, empty, 0) == ("every=0: must be at least 1")
  assert refusal(Checkpoints, empty, 3, resume=True) == (
    f"resume=True: '{empty}' holds no checkpoint to go on from"
  )
  identity = {"lr": 0.1, "versions": {"jax": "1"}}
  Checkpoints(folder, 3, identity=identity).save(3, {"w": jnp.ones(3)}, {})
  assert refusal(Checkpoints, folder, 3) == (
    f"resume=False: '{folder}' holds checkpoints of a run; give resume=True to "
    "go on with it, or another folder"
  )
  resumed = functools.partial(Checkpoints, folder, 3, resume=True)
  assert refusal(resumed, identity=identity | {"lr": 0.2}) == (
    f"resume=True: '{folder}' is of a run with lr=0.1, not 0.2; give what that "
    "run had, or another folder"
  )
  mine = resumed(identity=identity)
  assert refusal(mine.load, {"w": jnp.ones(4)}) == (
    f"resume=True: '{folder}' is of another algorithm or model: "
    "['w']=float32[3], not float32[4]"
  )
  monkeypatch.setattr(checkpoint, "STREAMS", 7)
  assert refusal(resumed, identity=identity) == (
    f"resume=True: '{folder}' is of a run with streams={STREAMS} of random "
    "numbers, not 7, which would go on with other cohorts; give another folder"
  )


MOVED = TASK.data.examples | {"x": TASK.data.examples["x"] + np.float32(1)}


def turned(data):
  """The same clients in another order."""
  return dataclasses.replace(
    data, indices=data.indices[::-1], sizes=data.sizes[::-1]
  )


def doubled(params, batch, rng):
  return 2 * TASK.loss_fn(params, batch, rng)


def scored(params, data, test):
  return {"train_loss": jnp.max(jnp.abs(params["kernel"]))}


def started(
  folder, *, resume=False, rate=0.1, loss=TASK.loss_fn, server=None, **others
):
  settings = SETTINGS | {"rounds": 2, "evaluate": evaluate, "data": TASK.data}
  settings |= {"test": TASK.data.examples, "params": TASK.params} | others
  return simulate(
    fed_avg(loss, optax.sgd(rate), server),
    checkpoints=Checkpoints(folder, None, resume=resume),
    **settings,
  )


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
  """The folder of a run's checkpoints."""
  folder = tmp_path_factory.mktemp("saved")
  started(folder)
  return folder


FUNCTION = "another algorithm, or setting that is a function"


@pytest.mark.parametrize(
  ("other", "difference"),
  [
    ({"rate": 0.2}, FUNCTION),
    ({"loss": doubled}, FUNCTION),
    ({"batch_size": 5}, f"batch_size=4, not 5, {FUNCTION}"),
    ({"seed": 3}, "seed=0, not 3"),
    ({"evaluate": scored}, "another evaluate"),
    (
      {"sampler": samplers.fixed([[0, 1, 2]])},
      f"another sampler, {FUNCTION}",
    ),
    (
      {"data": dataclasses.replace(TASK.data, examples=MOVED)},
      "other data (train examples)",
    ),
    (
      {"data": turned(TASK.data)},
      "other data (partition)",
    ),
    ({"test": MOVED}, "other data (test)"),
  ],
)
def test_another_run_is_not_resumed(saved, other, difference):
  assert refusal(started, saved, resume=True, rounds=4, **other) == (
    f"resume=True: '{saved}' is of a run with {difference}; give what that run "
    "had, or another folder"
  )


def test_what_may_differ_in_a_resumed_run(saved, tmp_path):
  """Objects that say the same, the model given, and how it is computed."""
  folder = shutil.copytree(saved, tmp_path / "copy")
  for again in range(2):  # In the second run the functions were used before.
    same = lambda params, batch, rng: TASK.loss_fn(params, batch, rng)
    zeros = jax.tree.map(jnp.zeros_like, TASK.params)
    data = jax.tree.map(np.copy, TASK.data)
    result = started(
      folder, resume=True, rounds=4 + again, params=zeros, data=data, loss=same,
      client_chunk=1, client_map="vmap",
    )  # fmt: skip
    assert result.rounds == 4 + again


def test_what_the_rounds_do_not_show_is_compared(tmp_path):
  """The initial state of the server; cohorts that are drawn on the host."""
  server = lambda start: {"server": optax.adagrad(0.1, start)}
  started(tmp_path / "server", **server(0.1))
  with pytest.raises(ValueError, match="another initial state of the algor"):
    started(tmp_path / "server", resume=True, rounds=4, **server(0.9))
  population = Population.of_client_data(tmp_path / "clients", TASK.data)
  of = lambda clients: {
    "data": population, "evaluate": None, "test": None, "cohort_size": 1,
    "sampler": samplers.fixed([clients]),
  }  # fmt: skip
  started(tmp_path / "disk", **of([0]))
  with pytest.raises(ValueError, match="of a run with another sampler; give"):
    started(tmp_path / "disk", resume=True, rounds=4, **of([1]))


def test_another_process_goes_on(saved, tmp_path):
  """The text of programs is the same in each process."""
  folder = shutil.copytree(saved, tmp_path / "copy")
  code = (
    "from tests.results.test_checkpoint import started; "
    f"assert started({str(folder)!r}, resume=True, rounds=4).rounds == 4"
  )
  subprocess.run(
    [sys.executable, "-c", code],
    cwd=pathlib.Path(__file__).parents[2],
    env=os.environ | {"PYTHONHASHSEED": "7"},
    check=True,
  )


def test_another_grid_or_partition_of_a_seed_is_not_resumed(tmp_path):
  def some(folder, rates=(0.1, 0.2), seeds=(0, 1), order=(1, -1), resume=True):
    of = lambda seed: TASK.data if order[seed] > 0 else turned(TASK.data)
    return sweep(
      lambda rate: fed_avg(TASK.loss_fn, optax.sgd(rate)),
      {"rate": list(rates)}, TASK.params, of, seeds=list(seeds),
      checkpoints=Checkpoints(folder, None, resume=resume),
      **SETTINGS | {"rounds": 1},
    )  # fmt: skip

  some(tmp_path, resume=False)
  for other, difference in (
    ({"rates": (0.1, 0.3)}, r"grid={'rate': \[0.1, 0.2\]}, not {'rate'"),
    ({"seeds": (1, 0)}, r"other data \(partition\), seed=\[0, 1\], not"),
    ({"order": (1, 1)}, r"other data \(partition\); give"),
  ):
    with pytest.raises(ValueError, match=difference):
      some(tmp_path, **other)


def test_an_identity_that_is_given_is_all_that_counts(tmp_path):
  identity = {"name": "one"}
  given = lambda resume, **own: Checkpoints(
    tmp_path, None, resume=resume, identity=identity | own
  )
  run("one", given(False), rounds=1)
  run("one", given(True), rounds=2, client_dropout=0.1)
  with pytest.raises(ValueError, match="name=one, not two"):
    given(True, name="two")
