"""What `evaluate_clients` refuses, with its message."""

import optax
import pytest

import fedjax_opt as fo
from tests.checks import given

TRAIN, HELD_OUT = given.DATA.split(0.4)
OTHERS, _ = given.DATA.split_clients(0.5)
STEPS = {
  "train": TRAIN,
  "loss_fn": given.loss_fn,
  "client": given.SGD,
  "local_steps": 1,
  "batch_size": 1,
}
MOON = fo.moon(given.loss_fn, lambda p, b, r: b["x"] @ p["w"], given.SGD)


def run(**bad):
  arguments = {
    "model": given.PARAMS,
    "per_example": given.per_example,
    "held_out": HELD_OUT,
  }
  return lambda: fo.evaluate_clients(**arguments | bad)


CASES = {
  "held_out examples": (
    run(held_out=given.TEST),
    TypeError,
    "held_out=a dict: must be ClientData, such as a part of data.split(0.2)...",
  ),
  "train None": (
    run(**STEPS | {"train": None}),
    ValueError,
    "train: local_steps=1 of personalized models need it",
  ),
  "client None": (
    run(**STEPS | {"client": None}),
    ValueError,
    "client: local_steps=1 of personalized models need it",
  ),
  "no steps": (
    run(client=given.SGD),
    ValueError,
    "client: belongs to personalized models; give local_steps= as well",
  ),
  "other clients": (
    run(train=OTHERS),
    ValueError,
    "train: has 2 clients and held_out 4; must be parts of the same clients, "
    "as data.split(0.2) gives them",
  ),
  "steps -1": (
    run(**STEPS | {"local_steps": -1}),
    ValueError,
    "local_steps=-1: must not be negative",
  ),
  "steps 1.5": (
    run(**STEPS | {"local_steps": 1.5}),
    TypeError,
    "local_steps=1.5: must be a whole number",
  ),
  "batch too large": (
    run(**STEPS | {"batch_size": 9}),
    ValueError,
    "batch_size=9: larger than every client; the largest has 2 examples",
  ),
  "client not called": (
    run(**STEPS | {"client": 3}),
    TypeError,
    "client=3: ...",
  ),
  "setting of a run": (
    run(**STEPS, cohort_size=3),
    TypeError,
    "cohort_size: is no setting; see fedjax_opt.Settings",
  ),
  "params": (
    run(model={"w": 3}),
    TypeError,
    "params['w']=3: must be an array of floating-point numbers",
  ),
  "seed": (
    run(**STEPS, seed=-1),
    ValueError,
    "seed=-1: must be from 0 to 4294967295",
  ),
  "point of params": (
    run(point=0),
    ValueError,
    "point=0: belongs to a result of sweep; parameters are of one",
  ),
  "personal without a run": (
    run(algorithm=MOON),
    ValueError,
    "algorithm: clients' own models are in the state of a run; give its result "
    "as the model, not parameters",
  ),
  "algorithm": (
    run(algorithm=optax.sgd(0.1)),
    TypeError,
    "algorithm: is an optimizer; must be an Algorithm, such as "
    "fed_avg(loss_fn, client=optimizer)",
  ),
  "per_example": (
    run(per_example=given.loss_fn),
    TypeError,
    "per_example=the function loss_fn: takes (params, batch, rng); must be a "
    "function (params, batch) -> {name: [B]}",
  ),
  "client_params alone": (
    given.algorithm(
      lambda: given.ALGORITHM._replace(client_params=lambda state, kept: kept)
    ),
    TypeError,
    "Algorithm.client_params: clients keep nothing that it could be made of; "
    "declare what one client keeps: Algorithm(..., init_client=...)",
  ),
}


@pytest.mark.parametrize("case", CASES)
def test_is_refused(case):
  given.check(*CASES[case])
