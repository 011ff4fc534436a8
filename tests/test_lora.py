"""LoRA: adapters beside dense layers, and three ways to average them."""

import dataclasses
import functools

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedjax_opt as fo
from fedjax_opt import lora, trainable
from fedjax_opt.arrays import frozen
from tests.helpers import cases, jax_problems, refusals

RANK, ALPHA = 2, 3.0


class Regression(nn.Module):
  """x W V: two dense layers, of which the first one is adapted."""

  def setup(self):
    self.first = nn.Dense(4, use_bias=False)
    self.head = nn.Dense(3, use_bias=False)

  def __call__(self, x):
    return self.head(self.first(x))


MODEL = Regression()


def squares(params, batch, rng):
  """[B], half of the squared distance to y."""
  del rng
  outputs = MODEL.apply({"params": params}, batch["x"])
  return 0.5 * jnp.sum((outputs - batch["y"]) ** 2, -1)


LOSS = lora.on_adapted(squares)


def made():
  """A batch, and an adapted model whose adapters change something."""
  generator = np.random.default_rng(0)
  draw = lambda *shape: generator.normal(size=shape).astype(np.float32)
  params = {"first": {"kernel": draw(6, 4)}, "head": {"kernel": draw(4, 3)}}
  adapted = lora.adapt(
    params, ["first"], jax.random.key(0), rank=RANK, alpha=ALPHA
  )
  adapted["lora_b"] = {"first": jnp.asarray(draw(RANK, 4)) / 4}
  return {"x": draw(6, 6), "y": draw(6, 3)}, adapted


def merged_loss(params, batch, rng):
  return cases.loss_fn(lora.merged(params)["dense"], batch, rng)


BIAS = "base/dense/bias"
METHODS = {
  "LoRA": (*lora.ADAPTERS, BIAS),
  "FFA-LoRA": ("lora_b",),
  "FedEx-LoRA": (*lora.ADAPTERS, BIAS),
}


def loop(start, name, rounds, masses):
  """[d] after each round: bias, kernel, A, B and the scale."""
  del masses  # Weights of the rounds are.
  (bias, kernel, a, b), scale = start, ALPHA / RANK
  trained = METHODS[name]
  for round in rounds:
    ends = []
    for batches in round.batches:
      own_bias, own_a, own_b = bias, a, b
      for rows in batches:
        merged = kernel + scale * own_a @ own_b
        _, gradient = cases.GRADIENT(np.r_[own_bias, merged.ravel()], rows)
        of_bias, of_kernel = gradient[:3], gradient[3:].reshape(4, 3)
        of_a = scale * of_kernel @ own_b.T
        own_b = own_b - cases.LR * scale * own_a.T @ of_kernel
        if "lora_a" in trained:
          own_a = own_a - cases.LR * of_a
        if BIAS in trained:
          own_bias = own_bias - cases.LR * of_bias
      ends.append((own_bias, own_a, own_b, own_a @ own_b))
    mean = lambda i: np.average([end[i] for end in ends], 0, round.weights)  # noqa: B023
    bias, a, b = mean(0), mean(1), mean(2)
    if name == "FedEx-LoRA":
      kernel = kernel + scale * (mean(3) - a @ b)
    parts = (bias, kernel, a, b, np.asarray(scale))
    yield (np.concatenate([part.ravel() for part in parts]),)


