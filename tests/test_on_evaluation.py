"""What `on_evaluation` returns, and when it ends a run."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedjax_opt as fo

DATA = fo.ClientData.from_partition(
  {"x": np.ones((4, 1), np.float32)}, [np.array([0, 1]), np.array([2, 3])]
)


def loss_fn(params, batch, rng):
  return jnp.square(batch["x"][:, 0] - params)


def run(on_evaluation, **settings):
  return fo.simulate(
    fo.fed_avg(loss_fn, optax.sgd(0.1)),
    jnp.zeros([]),
    DATA,
    batch_size=2,
    evaluate=lambda params, data, test: {"model": params},
    on_evaluation=on_evaluation,
    **settings,
  )


@pytest.mark.parametrize(
  ("answer", "rounds"),
  [
    (lambda report: report.round == 4, 4),
    (lambda report: report.metrics["model"] > -np.inf, 0),  # [S]
    (lambda report: report.metrics["model"] > np.inf, 6),
    (lambda report: report, 6),
    (lambda report: 1.0, 6),
  ],
)
def test_a_run_ends_where_on_evaluation_says_so(answer, rounds):
  result = run(answer, rounds=6, eval_every=2)
  assert result.rounds == result.history.rounds[-1] == rounds
  assert not result.interrupted


def test_what_is_overwritten_is_not_read():
  kept, read = [], []

  def on_evaluation(report):
    kept.append(report)
    if report.round == 0:
      read.append(report.params)

  run(on_evaluation, rounds=2)
  assert kept[0].params is read[0]  # A copy that was taken in time.
  assert read[0] == 0
  message = "report: the model and the state of round 2 are overwritten"
  for name in ("params", "state", "client_state"):
    with pytest.raises(ValueError, match=message):
      getattr(kept[-1], name)
