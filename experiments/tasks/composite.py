"""Tasks of the composite optimization paper: sparse, low rank, constrained.

Their clients come with the data. Models start as Keras starts them, as in the
authors' program.
"""

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from experiments.tasks import images
from experiments.tasks.base import Task
from fedjax_opt import evaluation, models
from fedjax_opt.base import Params
from fedjax_opt.data import synthetic
from fedjax_opt.data.clients import ClientData
from fedjax_opt.datasets import femnist, fmri
from fedjax_opt.metrics import Criterion
from fedjax_opt.models.layers import glorot_uniform
from fedjax_opt.trees import at_least_float32


def lasso(variant: str, zero_threshold: float, eval_every: int) -> Task:
  """Sparse least squares, `mean (x'w + b - y)^2` (appendix A.2)."""
  problem = synthetic.lasso(variant)

  def of_params(params):
    w, w_real = params["kernel"][:, 0], jnp.asarray(problem.w_real)
    return evaluation.recovered_support(w, w_real, zero_threshold)

  return _regression(problem, of_params, "f1", eval_every)


def low_rank(variant: str, zero_threshold: float, eval_every: int) -> Task:
  """Low-rank least squares, `mean (<X, W> + b - y)^2` (appendix A.3)."""
  problem = synthetic.low_rank(variant)

  def of_params(params):
    w_real = jnp.asarray(problem.w_real)
    return evaluation.recovered_rank(params["kernel"], w_real, zero_threshold)

  return _regression(problem, of_params, "rank", eval_every)


def _regression(
  problem: synthetic.Problem,
  of_params: Callable[[Params], dict[str, jax.Array]],
  panel: str,
  eval_every: int,
) -> Task:
  shape = problem.w_real.shape
  kernel_shape = shape if len(shape) == 2 else (*shape, 1)
  half_width, _ = glorot_uniform(problem.w_real.size, 1)

  def init(key):
    kernel = jax.random.uniform(
      key, kernel_shape, minval=-half_width, maxval=half_width
    )
    return {"kernel": kernel, "bias": jnp.zeros([])}

  def loss_fn(params, batch, rng):  # [B]
    del rng
    x = batch["x"].reshape(len(batch["x"]), -1)
    prediction = x @ params["kernel"].reshape(-1) + params["bias"]
    return jnp.square(at_least_float32(prediction) - batch["y"])

  def per_example(params, batch):
    return {"loss": loss_fn(params, batch, None)}

  # As the paper's criterion, the error: over the last 100 rounds.
  last = max(1, 100 // eval_every)
  metrics = {
    "validation": "validation_loss",
    "test": "test_loss",
    "train": "train_loss",
    "truth": "recovery_error",
  }
  return Task(
    train=problem.data.examples,
    test=problem.test,
    validation=problem.validation,
    init=init,
    loss_fn=loss_fn,
    per_example=per_example,
    evaluate=evaluation.federated(per_example, of_params=of_params),
    criteria={
      split: Criterion(metric, "min", "mean_last_n", last)
      for split, metric in metrics.items()
    },
    clients=problem.data,
    panels=("regularized_train_loss", panel, "recovery_error"),
  )


def femnist10(data_dir: str | None) -> Task:
  """Digits by writer, logistic regression, first 10 % of the writers (A.5)."""
  data_dir = _given("femnist10", data_dir)
  loaded = femnist.load(data_dir, only_digits=True, fraction=0.1)
  model = models.LinearModel(10, initialization=glorot_uniform)
  return _by_writer(model, 10, *loaded)


def femnist62(data_dir: str | None) -> Task:
  """Characters by writer, a 784-200-200-62 ReLU network (A.5)."""
  loaded = femnist.load(_given("femnist62", data_dir))
  model = models.MLP(
    (200, 200), 62, activation=nn.relu, initialization=glorot_uniform
  )
  return _by_writer(model, 62, *loaded)


def _given(task: str, data_dir: str | None) -> str:
  if data_dir is None:
    raise ValueError(
      f"data_dir: task {task} needs it; must be a folder that holds "
      f"{femnist.TFF_FILE} or FedJAX's federated_emnist_*.sqlite"
    )
  return data_dir


def _by_writer(
  model: nn.Module, num_classes: int, train: ClientData, test: ClientData
) -> Task:
  dataset = images.Images("FEMNIST", num_classes, (0.0,), (1.0,))
  task = images.classification(model, dataset, train.examples, test.examples)
  # That of the paper is on the training examples.
  of_train = {"train": Criterion("train_loss", "min", "mean_last_n", 10)}
  return task._replace(clients=train, criteria=task.criteria | of_train)


def haxby(data_dir: str | None, zero_threshold: float) -> Task:
  """Horse or face from fMRI voxels, sparse logistic regression (A.4)."""
  train, test = fmri.load(data_dir)
  model = models.LinearModel(1, initialization=glorot_uniform)

  def logits(params, batch):  # [B]
    return model.apply({"params": params}, batch["x"])[:, 0]

  def loss_fn(params, batch, rng):  # [B]
    del rng
    labels = batch["y"].astype(jnp.float32)
    return optax.sigmoid_binary_cross_entropy(logits(params, batch), labels)

  def per_example(params, batch):
    right = (logits(params, batch) > 0) == (batch["y"] == 1)
    return {
      "loss": loss_fn(params, batch, None),
      "accuracy": right.astype(jnp.float32),
    }

  def of_params(params):
    kernel = params["output"]["kernel"]
    return {"density": evaluation.density(kernel, zero_threshold)}

  @jax.jit
  def init(key):
    return model.init(key, jnp.asarray(train.examples["x"][:1]))["params"]

  return Task(
    train=train.examples,
    test=test.examples,
    init=init,
    loss_fn=loss_fn,
    per_example=per_example,
    evaluate=evaluation.federated(per_example, of_params=of_params),
    criteria={
      split: Criterion(f"regularized_{split}_loss", "min", "last")
      for split in ("validation", "test", "train")
    },
    num_classes=2,
    clients=train,
    panels=("regularized_train_loss", "test_accuracy", "density"),
  )
