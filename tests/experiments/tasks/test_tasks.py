"""Tasks: names, data, losses and initial models."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.single_run import loading as data_of_runs
from experiments.tasks import TASKS, nonconvex
from experiments.tasks import images as image_tasks
from fedjax_opt.arrays import running_statistics
from fedjax_opt.data import synthetic
from fedjax_opt.data.clients import ClientData
from fedjax_opt.datasets import femnist, fmri
from fedjax_opt.results.selection import Criterion
from tests.helpers.commands import spec_of, task_of

IMAGES = image_tasks.Images("test", 10, (0.5,), (0.5,))


def examples(n=12, size=8, channels=1, num_classes=10):
  rng = np.random.default_rng(0)
  return {
    "x": rng.integers(256, size=(n, size, size, channels)).astype(np.uint8),
    "y": np.arange(n, dtype=np.int32) % num_classes,
  }


def test_pixels_half():
  """(x - 0.5) / 0.5 for all channels, in the loss and in what is measured."""
  task, other = (
    task_of("--task=digits_logistic", f"--pixels={scaling}")
    for scaling in ("half", "channels")
  )
  batch = {"x": np.full((1, 8, 8, 1), 4.0), "y": np.array([1])}
  kernel = np.zeros((64, 10))
  kernel[:, 1] = 1 / 64
  params = task.init(jax.random.key(0))
  params = jax.tree.map(
    lambda leaf: jnp.asarray(kernel) if leaf.ndim == 2 else 0 * leaf, params
  )
  for variant, pixel in ((task, -0.5), (other, (0.25 - 0.3) / 0.38)):
    expected = np.log(9 + np.exp(pixel)) - pixel
    loss = variant.loss_fn(params, batch, None)
    np.testing.assert_allclose(loss, [expected], rtol=1e-5)
    measured = variant.per_example(params, batch)["loss"]
    np.testing.assert_allclose(measured, [expected], rtol=1e-5)


def test_only_images_of_32_pixels_are_large_enough_for_vgg16():
  names = {name for name in TASKS if name.endswith("vgg16")}
  # Of one's own data the file decides.
  names -= {"npz_vgg16", "images_vgg16"}
  assert names == {"cifar10_vgg16", "cifar100_vgg16", "svhn_vgg16"}


# It takes seconds to trace them; one data set shows that they fit.
DEEP = ("vgg16", "resnet18", "resnet50", "resnet56")


def test_digits():
  task = task_of("--task=digits")
  assert (task.clients, task.num_classes) == (None, 10)
  assert task.train["x"].shape == (1437, 8, 8, 1)
  assert task.test["x"].shape == (360, 8, 8, 1)
  assert TASKS["digits"] == dataclasses.replace(
    TASKS["digits_mlp"], label="digits"
  )


@pytest.mark.parametrize("name", sorted(image_tasks.DATASETS))
@pytest.mark.default_cases("digits")
def test_every_model_takes_the_shape_of_every_data_set(name):
  dataset = image_tasks.DATASETS[name]
  size = {"digits": 8, "mnist": 28, "fmnist": 28}.get(name, 32)
  pool = examples(
    size=size, channels=len(dataset.mean), num_classes=dataset.num_classes
  )
  for model_name in image_tasks.MODELS:
    if model_name in DEEP and name != "cifar10":
      continue
    model = image_tasks.model_of(model_name, dataset)
    task = image_tasks.classification(model, dataset, pool, pool)
    key = jax.random.key(0)
    model = jax.eval_shape(task.init, key)
    assert jax.eval_shape(task.loss_fn, model, pool, key).shape == (12,)
    features = jax.eval_shape(task.features_fn, model, pool, key)
    assert (features.ndim, len(features)) == (2, 12)


def test_initial_models_differ_by_key_and_start_at_chance():
  task = task_of("--task=digits_logistic")
  first, second = (task.init(jax.random.key(seed)) for seed in (0, 1))
  different = jax.tree.map(lambda a, b: bool((a != b).any()), first, second)
  assert any(jax.tree.leaves(different))
  batch = {name: values[:200] for name, values in task.train.items()}
  loss = jax.jit(task.loss_fn)(first, batch, jax.random.key(0)).mean()
  assert loss == pytest.approx(np.log(10), rel=0.25)


def test_what_a_model_is_given():
  """Pixels as (x / 255 - mean) / std; changes and dropout where there is a key.

  What is padded is black before the normalization.
  """
  calls = []

  class Spy:
    def apply(self, variables, x, train, rngs, **_):
      calls.append((np.asarray(x), train, rngs))
      return np.zeros((len(x), 10))

  pool, key = examples(), jax.random.key(0)
  plain = image_tasks.classification(Spy(), IMAGES, pool, pool)
  task = image_tasks.classification(Spy(), IMAGES, pool, pool, "crop_flip")
  plain.loss_fn({}, pool, key)
  for rng in (None, key, key, jax.random.key(1)):
    task.loss_fn({}, pool, rng)
  (x, train, rngs), (x_evaluated, *evaluated), *other_calls = calls
  np.testing.assert_allclose(x, (pool["x"] / 255 - 0.5) / 0.5, atol=1e-6)
  assert (train, rngs) == (True, {"dropout": key})
  np.testing.assert_array_equal(x_evaluated, x)
  assert evaluated == [False, None]
  first, again, other = (call[0] for call in other_calls)
  np.testing.assert_array_equal(first, again)
  assert (first != x).any()
  assert (first != other).any()
  assert first.min() == pytest.approx((0 - 0.5) / 0.5)


def test_only_batch_norm_has_statistics():
  for norm in ("group", "none", "batch"):
    task = task_of("--task=digits_resnet20", f"--norm={norm}")
    model = jax.eval_shape(lambda task=task: task.init(jax.random.key(0)))
    assert bool(running_statistics.part_paths(model)) == (norm == "batch")


# Tasks whose clients come with the data.


@pytest.mark.parametrize(
  ("task", "kernel"), [("lasso", (1024, 1)), ("low_rank", (32, 32))]
)
@pytest.mark.parametrize(
  ("variant", "clients", "size"), [("I", 64, 128), ("IV", 256, 32)]
)
def test_regressions(task, kernel, variant, clients, size):
  loaded = task_of(f"--task={task}", f"--variant={variant}")
  assert loaded.num_classes is loaded.features_fn is None
  assert loaded.clients.sizes.tolist() == [size] * clients
  params = loaded.init(jax.random.key(0))
  assert params["kernel"].shape == kernel
  assert params["bias"] == 0
  # Glorot uniform, of 1024 inputs and one output.
  bound = np.sqrt(6 / 1025)
  assert 0.99 * bound < jnp.abs(params["kernel"]).max() <= bound

  batch = {name: jnp.asarray(v[:5]) for name, v in loaded.test.items()}
  kernel, bias = np.asarray(params["kernel"], float), 0.25
  prediction = batch["x"].reshape(5, -1) @ kernel.ravel() + bias
  np.testing.assert_allclose(
    loaded.loss_fn(params | {"bias": bias}, batch, None),
    (prediction - batch["y"]) ** 2,
    rtol=1e-4,
  )


def test_what_regressions_measure():
  lasso = task_of("--task=lasso", "--variant=III", "--zero_threshold=0.5")
  # One of the eight, at the threshold; one too many, and one below it.
  kernel = (
    jnp.zeros((1024, 1))
    .at[jnp.array([0, 100, 200])]
    .set(jnp.array([[0.5], [-0.6], [0.4]]))
  )
  params = {"kernel": kernel, "bias": jnp.zeros([])}
  measured = jax.jit(lasso.evaluate)(params, lasso.clients, lasso.test)
  expected = {
    "precision": 1 / 2,
    "recall": 1 / 8,
    "f1": 2 * (1 / 16) / (5 / 8),
    "density": 2 / 1024,
    "recovery_error": np.sqrt(0.25 + 7 + 0.36 + 0.16),
  }
  assert set(measured) == {"train_loss", "test_loss", *expected}
  for name, value in expected.items():
    assert measured[name] == pytest.approx(value), name

  low_rank = task_of("--task=low_rank", "--variant=III", "--zero_threshold=0.5")
  kernel = jnp.zeros((32, 32)).at[0, 0].set(1).at[1, 1].set(0.4)
  params = {"kernel": kernel, "bias": jnp.zeros([])}
  measured = jax.jit(low_rank.evaluate)(params, low_rank.clients, low_rank.test)
  assert set(measured) == {"train_loss", "test_loss", "rank", "recovery_error"}
  assert measured["rank"] == 1
  assert measured["recovery_error"] == pytest.approx(0.4)


def test_what_nonconvex_measures():
  task = nonconvex.nonconvex(2.0)
  x = task.init(jax.random.key(0))
  measured = jax.jit(task.evaluate)(x, task.clients, task.test)
  objective = synthetic.heterogeneous(0.0).objective
  gradient = jax.grad(objective)(x)
  assert set(measured) == {"train_loss", "grad_norm_sq"}
  np.testing.assert_allclose(measured["train_loss"], objective(x), rtol=1e-5)
  np.testing.assert_allclose(
    measured["grad_norm_sq"], jnp.sum(gradient**2), rtol=1e-4
  )
  other = task.init(jax.random.key(1))
  assert (x != other).all()


@pytest.mark.parametrize(
  ("eval_every", "evaluations"), [(10, 10), (30, 3), (100, 1), (500, 1)]
)
def test_the_last_100_rounds_decide(eval_every, evaluations):
  task = task_of("--task=lasso", f"--eval_every={eval_every}")
  assert {str(criterion) for criterion in task.criteria.values()} == {
    str(Criterion(metric, way, "mean_last_n", evaluations))
    for way, metrics in {
      "min": ("validation_loss", "test_loss", "train_loss", "recovery_error"),
      "max": ("f1",),
    }.items()
    for metric in metrics
  }


def clients(x, num_classes):
  """Three clients; a class each."""
  y = np.arange(len(x), dtype=np.int32) % num_classes
  rows = np.array_split(np.arange(len(x)), 3)
  return ClientData.from_partition({"x": x, "y": y}, rows, num_classes)


@pytest.mark.parametrize(
  ("name", "asked", "num_classes", "num_parameters"),
  [
    ("femnist10", {"only_digits": True, "fraction": 0.1}, 10, 7850),
    ("femnist62", {}, 62, 785 * 200 + 201 * 200 + 201 * 62),
  ],
)
def test_femnist(monkeypatch, name, asked, num_classes, num_parameters):
  x = examples(n=12, size=28)["x"]
  train, test = clients(x, num_classes), clients(x[:6], num_classes)
  calls = []

  def read(data_dir, **options):
    calls.append((data_dir, options))
    return train, test

  monkeypatch.setattr(femnist, "load", read)
  task = task_of(f"--task={name}", "--data_dir=some")
  assert calls == [("some", asked)]
  assert task.clients is train
  assert task.test is test.examples
  assert task.num_classes == num_classes
  params = task.init(jax.random.key(0))
  leaves = jax.tree.leaves(params)
  assert sum(leaf.size for leaf in leaves) == num_parameters
  measured = jax.jit(task.evaluate)(params, task.clients, task.test)
  assert {"train_loss", "train_accuracy", "test_accuracy"} <= set(measured)


def test_fmri(monkeypatch):
  x = np.random.default_rng(0).normal(size=(12, 7)).astype(np.float32)
  train, test = clients(x, 2), clients(-x[:6], 2)
  monkeypatch.setattr(fmri, "load", lambda data_dir: (train, test))
  task = task_of("--task=fmri")
  assert task.clients is train
  w = np.array([0, 1, -2, 9e-5, 1.1e-4, 0, 0], np.float32)
  params = {"output": {"kernel": jnp.asarray(w[:, None]), "bias": jnp.ones(1)}}
  assert jax.tree.structure(params) == jax.tree.structure(
    jax.eval_shape(task.init, jax.random.key(0))
  )
  measured = jax.jit(task.evaluate)(params, task.clients, task.test)
  assert measured["density"] == pytest.approx(3 / 7)
  for part, data in (("train", train.examples), ("test", test.examples)):
    logit, sign = data["x"] @ w + 1, 2 * data["y"] - 1
    assert measured[f"{part}_loss"] == pytest.approx(
      np.mean(np.log1p(np.exp(-sign * logit))), rel=1e-5
    )
    assert measured[f"{part}_accuracy"] == pytest.approx(
      np.mean((logit > 0) == data["y"])
    )


# Bad input.


def _populations(pool, seeds, *arguments):
  task = task_of("--task=digits_logistic")._replace(train=pool)
  spec = spec_of("--num_clients=3", f"--seed={seeds}", *arguments)
  of_seed, _ = data_of_runs.drawn_clients(spec, task)
  return of_seed


def test_populations_share_the_pool_and_differ_by_seed():
  pool, sizes = examples(n=200), "--examples_per_client=20-40"
  of_seed = _populations(pool, "4,9", sizes)
  assert list(of_seed) == [4, 9]
  assert of_seed[4].examples is of_seed[9].examples
  assert not np.array_equal(of_seed[4].sizes, of_seed[9].sizes)
  for data in of_seed.values():
    assert ((data.sizes >= 20) & (data.sizes <= 40)).all()
  alone = _populations(pool, "9", sizes)[9]
  labels = lambda data: data.examples["y"][data.indices[0, : data.sizes[0]]]
  np.testing.assert_array_equal(labels(alone), labels(of_seed[9]))
