"""Arguments of algorithms, rules, regularizers and terms of the loss."""

import jax
import numpy as np
import optax
import optax.contrib
import pytest

import fedjax_opt as fo
from fedjax_opt import algorithms, optimizers, prox
from fedjax_opt.checks import fields
from fedjax_opt.checks import rules as checks
from fedjax_opt.optimizers import rate_at
from tests.helpers import refusals
from tests.helpers.linear import SGD, loss_fn
from tests.helpers.public_names import FACTORIES

# Numbers of any sign.
UNBOUNDED = {"momentum_fusion rate", "sps f_min", "compare target"}
UNBOUNDED |= {"compare min_effect"}


def test_algorithms_take_a_loss_and_a_rule_or_a_rate():
  """How values of a kind are refused: see test_fields.py."""
  for entry in algorithms.ALGORITHMS.values():
    own_fields = getattr(entry.factory, "func", entry.factory).checked_fields
    assert own_fields["loss_fn"] == fields.LOSS
    if "learning_rate" not in own_fields:
      assert own_fields["client"] == fields.CLIENT_RULE
      assert own_fields.get("server", own_fields["client"]).accepts in (
        checks.check_optimizer,
        checks.check_client_rule,
      )
    elif entry.factory not in (fo.centralized, fo.local):
      assert own_fields["learning_rate"].accepts.func is checks.check_rate


def test_numbers_have_an_interval():
  open_ended = {
    name
    for name, (_, _, field) in FACTORIES.items()
    if isinstance(field, fields.Scalar) and field.interval == "(-inf, inf)"
  }
  assert open_ended == UNBOUNDED


def update(rule, params=None, **extra):
  jax.eval_shape(
    lambda: rule.update(np.ones(2), rule.init(np.ones(2)), params, **extra)
  )


def trained(paths):
  """FedAvg that trains these leaves alone."""
  return fo.train_only(lambda loss_fn: fo.fed_avg(loss_fn, SGD), paths, loss_fn)


ZERO = prox.zero()
OF_ROUND = lambda round: 1


test_is_refused = refusals.of_table(
  "rules.txt", optimizers, prox, rate_at, update, trained,
  ZERO=ZERO, OF_ROUND=OF_ROUND,
)  # fmt: skip


def test_a_random_key_has_no_mean():
  rule = optax.noisy_sgd(0.1, key=0)
  algorithm = fo.fed_avg(loss_fn, rule, average_state=True)
  with pytest.raises(ValueError, match="average_state: must be False, as the"):
    algorithm.init(np.zeros(2, np.float32))


@pytest.mark.parametrize("base", [optax.adam(1.0), optax.sgd(0.1, 0.9)])
def test_the_base_of_mime_lite_has_no_rate(base):
  with pytest.raises(ValueError, match="base: goes down the gradient"):
    fo.mime_lite(loss_fn, 0.1, base=base)
  fo.mime_lite(loss_fn, 0.1, base=optax.scale_by_adam())
