"""Server steps of FLSim, the program of FedBuff's authors, one by one.

`flsim.npz` is what flsim 0.1.0 did on a small problem; it was written by
`benchmarks/flsim_worker.py`, which says how. A client takes two steps on all of
its examples, so that no draw of a batch is in the numbers.
"""

import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas
import pytest

import fedjax_opt as fo

SAVED = np.load(pathlib.Path(__file__).parent / "flsim.npz")
RULE = optax.sgd(0.5)
# Where FLSim differs from the papers: the weight of an update is divided by
# that of a staleness of 1, with the power 1/2; FedBuff's updates are added up;
# and an epoch, of 24 arrivals, ends with a step of what is in the buffer. Of
# what is too stale to be used, no place is taken.
SCALE, MAX_STALENESS = 2**0.5, 2
BUFFERS = {"buffer": 3, "restarts": 5, "mixing": 1}


def table_of(name):
  """The timetable that FLSim's own versions give, with free places."""
  events = SAVED[f"{name}_events"].astype(np.float64)
  if name == "restarts":
    events = events[events[:, 4] - events[:, 3] <= MAX_STALENESS]
  counts = np.bincount(events[:, 4].astype(int))
  rows = np.full((len(counts), BUFFERS[name], 4), -1.0)
  rows[np.arange(BUFFERS[name]) < counts[:, None]] = events[:, :4]
  clients, starts, ends, versions = np.moveaxis(rows, 2, 0)
  free, time = clients < 0, ends.max(1)
  return fo.schedules.by_hand(
    clients.astype(int),
    np.where(free, 0, versions).astype(int),
    time=time,
    starts=np.where(free, 0, starts),
    ends=np.where(free, time[:, None], ends),
  )


@pytest.mark.parametrize("name", ["buffer", "mixing"])
def test_a_trace_of_its_events_gives_its_versions(name, tmp_path):
  events = SAVED[f"{name}_events"][:, :3].astype(np.float64)
  trace = pandas.DataFrame(events, columns=["client", "start", "end"])
  trace.astype({"client": int}).to_csv(tmp_path / "trace.csv", index=False)
  schedule = fo.schedules.replay(tmp_path / "trace.csv", BUFFERS[name])
  expected = table_of(name)
  for actual, column in zip(schedule[:8], expected[:8], strict=True):
    np.testing.assert_array_equal(actual, column)


def loss_fn(params, batch, rng):  # [B]
  logits = batch["x"] @ params["weight"].T + params["bias"]
  cross_entropy = optax.softmax_cross_entropy_with_integer_labels
  return cross_entropy(logits, batch["y"])


def algorithm_of(name, schedule):
  """FLSim's server, in the settings of the methods here."""
  if name == "mixing":
    return fo.fed_async(loss_fn, RULE, alpha=0.5 * SCALE, mu=0.0)
  updates = jnp.asarray(schedule.taken.sum(1))  # Those that are added up.
  rate = lambda step: 0.25 * SCALE * updates[step]
  return fo.fed_buff(loss_fn, RULE, optax.sgd(rate))


@pytest.mark.slow
@pytest.mark.parametrize("name", BUFFERS)
def test_weights_after_each_server_step(name):
  schedule, sizes = table_of(name), SAVED["sizes"]
  rows = np.split(np.arange(sizes.sum()), np.cumsum(sizes)[:-1])
  examples = {name: SAVED[name] for name in ("x", "y")}
  simulator = fo.Simulator(
    algorithm_of(name, schedule),
    fo.ClientData.from_partition(examples, rows),
    schedule=schedule,
    batch_size=int(sizes.max()),
    local_epochs=2,
    weighting="uniform",
  )
  names = ("weight", "bias")
  state = simulator.init({name: SAVED[name] for name in names}, seed=0)
  expected = SAVED[f"{name}_models"]
  assert len(expected) == len(schedule.time) >= 30
  for model in expected:
    state, _ = simulator.run(state, 1)
    actual = jax.device_get(simulator.params(state))
    actual = np.concatenate([actual[name].ravel() for name in names])
    np.testing.assert_allclose(actual, model, rtol=0, atol=1e-6)
