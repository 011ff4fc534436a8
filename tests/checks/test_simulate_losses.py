"""Bad losses and evaluations given to `simulate`."""

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_opt import (
  ClientData,
  evaluation,
  fed_avg,
  fed_prox,
  minibatch_sgd,
  moon,
  objectives,
)
from tests.checks import given
from tests.checks.given import (
  OWNERS,
  SGD,
  TEST,
  X,
  Y,
  algorithm,
  late,
  logits_of,
  loss_fn,
  per_example,
  run,
)


def mean_loss(params, batch, rng):
  return loss_fn(params, batch, rng).mean()


def loss(function):
  return algorithm(lambda: fed_avg(function, SGD))


def evaluated(function):
  return run(evaluate=function, test=TEST)


def measured(function, **settings):
  return late(evaluate=lambda: evaluation.federated(function, **settings))


class Linear(nn.Module):
  @nn.compact
  def __call__(self, x):
    return nn.Dense(2)(x)


# id: (call, type of the error, the whole line). A line that ends in "..." is
# compared up to there: what follows is quoted from a library.
BAD = {
  "loss scalar": (
    loss(mean_loss),
    ValueError,
    (
      "loss_fn: returned a scalar; must be one number per example, [B] = "
      "[2]; drop the .mean()"
    ),
  ),
  "loss [B,C]": (
    loss(lambda p, b, r: logits_of(p, b)),
    ValueError,
    (
      "loss_fn: returned float32[2, 2]; must be one number per example, [B]"
      " = [2]; take the mean, or the sum, over the other axes"
    ),
  ),
  "loss [B,1]": (
    loss(lambda p, b, r: loss_fn(p, b, r)[:, None]),
    ValueError,
    (
      "loss_fn: returned float32[2, 1]; must be one number per example, [B]"
      " = [2]; take the mean, or the sum, over the other axes"
    ),
  ),
  "loss tuple": (
    loss(lambda p, b, r: (loss_fn(p, b, r), {})),
    TypeError,
    (
      "loss_fn: returned (float32[2], {}); must be one number per example, "
      "[B] = [2], and nothing else"
    ),
  ),
  "loss None": (
    loss(lambda p, b, r: None),
    TypeError,
    "loss_fn: returned None; must be one number per example, [B] = [2]",
  ),
  "loss int": (
    loss(lambda p, b, r: b["y"]),
    TypeError,
    (
      "loss_fn: returned int32[2]; must be floating-point numbers, else "
      "there is no gradient"
    ),
  ),
  "loss bool": (
    loss(lambda p, b, r: b["y"] > 0),
    TypeError,
    (
      "loss_fn: returned bool[2]; must be floating-point numbers, else "
      "there is no gradient"
    ),
  ),
  "loss float": (
    loss(lambda p, b, r: 1.0),
    ValueError,
    (
      "loss_fn: returned a scalar; must be one number per example, [B] = "
      "[2]; drop the .mean()"
    ),
  ),
  "loss str": (
    loss(lambda p, b, r: "a"),
    TypeError,
    "loss_fn: returned 'a'; must be one number per example, [B] = [2]",
  ),
  "loss dict": (
    loss(lambda p, b, r: {"loss": loss_fn(p, b, r)}),
    TypeError,
    (
      "loss_fn: returned {loss: float32[2]}; must be one number per "
      "example, [B] = [2], and nothing else"
    ),
  ),
  "loss sum of half": (
    loss(lambda p, b, r: loss_fn(p, b, r)[:1]),
    ValueError,
    ("loss_fn: returned float32[1]; must be one number per example, [B] = [2]"),
  ),
  "loss two arguments": (
    loss(lambda p, b: 0),
    TypeError,
    (
      "loss_fn=the function <lambda>: takes (p, b); must be a function "
      "(params, batch, rng) -> [B]"
    ),
  ),
  "loss (p,x,y,r)": (
    loss(lambda params, x, y, rng: 0),
    TypeError,
    (
      "loss_fn=the function <lambda>: takes (params, x, y, rng); must be a "
      "function (params, batch, rng) -> [B]"
    ),
  ),
  "loss field": (
    loss(lambda p, b, r: b["image"]),
    ValueError,
    (
      "loss_fn: failed on a batch {x: float32[2, 3], y: int32[2]}: "
      "KeyError: 'image'"
    ),
  ),
  "loss shapes": (
    loss(lambda p, b, r: b["x"] @ p["w"].T),
    TypeError,
    "loss_fn: failed on a batch {x: float32[2, 3], y: int32[2]}:...",
  ),
  "loss raises": (
    loss(lambda p, b, r: 1 / 0),
    ValueError,
    (
      "loss_fn: failed on a batch {x: float32[2, 3], y: int32[2]}: "
      "ZeroDivisionError: division by zero"
    ),
  ),
  "loss if": (
    loss(lambda p, b, r: loss_fn(p, b, r) if b["y"][0] > 0 else 0),
    TypeError,
    (
      "loss_fn: failed on a batch {x: float32[2, 3], y: int32[2]}: it needs"
      " the value of a traced array; write jnp.where instead of if, and "
      "jax.numpy instead of float(), int() and NumPy"
    ),
  ),
  "loss numpy": (
    loss(lambda p, b, r: np.asarray(b["x"]) @ p["w"]),
    TypeError,
    (
      "loss_fn: failed on a batch {x: float32[2, 3], y: int32[2]}: it needs"
      " the value of a traced array; write jnp.where instead of if, and "
      "jax.numpy instead of float(), int() and NumPy"
    ),
  ),
  "loss float()": (
    loss(lambda p, b, r: float(loss_fn(p, b, r).sum())),
    TypeError,
    (
      "loss_fn: failed on a batch {x: float32[2, 3], y: int32[2]}: it needs"
      " the value of a traced array; write jnp.where instead of if, and "
      "jax.numpy instead of float(), int() and NumPy"
    ),
  ),
  "loss no fn": (
    loss(None),
    TypeError,
    "loss_fn=None: must be a function (params, batch, rng) -> [B]",
  ),
  "loss string": (
    loss("cross_entropy"),
    TypeError,
    ("loss_fn='cross_entropy': must be a function (params, batch, rng) -> [B]"),
  ),
  "loss optimizer": (
    algorithm(lambda: fed_avg(SGD, loss_fn)),
    TypeError,
    (
      "loss_fn: is an optimizer; must be a function (params, batch, rng) ->"
      " [B], given first"
    ),
  ),
  "loss moon scalar": (
    algorithm(lambda: moon(mean_loss, lambda p, b, r: logits_of(p, b), SGD)),
    ValueError,
    (
      "loss_fn: returned a scalar; must be one number per example, [B] = "
      "[2]; drop the .mean()"
    ),
  ),
  "features [B]": (
    algorithm(lambda: moon(loss_fn, loss_fn, SGD)),
    ValueError,
    (
      "features_fn: returned float32[2]; must be the features of each "
      "example, [2, d]"
    ),
  ),
  "prox scalar": (
    algorithm(lambda: fed_prox(mean_loss, SGD)),
    ValueError,
    (
      "loss_fn: returned a scalar; must be one number per example, [B] = "
      "[2]; drop the .mean()"
    ),
  ),
  "l2 tuple": (
    algorithm(
      lambda: fed_avg(
        objectives.l2(lambda p, b, r: (loss_fn(p, b, r), 1), 0.1), SGD
      )
    ),
    TypeError,
    (
      "loss_fn: returned (float32[2], 1); must be one number per example, "
      "[B] = [2], and nothing else"
    ),
  ),
  "loss mixed scalar": (
    late(algorithm=lambda: fed_avg(mean_loss, SGD), precision=lambda: "mixed"),
    ValueError,
    (
      "loss_fn: returned a scalar; must be one number per example, [B] = "
      "[2]; drop the .mean()"
    ),
  ),
  "loss exact gradient": (
    algorithm(lambda: minibatch_sgd(mean_loss, 0.1)),
    ValueError,
    (
      "loss_fn: returned a scalar; must be one number per example, [B] = "
      "[4]; drop the .mean()"
    ),
  ),
  "linen loss": (
    loss(Linear()),
    TypeError,
    (
      "loss_fn=Linear(): takes (x); must be a function (params, batch, rng)"
      " -> [B]"
    ),
  ),
  "ev two": (
    evaluated(lambda p, d: {}),
    TypeError,
    (
      "evaluate=the function <lambda>: takes (p, d); must be a function "
      "(params, data, test) -> {name: scalar}"
    ),
  ),
  "ev none": (
    evaluated(lambda p, d, t: None),
    TypeError,
    "evaluate: returned None; must return a dict {name: scalar}",
  ),
  "ev scalar": (
    evaluated(lambda p, d, t: jnp.sum(p["w"])),
    TypeError,
    "evaluate: returned float32[]; must return a dict {name: scalar}",
  ),
  "ev vector": (
    evaluated(lambda p, d, t: {"loss": p["w"]}),
    ValueError,
    (
      "evaluate: 'loss' is float32[3, 2]; must be a scalar, such as its .mean()"
    ),
  ),
  "ev str": (
    evaluated(lambda p, d, t: {"loss": "a"}),
    TypeError,
    "evaluate: 'loss' is 'a'; must be a scalar number",
  ),
  "ev name": (
    evaluated(lambda p, d, t: {3: 1.0}),
    TypeError,
    "evaluate: the name 3 must be a string",
  ),
  "ev nested": (
    evaluated(lambda p, d, t: {"a": {"b": 1.0}}),
    TypeError,
    "evaluate: 'a' is {b: 1.0}; must be a scalar number",
  ),
  "ev fails": (
    evaluated(lambda p, d, t: {"a": t["z"]}),
    ValueError,
    "evaluate: failed: KeyError: 'z'",
  ),
  "ev list": (
    evaluated(lambda p, d, t: [1.0]),
    TypeError,
    "evaluate: returned (1.0); must return a dict {name: scalar}",
  ),
  "ev none value": (
    evaluated(lambda p, d, t: {"a": None}),
    TypeError,
    "evaluate: 'a' is None; must be a scalar number",
  ),
  "ev uncalled": (
    evaluated(evaluation.federated),
    TypeError,
    (
      "evaluate=the function fedjax_opt.evaluation.federated: was not "
      "called; write evaluation.federated(per_example)"
    ),
  ),
  "ev float()": (
    evaluated(lambda p, d, t: {"a": float(jnp.sum(p["w"]))}),
    TypeError,
    (
      "evaluate: failed: it needs the value of a traced array; write "
      "jnp.where instead of if, and jax.numpy instead of float(), int() and"
      " NumPy"
    ),
  ),
  "ev per_example": (
    evaluated(per_example),
    TypeError,
    (
      "evaluate=the function per_example: takes (params, batch); must be a "
      "function (params, data, test) -> {name: scalar}"
    ),
  ),
  "ev complex": (
    evaluated(lambda p, d, t: {"a": 1j * jnp.sum(p["w"])}),
    TypeError,
    "evaluate: 'a' is complex64[]; must be a scalar number",
  ),
  "pe mean": (
    measured(lambda p, b: {"loss": loss_fn(p, b, None).mean()}),
    ValueError,
    (
      "per_example: 'loss': returned a scalar; must be one number per "
      "example, [B] = [12]; drop the .mean()"
    ),
  ),
  "pe array": (
    measured(lambda p, b: loss_fn(p, b, None)),
    TypeError,
    (
      "per_example: returned float32[12]; must return a dict of arrays, "
      "{name: [12]}"
    ),
  ),
  "pe wide": (
    measured(lambda p, b: {"logits": logits_of(p, b)}),
    ValueError,
    (
      "per_example: 'logits': returned float32[12, 2]; must be one number "
      "per example, [B] = [12]; take the mean, or the sum, over the other "
      "axes"
    ),
  ),
  "pe three": (
    measured(loss_fn),
    TypeError,
    (
      "per_example=the function loss_fn: takes (params, batch, rng); must "
      "be a function (params, batch) -> {name: [B]}"
    ),
  ),
  "pe None": (
    measured(None),
    TypeError,
    "per_example=None: must be a function (params, batch) -> {name: [B]}",
  ),
  "pe fails": (
    measured(lambda p, b: {"a": b["z"]}),
    ValueError,
    (
      "per_example: failed on a batch {x: float32[12, 3], y: int32[12]}: "
      "KeyError: 'z'"
    ),
  ),
  "pe float": (
    measured(lambda p, b: {"a": 1.0}),
    ValueError,
    (
      "per_example: 'a': returned a scalar; must be one number per example,"
      " [B] = [12]; drop the .mean()"
    ),
  ),
  "pe none": (
    measured(lambda p, b: {"a": None}),
    TypeError,
    (
      "per_example: 'a': returned None; must be one number per example, [B]"
      " = [12]"
    ),
  ),
  "pe one": (
    measured(lambda b: {}),
    TypeError,
    (
      "per_example=the function <lambda>: takes (b); must be a function "
      "(params, batch) -> {name: [B]}"
    ),
  ),
  "pe names": (
    measured(lambda p, b: {1: loss_fn(p, b, None)}),
    TypeError,
    "per_example: the name 1 must be a string",
  ),
  "pe batch": (
    measured(per_example, batch_size=0),
    ValueError,
    "batch_size=0: must be at least 1",
  ),
  "pe of_params": (
    measured(per_example, of_params=lambda p: p["w"]),
    TypeError,
    "of_params: returned float32[3, 2]; must return a dict {name: scalar}",
  ),
  "pe gradient_of": (
    measured(per_example, gradient_of=mean_loss),
    ValueError,
    (
      "loss_fn: returned a scalar; must be one number per example, [B] = "
      "[12]; drop the .mean()"
    ),
  ),
  "pe of_params fails": (
    measured(per_example, of_params=lambda p: {"a": p["v"]}),
    ValueError,
    "evaluate: failed: KeyError: 'v'",
  ),
  "y [N,1] accuracy": (
    late(
      data=lambda: ClientData.from_client_ids(
        {"x": X, "y": Y[:, None]}, OWNERS
      ),
      algorithm=lambda: fed_avg(
        lambda p, b, r: loss_fn(p, b | {"y": b["y"][:, 0]}, r), SGD
      ),
      evaluate=lambda: evaluation.federated(
        lambda p, b: {"accuracy": logits_of(p, b).argmax(1) == b["y"]}
      ),
    ),
    ValueError,
    (
      "per_example: 'accuracy': returned bool[12, 12]; must be one number "
      "per example, [B] = [12] (y is int32[12, 1]: give labels [N], y[:, "
      "0])"
    ),
  ),
  "grad_norm uncalled": (
    evaluated(evaluation.grad_norm_sq),
    TypeError,
    (
      "evaluate=the function fedjax_opt.evaluation.grad_norm_sq: was not "
      "called; write evaluation.federated(per_example)"
    ),
  ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_clear_line(case):
  given.check(*BAD[case])
