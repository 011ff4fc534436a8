"""Bad arguments of FedDyn, FedNova, FedCM and the methods beside them."""

import jax.numpy as jnp
import optax
import pytest

from fedjax_opt import (
  aggregators,
  diloco,
  fed_cm,
  fed_dyn,
  fed_exp,
  fed_nova,
  fed_sam,
  fed_speed,
  mime_lite,
  mo_fed_sam,
  prox_skip,
  sharpness_aware,
  simulate,
)
from tests.checks import given
from tests.checks.given import SGD, algorithm, late, loss_fn

NUMBER = "must be a number, or a function from the round to one"
RULE = "must be an optimizer, such as optax.sgd(0.1)"

# factory -> what it takes after the loss, where an optimizer is refused.
PLAIN = {
  fed_nova: "fed_nova normalizes plain steps; for other rules that is not "
  "defined",
  fed_cm: "fed_cm adds a momentum to plain steps, not to those of another rule",
  mo_fed_sam: "mo_fed_sam adds a momentum to plain steps, not to those of "
  "another",
  mime_lite: "mime_lite takes its base optimizer apart; give it as base",
  fed_speed: "fed_speed corrects plain steps, not those of another rule",
}
RULES = (fed_dyn, fed_exp, fed_sam, diloco)
# (factory, argument, its interval, a value outside).
NUMBERS = (
  (fed_dyn, "alpha", "[0, inf)", -0.1),
  (fed_nova, "momentum", "[0, 1)", 1.0),
  (fed_nova, "mu", "[0, inf)", -1.0),
  (fed_cm, "alpha", "[0, 1]", 1.5),
  (fed_exp, "eps", "[0, inf)", -1e-3),
  (mime_lite, "beta", "[0, 1)", 1.0),
  (prox_skip, "p", "(0, 1]", 0.0),
  (fed_sam, "rho", "[0, inf)", -0.05),
  (mo_fed_sam, "rho", "[0, inf)", float("inf")),
  (mo_fed_sam, "beta", "[0, 1]", -0.1),
  (fed_speed, "lam", "(0, inf)", 0.0),
  (fed_speed, "alpha", "[0, 1]", 2.0),
  (fed_speed, "rho", "[0, inf)", float("nan")),
)
OPTIONAL = ("momentum", "mu")


def made(factory, **arguments):
  first = SGD if factory in RULES else 0.1
  return algorithm(lambda: factory(loss_fn, first, **arguments))