@pytest.mark.parametrize("case", cases.CASES)
@pytest.mark.parametrize("name", METHODS)
@pytest.mark.default_cases("FedEx-LoRA-dropouts")
def test_equals_the_loop(name, case):
  """Each round, of a partial cohort in chunks that it does not fill."""
  generator = np.random.default_rng(1)
  bias, kernel = cases.PARAMS["bias"], cases.PARAMS["kernel"]
  draw = lambda *shape: generator.normal(size=shape)
  parts = [bias, kernel, draw(4, RANK), draw(RANK, 3) / 4]
  names = ("bias", "kernel")
  adapted = {
    "base": {"dense": dict(zip(names, parts[:2], strict=True))},
    **{n: {"dense": p} for n, p in zip(lora.ADAPTERS, parts[2:], strict=True)},
    "lora_scale": np.asarray(ALPHA / RANK),
  }
  rule, trained = optax.sgd(cases.LR), METHODS[name]
  if name == "FedEx-LoRA":
    algorithm = fo.fed_ex_lora(merged_loss, rule, paths=trained)
  else:
    make = lambda loss_fn: fo.fed_avg(loss_fn, rule)
    algorithm = fo.train_only(make, trained, merged_loss)
    mask, params = trainable.mask(adapted, trained), algorithm.params
    leaves = jax.tree.map(lambda x, is_in: None if is_in else x, adapted, mask)
    model = lambda state: params(state._replace(frozen=frozen.Frozen(leaves)))
    algorithm = algorithm._replace(params=model)  # Also of states alone.
  problem = dataclasses.replace(cases.PROBLEM, x0=jax_problems.flat(adapted))
  task = jax_problems.Task(problem, adapted, merged_loss)
  of_method = functools.partial(loop, parts, name)
  for x64 in (True, False):
    cases.check_loop(algorithm, "model", of_method, case, x64, task)
  cost = task.simulate(algorithm, rounds=1, **cases.PLAIN).cost
  num_up = {"LoRA": 14 + 3, "FFA-LoRA": 6, "FedEx-LoRA": 14 + 3}[name]
  assert cost["bytes_up_per_round"] == 4 * num_up
  # 12 numbers of the kernel are fewer than its factors.
  num_kernel = 12 if name == "FedEx-LoRA" else 0
  assert cost["bytes_down_per_round"] == 4 * (num_up + num_kernel)


@pytest.mark.slow
def test_what_nobody_changes_stays_whatever_a_sampler_scales():
  start = lora.adapt(
    {"dense": jax.tree.map(np.float32, cases.PARAMS)},
    ["dense"],
    jax.random.key(0),
    rank=2,
  )
  start["lora_b"]["dense"] += 1.0
  options = dict(
    cohort_size=2, sampler="weighted", weighting="uniform", batch_size=2
  )
  algorithm = fo.fed_ex_lora(merged_loss, optax.sgd(0.0))
  result = fo.simulate(algorithm, start, cases.TASK.data, rounds=2, **options)
  chex.assert_trees_all_close(result.params, start, rtol=1e-5)


@pytest.mark.slow
def test_a_new_adapter_changes_nothing_and_merging_keeps_what_it_computes():
  batch, adapted = made()
  untrained = lora.adapt(adapted["base"], ["first"], jax.random.key(1), rank=3)
  chex.assert_trees_all_equal(
    LOSS(untrained, batch, None), squares(adapted["base"], batch, None)
  )
  chex.assert_trees_all_close(
    LOSS(adapted, batch, None),
    squares(lora.merged(adapted), batch, None),
    rtol=1e-5,
  )
  gradient, expected = (
    jax.grad(lambda p, loss=loss: loss(p).sum())(adapted)
    for loss in (
      lambda p: LOSS(p, batch, None),
      lambda p: squares(lora.merged(p), batch, None),
    )
  )
  assert gradient["lora_scale"] == 0
  for name in ("base", *lora.ADAPTERS):
    chex.assert_trees_all_close(gradient[name], expected[name], rtol=1e-4)
  # A layer that is made of another layer's call is adapted once.
  model = fo.models.MLP(hidden=(5,), num_classes=3)
  params = model.init(jax.random.key(0), jnp.zeros((1, 6)))["params"]
  mlp = lora.adapt(params, ["output"], jax.random.key(1), rank=2, alpha=4.0)
  mlp["lora_b"]["output"] += 1.0
  apply = lambda params, x: model.apply({"params": params}, x)
  chex.assert_trees_all_close(
    lora.on_adapted(apply)(mlp, batch["x"]),
    apply(lora.merged(mlp), batch["x"]),
    rtol=1e-5,
  )
  twice = lambda tree: jax.tree.map(lambda leaf: jnp.stack([leaf] * 2), tree)
  chex.assert_trees_all_close(lora.merged(twice(mlp)), twice(lora.merged(mlp)))


BATCH, ADAPTED = made()


def adapt(bad):
  good = {"params": ADAPTED["base"], "layers": ["first"], "rank": 2}
  lora.adapt(**good | {"key": jax.random.key(0)} | bad)


test_is_refused = refusals.of_table("lora.txt", lora, adapt, ADAPTED=ADAPTED)


def test_an_adapter_of_no_layer_is_refused():
  adapters = ADAPTED["lora_a"] | {"second": ADAPTED["lora_a"]["first"]}
  with pytest.raises(ValueError, match=r"lora_a\['second'\]: .*calls no layer"):
    LOSS(ADAPTED | {"lora_a": adapters}, BATCH, None)
