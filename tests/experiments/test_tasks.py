"""Tasks: names, data, losses and initial models."""

import jax
import numpy as np
import pytest

from experiments import population, tasks


def images(num_classes=10, channels=1, size=8):
  return tasks.Images("test", num_classes, (0.5,) * channels, (0.5,) * channels)


def examples(n=12, size=8, channels=1, num_classes=10, dtype=np.uint8):
  rng = np.random.default_rng(0)
  return {
    "x": rng.integers(256, size=(n, size, size, channels)).astype(dtype),
    "y": np.arange(n, dtype=np.int32) % num_classes,
  }


def test_names_of_the_contract():
  names = {"digits", "mnist_cnn", "fmnist_cnn", "cifar10_cnn", "cifar10_mlp"}
  assert names <= set(tasks.TASKS)
  assert tasks.TASKS["digits"] == tasks.TASKS["digits_mlp"]


@pytest.mark.parametrize("model", tasks.MODELS)
def test_digits(model):
  task = tasks.load(f"digits_{model}")
  assert task.train["x"].shape == (1437, 8, 8, 1)
  assert task.test["x"].shape == (360, 8, 8, 1)
  batch = {name: values[:5] for name, values in task.train.items()}
  key = jax.random.key(0)
  params = jax.eval_shape(task.init, key)
  losses = jax.eval_shape(task.loss_fn, params, batch, key)
  assert losses.shape == (5,)
  features = jax.eval_shape(task.features_fn, params, batch, key)
  assert features.shape[0] == 5
  assert features.ndim == 2


@pytest.mark.parametrize("name", sorted(tasks.DATASETS))
def test_every_model_takes_the_shape_of_every_data_set(name):
  dataset = tasks.DATASETS[name]
  size = {"digits": 8, "mnist": 28, "fmnist": 28}.get(name, 32)
  pool = examples(
    size=size, channels=len(dataset.mean), num_classes=dataset.num_classes
  )
  for model_name in tasks.MODELS:
    model = tasks._model(model_name, dataset)
    task = tasks.classification(model, dataset, pool, pool)
    key = jax.random.key(0)
    loss = jax.eval_shape(
      lambda task=task, key=key: task.loss_fn(task.init(key), pool, key)
    )
    assert loss.shape == (12,)


def test_initial_models_differ_by_key_and_start_at_chance():
  task = tasks.load("digits_logistic")
  one, two = (task.init(jax.random.key(seed)) for seed in (0, 1))
  different = jax.tree.map(lambda a, b: bool((a != b).any()), one, two)
  assert any(jax.tree.leaves(different))
  batch = {name: values[:200] for name, values in task.train.items()}
  loss = jax.jit(task.loss_fn)(one, batch, jax.random.key(0)).mean()
  assert loss == pytest.approx(np.log(10), rel=0.25)


def test_what_a_model_is_given():
  """Pixels as (x / 255 - mean) / std; dropout where there is a key for it."""
  seen = []

  class Spy:
    def apply(self, variables, x, train, rngs, **_):
      seen.append((np.asarray(x), train, rngs))
      return np.zeros((len(x), 10))

  pool, key = examples(), jax.random.key(0)
  task = tasks.classification(Spy(), images(), pool, pool)
  task.loss_fn({}, pool, key)
  task.loss_fn({}, pool, None)
  (x, train, rngs), (_, train_without, rngs_without) = seen
  np.testing.assert_allclose(x, (pool["x"] / 255 - 0.5) / 0.5, atol=1e-6)
  assert (train, rngs) == (True, {"dropout": key})
  assert (train_without, rngs_without) == (False, None)


@pytest.mark.parametrize(
  ("call", "message"),
  [
    (
      lambda: tasks.check("mnist"),
      r"task='mnist': must be one of digits_log.*",
    ),
    (
      lambda: tasks.load("digits", "somewhere"),
      "data_dir='somewhere': task digits needs no data; leave data_dir out",
    ),
    (
      lambda: tasks.load("mnist_cnn", "/does/not/exist"),
      "data_dir='/does/not/exist': must be an existing folder",
    ),
  ],
)
def test_bad_input(call, message):
  with pytest.raises(ValueError, match=f"^{message}$"):
    call()


def test_labels_outside_the_classes(flags_of):
  pool = examples(num_classes=10)
  pool["y"][3] = 10
  with pytest.raises(ValueError, match=r"^labels y must be in \[0, 10\), but"):
    _populations(flags_of, pool)


def test_nan_in_the_data(flags_of):
  pool = examples(dtype=np.float32)
  pool["x"][5, 0, 0, 0] = np.nan
  with pytest.raises(ValueError, match=r"^NaN in the data: .* row 5 is not"):
    _populations(flags_of, pool)


def _populations(flags_of, pool):
  flag = flags_of("--num_clients=3")
  parameters = population.resolve(flag)
  return population.populations(pool, 10, flag, parameters, [0])


def test_populations_share_the_pool_and_differ_by_seed(flags_of):
  pool = examples(n=200)
  flag = flags_of("--num_clients=3", "--examples_per_client=20-40")
  parameters = population.resolve(flag)
  assert parameters == {
    "alpha": 0.1,
    "examples_per_client": "20-40",
    "tail_cut": 0.0,
  }
  of_seed = population.populations(pool, 10, flag, parameters, [4, 9])
  assert list(of_seed) == [4, 9]
  assert of_seed[4].examples is of_seed[9].examples
  assert not np.array_equal(of_seed[4].sizes, of_seed[9].sizes)
  for data in of_seed.values():
    assert ((data.sizes >= 20) & (data.sizes <= 40)).all()
  alone = population.populations(pool, 10, flag, parameters, [9])[9]
  labels = lambda data: data.examples["y"][data.indices[0, : data.sizes[0]]]
  np.testing.assert_array_equal(labels(alone), labels(of_seed[9]))
