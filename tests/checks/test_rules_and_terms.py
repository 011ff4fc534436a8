"""Bad numbers and switches of rules, regularizers and terms of the loss."""

import numpy as np
import optax
import pytest

from fedjax_opt import objectives, prox, rules, transforms
from tests.checks import given
from tests.checks.given import loss_fn

PSI = (
  "psi=None: must be a regularizer of fedjax_opt.prox, such as "
  "prox.kernels(prox.l1(0.1)), or prox.zero() for none"
)
NUMBER, WHOLE = "must be a number", "must be a whole number"
NON_NEGATIVE = "must be in [0, inf)"

# The whole line: (call, type of the error).
BAD = {
  f"c='a': {NUMBER}": (lambda: rules.sps(c="a"), TypeError),
  "c=0: must be in (0, inf)": (lambda: rules.sps(c=0), ValueError),
  f"gamma='2': {NUMBER}": (lambda: rules.delta_sgd(gamma="2"), TypeError),
  "measure_movement=1: must be True or False": (
    lambda: rules.delta_sgd(measure_movement=1),
    TypeError,
  ),
  "independent_dropout='no': must be True or False": (
    lambda: rules.delta_sgd(independent_dropout="no"),
    TypeError,
  ),
  f"learning_rate=the function <lambda>: {NUMBER}": (
    lambda: rules.fedopt_adam(lambda step: 0.1),
    TypeError,
  ),
  f"learning_rate=-0.1: {NON_NEGATIVE}": (
    lambda: rules.sarah(-0.1),
    ValueError,
  ),
  f"learning_rate=-0.2: {NON_NEGATIVE}": (
    lambda: rules.mirror_step(-0.2, prox.zero()),
    ValueError,
  ),
  f"learning_rate=None: {NUMBER}": (
    lambda: rules.subgradient_step(None, prox.zero()),
    TypeError,
  ),
  PSI: (lambda: rules.subgradient_step(0.1, None), ValueError),
  PSI.replace("None", "0.1", 1): (
    lambda: rules.dual_averaging(0.1, 0.1),
    ValueError,
  ),
  "mirror_map=2: must be one of fedjax_opt.mirror, such as mirror.entropy(), "
  "or None": (lambda: rules.mirror_step(0.1, prox.zero(), 2), TypeError),
  f"rate='1': {NUMBER}": (
    lambda: rules.momentum_fusion(np.zeros(2), "1"),
    TypeError,
  ),
  f"round='a': {NUMBER}": (lambda: rules.step_decay("a", 5), TypeError),
  f"num_rounds='a': {WHOLE}": (lambda: rules.step_decay(3, "a"), TypeError),
  "milestones=0.5: must be a list or tuple of fractions of the rounds": (
    lambda: rules.step_decay(3, 5, 0.5),
    TypeError,
  ),
  f"milestones[1]=-1: {NON_NEGATIVE}": (
    lambda: rules.step_decay(3, 5, (0.5, -1)),
    ValueError,
  ),
  f"factor=-2: {NON_NEGATIVE}": (
    lambda: rules.step_decay(3, 5, factor=-2),
    ValueError,
  ),
  f"l1: strength='0.1': {NUMBER}": (lambda: prox.l1("0.1"), TypeError),
  f"nuclear: strength=None: {NUMBER}": (
    lambda: prox.nuclear(None),
    TypeError,
  ),
  f"l1_ball: radius=[1.0, 2.0]: {NUMBER}": (
    lambda: prox.l1_ball([1.0, 2.0]),
    TypeError,
  ),
  f"simplex: scale=an array float64[2]: {NUMBER}": (
    lambda: prox.simplex(np.ones(2)),
    TypeError,
  ),
  f"box: low='a': {NUMBER}": (lambda: prox.box("a", 1), TypeError),
  f"box: high=an array float64[2]: {NUMBER}": (
    lambda: prox.box(0, np.ones(2)),
    TypeError,
  ),
  "box: low=nan: must be in [-inf, inf]": (
    lambda: prox.box(float("nan")),
    ValueError,
  ),
  f"scale=a Regularizer: {NUMBER}": (
    lambda: prox.l1(0.1) * prox.l1(0.1),
    TypeError,
  ),
  f"group_lasso: axis=None: {WHOLE}": (
    lambda: prox.group_lasso(0.1, axis=None),
    TypeError,
  ),
  f"group_lasso: axis='b': {WHOLE}": (
    lambda: prox.group_lasso(0.1, axis=(0, "b")),
    TypeError,
  ),
  f"total_variation_1d: axis=0.5: {WHOLE}": (
    lambda: prox.total_variation_1d(0.1, axis=0.5),
    TypeError,
  ),
  f"strength=-0.1: {NON_NEGATIVE}": (
    lambda: objectives.l2(loss_fn, -0.1),
    ValueError,
  ),
  f"mu='0.1': {NUMBER}": (
    lambda: objectives.proximal(loss_fn, given.PARAMS, "0.1"),
    TypeError,
  ),
  "temperature=0: must be in (0, inf)": (
    lambda: objectives.contrastive(
      loss_fn, loss_fn, given.PARAMS, given.PARAMS, mu=1, temperature=0
    ),
    ValueError,
  ),
  "upload: its update failed:...": (
    given.late(upload=lambda: optax.add_decayed_weights(0.1)),
    ValueError,
  ),
  "upload: its init: failed: KeyError: 'a'": (
    given.late(
      upload=lambda: transforms.Upload(
        optax.GradientTransformation(lambda params: {}["a"], None)
      )
    ),
    ValueError,
  ),
}


@pytest.mark.parametrize("message", BAD)
def test_bad_input_is_one_clear_line(message):
  call, kind = BAD[message]
  given.check(call, kind, message)
