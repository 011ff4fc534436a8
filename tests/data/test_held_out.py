"""Clients whose examples are held out, as test and validation examples."""

import re

import jax
import numpy as np
import optax
import pytest

import fedjax_opt as fo
from fedjax_opt.data import lists

RNG = np.random.default_rng(0)
N = 40
POOL = {
  "x": RNG.normal(size=(N, 3)).astype(np.float32),
  "y": RNG.normal(size=N).astype(np.float32),
}
PARAMS = {"w": np.ones(3, np.float32)}


def loss_fn(params, batch, rng):
  return (batch["x"] @ params["w"] - batch["y"]) ** 2


evaluate = fo.evaluation.federated(
  lambda params, batch: {"loss": loss_fn(params, batch, None)}
)
ALGORITHM = fo.fed_avg(loss_fn, optax.sgd(0.1))
OPTIONS = {"rounds": 2, "batch_size": 2, "evaluate": evaluate}


def disjoint():
  return fo.ClientData.from_client_ids(POOL, np.arange(N) % 5)


def shared():
  """Clients that share rows, have one twice, or have none."""
  rows = [np.arange(20), np.arange(10, 30), np.array([3, 3, 31]), np.array([])]
  rows = [of_client.astype(int) for of_client in rows]
  return fo.ClientData.from_partition(POOL, rows, keep_pool=True)


def rows_of(data):
  """The rows of the pool that some client has, by a loop."""
  sizes, indices = np.asarray(data.sizes), np.asarray(data.indices)
  return sorted({int(r) for m, n in enumerate(sizes) for r in indices[m, :n]})


def mean_loss(params, rows):
  of_pool = (POOL["x"] @ np.asarray(params["w"]) - POOL["y"]) ** 2
  return of_pool[rows].mean()


@pytest.mark.parametrize("make", [disjoint, shared])
@pytest.mark.default_cases("shared")
def test_what_split_held_out_is_tested_on_each_row_once(make):
  train, held_out = make().split(0.5)
  validation, test = held_out.split(0.5)
  assert len(set(rows_of(test))) < test.num_examples  # The pool has more.
  parts = {"test": test, "validation": validation}
  result = fo.simulate(ALGORITHM, PARAMS, train, **parts, **OPTIONS)
  for name, data in parts.items():
    np.testing.assert_allclose(
      result.history.metrics[f"{name}_loss"][0, -1],
      mean_loss(result.params, rows_of(data)),
      rtol=1e-5,
    )


@pytest.mark.slow
def test_a_comparison_takes_clients():
  train, held_out = disjoint().split(0.5)
  validation, test = held_out.split(0.5)
  make = lambda lr: fo.fed_avg(loss_fn, optax.sgd(lr))
  study = fo.compare(
    {"FedAvg": fo.Method(make, {"lr": [0.01, 0.1]})},
    PARAMS,
    train,
    validation=validation,
    test=test,
    metric="test_loss",
    seeds=[0],
    report_seeds=[1],
    **OPTIONS,
  )
  metrics = study.cells[0].report_runs.history.metrics
  assert np.isfinite(metrics["test_loss"]).all()


@pytest.mark.parametrize("as_copy", [False, True])
@pytest.mark.parametrize("name", ["test", "validation"])
def test_rows_that_are_trained_on_are_refused(name, as_copy):
  data = disjoint()
  _, held_out = data.split(0.2)
  if as_copy:  # As if the pool had been read again.
    copy = {key: values.copy() for key, values in held_out.examples.items()}
    held_out = fo.ClientData(copy, held_out.indices, held_out.sizes)
  number = len(rows_of(held_out))
  line = (
    f"{name}: {number} of its {number} examples are among those that clients "
    "train on; must have none of them; give clients the first part of "
    f"data.split(0.2), and {name}= the second"
  )
  with pytest.raises(ValueError, match=re.escape(line)):
    fo.simulate(ALGORITHM, PARAMS, data, **{name: held_out}, **OPTIONS)


@pytest.mark.parametrize("has_lists", [False, True])
@pytest.mark.default_cases("True")
def test_what_another_seed_trains_on_is_refused(has_lists, monkeypatch):
  """Each seed has a split of its own, and the test examples of one."""
  monkeypatch.setattr(lists, "_is_wasteful", lambda *_: has_lists)

  def clients(seed):
    rows = fo.partition.iid(np.arange(N) % 2, num_clients=4, seed=seed)
    return fo.ClientData.from_partition(POOL, rows, keep_pool=True)

  run = lambda seeds: fo.sweep(
    lambda: ALGORITHM,
    {},
    PARAMS,
    lambda seed: clients(seed).split(0.2)[0],
    seeds=seeds,
    test=clients(0).split(0.2)[1],
    **OPTIONS,
  )
  assert np.isfinite(run([0]).history.metrics["test_loss"]).all()
  with pytest.raises(ValueError, match=r"test: \d of its 8 examples are among"):
    run([0, 1])


def test_a_device_s_examples_stay_there():
  on_device = jax.device_put(disjoint())
  part = on_device.split(0.2)[1].pooled()
  assert all(isinstance(leaf, jax.Array) for leaf in part.values())
