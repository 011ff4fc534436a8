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
from fedjax_opt import lora
from tests import cases, jax_problems
from tests.refusals import refusal

SIZES, ROUNDS, STEPS, RATE = (5, 3, 7, 4), 5, 3, 0.02
# Clients of each round, one of whom never comes.
COHORTS = np.array([[0, 1], [2, 0], [1, 2], [2, 1], [0, 2]], np.int32)
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
  out = MODEL.apply({"params": params}, batch["x"])
  return 0.5 * jnp.sum((out - batch["y"]) ** 2, -1)


LOSS = lora.on_adapted(squares)


def made(dtype):
  """(examples, clients, adapted model): full batches, of unequal sizes."""
  generator = np.random.default_rng(0)
  draw = lambda *shape: generator.normal(size=shape).astype(dtype)
  number = sum(SIZES)
  pool = {"x": draw(number, 6), "y": draw(number, 3)}
  rows = np.split(np.arange(number), np.cumsum(SIZES)[:-1])
  params = {"first": {"kernel": draw(6, 4)}, "head": {"kernel": draw(4, 3)}}
  adapted = lora.adapt(
    params, ["first"], jax.random.key(0), rank=RANK, alpha=ALPHA
  )
  adapted["lora_b"] = {"first": jnp.asarray(draw(RANK, 4)) / 4}
  return pool, rows, adapted


def loop(pool, rows, adapted, trained, is_exact=False):
  """The base, A, B and head after all rounds: one client after the other."""
  scale = ALPHA / RANK
  as_array = lambda x: np.asarray(x, np.float64)
  base = as_array(adapted["base"]["first"]["kernel"])
  head = as_array(adapted["base"]["head"]["kernel"])
  start_a = as_array(adapted["lora_a"]["first"])
  start_b = as_array(adapted["lora_b"]["first"])
  for cohort in COHORTS:
    ends, weights = [], []
    for client in cohort:
      x, y = (pool[name][rows[client]].astype(np.float64) for name in "xy")
      a, b, v = start_a, start_b, head
      for _ in range(STEPS):
        hidden = x @ (base + scale * a @ b)
        residual = (hidden @ v - y) / len(x)
        of_layer = x.T @ residual @ v.T
        grads = scale * of_layer @ b.T, scale * a.T @ of_layer
        of_head = hidden.T @ residual
        if "lora_a" in trained:
          a = a - RATE * grads[0]
        b = b - RATE * grads[1]
        if "base/head" in trained:
          v = v - RATE * of_head
      ends.append((a, b, v, a @ b))
      weights.append(len(x))
    mean = lambda i: np.average([end[i] for end in ends], 0, weights)  # noqa: B023
    start_a, start_b, head = mean(0), mean(1), mean(2)
    if is_exact:
      base = base + scale * (mean(3) - start_a @ start_b)
  return base, start_a, start_b, head


METHODS = {
  "LoRA": ("lora_a", "lora_b"),
  "FFA-LoRA": ("lora_b",),
  "FedEx-LoRA": ("lora_a", "lora_b", "base/head"),
}


def simulate(name, dtype):
  """The loop's result, and the simulation's."""
  pool, rows, adapted = made(dtype)
  trained, rule = METHODS[name], optax.sgd(RATE)
  if name == "FedEx-LoRA":
    algorithm = fo.fed_ex_lora(LOSS, rule, paths=trained)
  else:
    algorithm = fo.train_only(
      lambda loss_fn: fo.fed_avg(loss_fn, rule), trained, LOSS
    )
  result = fo.simulate(
    algorithm,
    adapted,
    fo.ClientData.from_partition(pool, rows),
    rounds=ROUNDS,
    local_steps=STEPS,
    batch_size=max(SIZES),
    cohort_size=2,
    sampler=lambda key, round: jnp.asarray(COHORTS)[round],
  )
  return loop(pool, rows, adapted, trained, name == "FedEx-LoRA"), result


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.default_cases("FedEx-LoRA")
def test_equals_the_loop(name):
  for is_double, tolerance in ((True, 1e-10), (False, 1e-5)):
    with jax.enable_x64(is_double):
      expected, result = simulate(name, np.float64 if is_double else np.float32)
      end = result.params
      found = (
        end["base"]["first"]["kernel"],
        end["lora_a"]["first"],
        end["lora_b"]["first"],
        end["base"]["head"]["kernel"],
      )
      chex.assert_trees_all_close(
        found, expected, rtol=tolerance, atol=tolerance
      )
    adapters = 4 * (6 * RANK + RANK * 4) * (1 + is_double)
    head = 4 * 12 * (1 + is_double)
    up, down = {
      "LoRA": (adapters, adapters),
      "FFA-LoRA": (adapters * 8 / 20, adapters * 8 / 20),
      # 24 numbers of the kernel are fewer than its factors of rank 6.
      "FedEx-LoRA": (adapters + head, adapters + head + 96 * (1 + is_double)),
    }[name]
    assert result.cost["bytes_up_per_round"] == up
    assert result.cost["bytes_down_per_round"] == down