BAD = {
  **{
    f"{factory.__name__} optimizer": (
      algorithm(lambda factory=factory: factory(loss_fn, SGD)),
      ValueError,
      f"learning_rate: {NUMBER}; {why}",
    )
    for factory, why in PLAIN.items()
  },
  **{
    f"{factory.__name__} rate": (
      algorithm(lambda factory=factory: factory(loss_fn, -1)),
      ValueError,
      "learning_rate=-1: must be in [0, inf)",
    )
    for factory in (*PLAIN, prox_skip)
  },
  **{
    f"{factory.__name__} not called": (
      algorithm(lambda factory=factory: factory(loss_fn, optax.sgd)),
      TypeError,
      "client=the function optax.sgd: was not called; write optax.sgd(...)",
    )
    for factory in RULES
  },
  **{
    f"{factory.__name__} loss": (
      algorithm(lambda factory=factory: factory(3, SGD)),
      TypeError,
      "loss_fn=3: must be a function (params, batch, rng) -> [B]",
    )
    for factory in RULES
  },
  **{
    f"{factory.__name__} loss": (
      algorithm(lambda factory=factory: factory(3, 0.1)),
      TypeError,
      "loss_fn=3: must be a function (params, batch, rng) -> [B]",
    )
    for factory in (*PLAIN, prox_skip)
  },
  **{
    f"{factory.__name__} {name} {value}": (
      made(factory, **{name: value}),
      ValueError,
      f"{name}={value:g}: must be in {interval}",
    )
    for factory, name, interval, value in NUMBERS
  },
  **{
    f"{factory.__name__} {name} str": (
      made(factory, **{name: "1"}),
      TypeError,
      f"{name}='1': must be a number{', or None' * (name in OPTIONAL)}",
    )
    for factory, name, _, _ in NUMBERS
  },
  "fed_nova server": (
    made(fed_nova, server=0.5),
    TypeError,
    f"server=0.5: {RULE}; write optax.sgd(0.5)",
  ),
  "fed_cm server": (
    made(fed_cm, server_learning_rate=-1),
    ValueError,
    "server_learning_rate=-1: must be in [0, inf)",
  ),
  "mo_fed_sam server": (
    made(mo_fed_sam, server_learning_rate=lambda r: 1),
    TypeError,
    "server_learning_rate=the function <lambda>: must be a number",
  ),
  "mime_lite base": (
    made(mime_lite, base="adam"),
    TypeError,
    f"base='adam': {RULE}; write optax.adam(...)",
  ),
  "mime_lite base not called": (
    made(mime_lite, base=optax.scale_by_adam),
    TypeError,
    "base=the function optax.scale_by_adam: was not called; write "
    "optax.scale_by_adam(...)",
  ),
  "prox_skip optimizer": (
    algorithm(lambda: prox_skip(loss_fn, SGD)),
    ValueError,
    "learning_rate: must be a number; prox_skip corrects plain steps, not "
    "those of another rule",
  ),
  "prox_skip function": (
    algorithm(lambda: prox_skip(loss_fn, lambda round: 0.1)),
    TypeError,
    "learning_rate=the function <lambda>: must be a number",
  ),
  **{
    f"prox_skip {setting}": (
      late(
        algorithm=lambda: prox_skip(loss_fn, jnp.float32(0.1)),
        **{setting: lambda value=value: value},
      ),
      ValueError,
      "cohort_size: prox_skip needs all clients in each round; leave "
      "cohort_size, client_dropout and a sampler that draws some out",
    )
    for setting, value in (
      ("cohort_size", 3),
      ("sampler", "weighted"),
      ("client_dropout", 0.1),
    )
  },
  "fed_speed normalized": (
    made(fed_speed, normalized=1),
    TypeError,
    "normalized=1: must be True or False",
  ),
  "fed_speed all_duals": (
    made(fed_speed, all_duals="yes"),
    TypeError,
    "all_duals='yes': must be True or False",
  ),
  "diloco server": (
    made(diloco, server=optax.sgd),
    TypeError,
    "server=the function optax.sgd: was not called; write optax.sgd(...)",
  ),
  "sharpness_aware rule": (
    lambda: sharpness_aware(0.1),
    TypeError,
    f"rule=0.1: {RULE}; write optax.sgd(0.1)",
  ),
  "sharpness_aware rho": (
    lambda: sharpness_aware(SGD, -1),
    ValueError,
    "rho=-1: must be in [0, inf)",
  ),
  "sharpness_aware mix": (
    lambda: sharpness_aware(SGD, mix="half"),
    TypeError,
    "mix='half': must be a number, or None",
  ),
  "sharpness_aware normalized": (
    lambda: sharpness_aware(SGD, normalized=None),
    TypeError,
    "normalized=None: must be True or False",
  ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_clear_line(case):
  given.check(*BAD[case])


def test_sharpness_aware_says_what_its_update_needs():
  rule = sharpness_aware(SGD)
  with pytest.raises(ValueError) as error:  # noqa: PT011
    rule.update(1.0, rule.init(1.0), 1.0)
  assert str(error.value) == (
    "sharpness_aware: update needs params, the current point, and grad_fn, the "
    "gradient of the current batch at any point"
  )


@pytest.mark.parametrize(
  "base", [optax.adam(1.0), optax.sgd(0.1), optax.sgd(0.1, momentum=0.9)]
)
def test_the_base_of_mime_lite_has_no_rate(base):
  with pytest.raises(ValueError, match="base: goes down the gradient") as error:
    mime_lite(loss_fn, 0.1, base=base)
  assert "optax.scale_by_adam() for optax.adam(rate)" in str(error.value)
  mime_lite(loss_fn, 0.1, base=optax.scale_by_adam())


@pytest.mark.parametrize(
  "settings",
  [
    {"aggregator": aggregators.median(), "weighting": "uniform"},
    {"max_update_norm": 1.0, "max_update_action": "clip"},
  ],
)
def test_prox_skip_needs_plain_means(settings):
  with pytest.raises(ValueError, match="add up to zero by plain means"):
    simulate(
      prox_skip(loss_fn, 0.1),
      given.PARAMS,
      given.DATA,
      rounds=1,
      batch_size=1,
      **settings,
    )
