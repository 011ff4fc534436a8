"""Tasks of the composite optimization paper: sparse, low rank, constrained.

Their clients come with the data. Models are initialized as Keras does, as in
the authors' program.
"""

import functools
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from experiments.tasks import classification, images
from experiments.tasks.base import Task, TaskEntry
from fedjax_opt import evaluation, models
from fedjax_opt.arrays.trees import at_least_float32
from fedjax_opt.base import Params
from fedjax_opt.checks import fields
from fedjax_opt.data import synthetic
from fedjax_opt.data.clients import ClientData
from fedjax_opt.datasets import femnist, fmri
from fedjax_opt.models.layers import glorot_uniform
from fedjax_opt.registry import Hyperparameter, from_factory
from fedjax_opt.results.metric_names import direction
from fedjax_opt.results.selection import Criterion


@fields.checked(zero_threshold="(0, inf)")
def lasso(
  variant: str = "I", zero_threshold: float = 1e-2, eval_every: int = 10
) -> Task:
  """Sparse least squares, `mean (x'w + b - y)^2` (appendix A.2).

  Args:
    variant: key of `synthetic.VARIANTS`.
    zero_threshold: coefficients and singular values below it count as zero in
      f1, density and rank.
    eval_every: rounds between evaluations.
  """
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

  def apply(params, batch, rng):  # [B]
    del rng
    x = batch["x"].reshape(len(batch["x"]), -1)
    prediction = x @ params["kernel"].reshape(-1) + params["bias"]
    return at_least_float32(prediction)

  # As the paper's criterion, the error is over the last 100 rounds.
  num_last = max(1, 100 // eval_every)
  metrics = {
    "validation": "validation_loss",
    "test": "test_loss",
    "train": "train_loss",
    "truth": "recovery_error",
  }
  if panel == "f1":
    metrics["support"] = "f1"
  return classification.task(
    apply,
    init,
    problem.data.examples,
    problem.test,
    None,
    loss=lambda prediction, y: jnp.square(prediction - y),
    is_right=None,
    evaluated={"of_params": of_params},
    features_fn=None,
    validation=problem.validation,
    criteria={
      split: Criterion(metric, direction(metric), "mean_last_n", num_last)
      for split, metric in metrics.items()
    },
    clients=problem.data,
    panels=("regularized_train_loss", panel, "recovery_error"),
  )


def femnist10(data_dir: str | None) -> Task:
  """Digits by writer, logistic regression, first 10 % of the writers (A.5)."""
  splits = femnist.load(data_dir, only_digits=True, fraction=0.1)
  model = models.LinearModel(10, initialization=glorot_uniform)
  return _by_writer(model, 10, *splits)


def femnist62(data_dir: str | None) -> Task:
  """Characters by writer, a 784-200-200-62 ReLU network (A.5)."""
  splits = femnist.load(data_dir)
  model = models.MLP(
    (200, 200), 62, activation=nn.relu, initialization=glorot_uniform
  )
  return _by_writer(model, 62, *splits)


def _by_writer(
  model: nn.Module, num_classes: int, train: ClientData, test: ClientData
) -> Task:
  dataset = images.Images("FEMNIST", num_classes, (0.0,), (1.0,))
  task = images.classification(
    model, dataset, train.examples, test.examples, clients=train
  )
  # The paper's criterion is on the training examples.
  of_train = {"train": Criterion("train_loss", "min", "mean_last_n", 10)}
  return task._replace(criteria=task.criteria | of_train)


@fields.checked(zero_threshold="(0, inf)")
def haxby(data_dir: str | None, zero_threshold: float = 1e-4) -> Task:
  """Horse or face from fMRI voxels, sparse logistic regression (A.4).

  Args:
    data_dir: folder of the data.
    zero_threshold: coefficients and singular values below it count as zero in
      f1, density and rank.
  """
  train, test = fmri.load(data_dir)
  model = models.LinearModel(1, initialization=glorot_uniform)
  apply, init = classification.network(model, train.examples)

  def loss(logits, y):  # [B]
    labels = y.astype(jnp.float32)
    return optax.sigmoid_binary_cross_entropy(logits, labels)

  def of_params(params):
    kernel = params["output"]["kernel"]
    return {"density": evaluation.density(kernel, zero_threshold)}

  return classification.task(
    lambda *args: apply(*args)[:, 0],  # Logits [B].
    init,
    train.examples,
    test.examples,
    num_classes=2,
    loss=loss,
    is_right=lambda logits, y: (logits > 0) == (y == 1),
    evaluated={"of_params": of_params},
    features_fn=None,
    criteria={
      split: Criterion(f"regularized_{split}_loss", "min", "last")
      for split in ("validation", "test", "train")
    },
    clients=train,
    panels=("regularized_train_loss", "test_accuracy", "density"),
  )


# The entries of the registry.

_VARIANT = Hyperparameter(
  "variant",
  "I",
  "which problem, of 1024 coefficients or a 32 x 32 matrix"
  + "".join(
    f"\n{name:3}  {size.num_nonzero} nonzero or rank {size.rank}; "
    f"{size.num_clients} clients of {size.examples_per_client} examples"
    for name, size in synthetic.VARIANTS.items()
  ),
  fields.one_of(*synthetic.VARIANTS),
)
_choice = functools.partial(TaskEntry, has_clients=True)
_SPLITS = ("validation", "test", "train", "truth")
_femnist = functools.partial(
  _choice,
  needs={
    "data_dir": f"a folder that holds {femnist.TFF_FILE} or FedJAX's "
    "federated_emnist_*.sqlite"
  },
)
_synthetic = functools.partial(
  _choice,
  hyperparameters=(_VARIANT, *from_factory(lasso, "zero_threshold")),
  takes=("eval_every",),
  is_convex=True,
  draws_validation=True,
)

# The strengths of lasso and low_rank: see the artefact fco/strength.
TASKS: dict[str, TaskEntry] = {
  "lasso": _synthetic(
    lasso,
    "sparse least squares, synthetic",
    splits=(*_SPLITS, "support"),
    regularizer="l1",
    defaults={"client_lr": 3e-4, "strength": 0.1},
    label="LASSO",
  ),
  "low_rank": _synthetic(
    low_rank,
    "low-rank least squares, synthetic",
    splits=_SPLITS,
    regularizer="nuclear",
    defaults={"client_lr": 3e-4, "strength": 0.5},
  ),
  "fmri": _choice(
    haxby,
    "horse or face from brain scans (Haxby), logistic regression",
    from_factory(haxby, "zero_threshold"),
    is_convex=True,
    regularizer="l1",
    label="fMRI",
  ),
  "femnist10": _femnist(
    femnist10,
    "FEMNIST's digits by writer, logistic regression",
    is_convex=True,
    regularizer="l2_ball",
    label="FEMNIST (10 classes)",
  ),
  "femnist62": _femnist(
    femnist62,
    "FEMNIST's characters by writer, 784-200-200-62 network",
    regularizer="l1_ball",
    label="FEMNIST (62 classes)",
  ),
}