@pytest.mark.parametrize("case", cases.CASES)
@pytest.mark.default_cases("dropouts")
def test_fed_ex_lora_with_those_that_drop_out_and_places_for_nobody(case):
  """Each round, of a partial cohort in chunks that it does not fill."""
  generator = np.random.default_rng(1)
  bias, kernel = cases.PARAMS["bias"], cases.PARAMS["kernel"]
  parts = [bias, kernel, generator.normal(size=(4, RANK)), np.zeros((RANK, 3))]
  names = ("bias", "kernel")
  adapted = {
    "base": {"dense": dict(zip(names, parts[:2], strict=True))},
    **{n: {"dense": p} for n, p in zip(lora.ADAPTERS, parts[2:], strict=True)},
    "lora_scale": np.asarray(ALPHA / RANK),
  }
  loss_fn = lambda params, batch, rng: cases.loss_fn(
    lora.merged(params)["dense"], batch, rng
  )
  algorithm = fo.fed_ex_lora(
    loss_fn, optax.sgd(cases.LR), paths=[*lora.ADAPTERS, "base/dense/bias"]
  )
  problem = dataclasses.replace(cases.PROBLEM, x0=jax_problems.flat(adapted))
  task = jax_problems.Task(problem, adapted, loss_fn)
  loop = functools.partial(exact_loop, parts)
  cases.check_loop(algorithm, "model", loop, case, task=task)


def exact_loop(start, rounds, masses):
  """[d] after each round: bias, kernel, A, B and the scale."""
  del masses  # Weights of the rounds are.
  (bias, kernel, a, b), scale = start, ALPHA / RANK
  for round in rounds:
    ends = []
    for batches in round.batches:
      own_bias, own_a, own_b = bias, a, b
      for rows in batches:
        whole = kernel + scale * own_a @ own_b
        _, gradient = cases.GRADIENT(np.r_[own_bias, whole.ravel()], rows)
        of_bias, of_kernel = gradient[:3], gradient[3:].reshape(4, 3)
        own_bias = own_bias - cases.LR * of_bias
        own_a, own_b = (
          own_a - cases.LR * scale * of_kernel @ own_b.T,
          own_b - cases.LR * scale * own_a.T @ of_kernel,
        )
      ends.append((own_bias, own_a, own_b, own_a @ own_b))
    mean = lambda i: np.average([end[i] for end in ends], 0, round.weights)  # noqa: B023
    bias, a, b = mean(0), mean(1), mean(2)
    kernel = kernel + scale * (mean(3) - a @ b)
    parts = (bias, kernel, a, b, np.asarray(scale))
    yield (np.concatenate([part.ravel() for part in parts]),)


def test_a_new_adapter_changes_nothing_and_merging_keeps_what_it_computes():
  pool, _, adapted = made(np.float32)
  batch = {name: values[:6] for name, values in pool.items()}
  fresh = lora.adapt(adapted["base"], ["first"], jax.random.key(1), rank=3)
  chex.assert_trees_all_equal(
    LOSS(fresh, batch, None), squares(adapted["base"], batch, None)
  )
  chex.assert_trees_all_close(
    LOSS(adapted, batch, None),
    squares(lora.merged(adapted), batch, None),
    rtol=1e-5,
  )
  gradient = jax.grad(lambda p: LOSS(p, batch, None).sum())(adapted)
  assert gradient["lora_scale"] == 0
  # A layer that is made of another layer's call is adapted once.
  model = fo.models.MLP(hidden=(5,), num_classes=3)
  params = model.init(jax.random.key(0), jnp.zeros((1, 6)))["params"]
  two = lora.adapt(params, ["output"], jax.random.key(1), rank=2, alpha=4.0)
  two["lora_b"]["output"] += 1.0
  apply = lambda params, x: model.apply({"params": params}, x)
  chex.assert_trees_all_close(
    lora.on_adapted(apply)(two, batch["x"]),
    apply(lora.merged(two), batch["x"]),
    rtol=1e-5,
  )


REFUSED = {
  "layers='query': matches no dense layer of the model; must be among first, "
  "head": dict(layers=["query"]),
  "layers='first': must be a list of paths": dict(layers="first"),
  "rank=5: must be at most 4, the smaller side of first, [6, 4]": dict(rank=5),
  "rank=0: must be": dict(rank=0),
  "alpha=0: must be in (0, inf)": dict(alpha=0),
  "key=an array float32[4]: must be a random key": dict(key=np.ones(4, "f")),
  "key=0: must be a random key": dict(key=0),
}


@pytest.mark.parametrize("message", REFUSED)
def test_refused(message):
  given = dict(layers=["first"], key=jax.random.key(0), rank=2)
  base = made(np.float32)[2]["base"]
  assert message in refusal(lora.adapt, base, **given | REFUSED[message])


def test_what_is_not_of_the_adapted_model_is_refused():
  for bad in (None, "text", {"base": {}}, np.ones(3)):
    assert refusal(lora.merged, bad).startswith("adapted=")
  with pytest.raises(ValueError, match=r"must have lora_a; FFA-LoRA"):
    fo.fed_ex_lora(LOSS, optax.sgd(0.1), paths=["lora_b"])
  pool, _, adapted = made(np.float32)
  adapted["lora_a"]["second"] = adapted["lora_a"]["first"]
  batch = {name: values[:6] for name, values in pool.items()}
  with pytest.raises(ValueError, match=r"lora_a\['second'\]: .*calls no layer"):
    LOSS(adapted, batch, None)
