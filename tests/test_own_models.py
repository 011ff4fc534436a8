"""The metrics of clients' own models, of all points of a grid at once."""

import numpy as np
import optax
import pytest

import fedjax_opt as fo
from fedjax_opt.own_models import OwnModels
from tests import cases

SETTINGS = {"batch_size": 4, "local_steps": 3, "cohort_size": 4}


def per_example(params, batch):
  loss = cases.loss_fn(params, batch, None)
  return {"loss": loss, "accuracy": (loss < 1) * 1.0}


def ditto(lr):
  return fo.ditto(cases.loss_fn, optax.sgd(lr), lam=0.1)


def per_fed_avg(lr):
  return fo.per_fed_avg(cases.loss_fn, lr, inner_learning_rate=0.5)


def fed_avg(lr):
  return fo.fed_avg(cases.loss_fn, optax.sgd(lr))


@pytest.mark.parametrize("make", [ditto, per_fed_avg, fed_avg])
def test_are_those_of_each_client(make):
  """Of two rates and two seeds, whose clients differ, before and after."""
  both = {seed: cases.DATA.split(0.4, seed) for seed in (5, 2)}
  train, test = ({s: pair[i] for s, pair in both.items()} for i in (0, 1))
  grid = {"lr": [0.05, 0.5]}
  points = fo.grid_points(grid, list(train))
  own = OwnModels(make, points, per_example, train, {"test": test})
  found, expected = [], []

  def on_evaluation(report):
    found.append(own.measure(report))
    expected.append([])
    for i, point in enumerate(points):
      given = {"train": train[point["seed"]], "seed": point["seed"]}
      if make is not fed_avg:
        given["algorithm"] = make(point["lr"])
      measured = fo.evaluate_clients(
        report, per_example, test[point["seed"]], point=i, **given
      )
      kind = "global" if make is fed_avg else "personal"
      expected[-1].append(measured.summary()[kind])

  fo.sweep(
    make,
    grid,
    cases.PARAMS,
    train.get,
    rounds=2,
    seeds=list(train),
    evaluate=fo.evaluation.federated(per_example),
    eval_every=2,
    on_evaluation=on_evaluation,
    **SETTINGS,
  )
  assert len(found) == 2
  for one, other in zip(found, expected, strict=True):
    assert set(one) == {"client_test_loss", "client_test_accuracy"}
    for name, values in one.items():
      of_points = [summary[name] for summary in other]
      np.testing.assert_allclose(values, of_points, rtol=1e-5)
  assert len(set(found[-1]["client_test_loss"].tolist())) == len(points)


def test_a_single_run_is_a_grid_of_one_point():
  train, test = cases.DATA.split(0.4)
  algorithm, found = ditto(0.1), []
  own = OwnModels(
    lambda: algorithm, [{"seed": 0}], per_example, {0: train}, {"x": {0: test}}
  )
  fo.simulate(
    algorithm,
    cases.PARAMS,
    train,
    rounds=1,
    evaluate=fo.evaluation.federated(per_example),
    on_evaluation=lambda report: found.append(own.measure(report)),
    **SETTINGS,
  )
  assert found[0]["client_x_loss"].shape == (1,)
  assert found[0]["client_x_loss"] != found[1]["client_x_loss"]
