"""Tasks of classifying images: a data set with a model."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from experiments.tasks import classification as classifier
from experiments.tasks.base import Task, TaskEntry
from experiments.tasks.classification import Examples
from fedjax_opt import models
from fedjax_opt.checks import fields
from fedjax_opt.data.augmentation import AUGMENTATIONS
from fedjax_opt.datasets import embedded, tfds
from fedjax_opt.models.layers import NORMS, glorot_uniform, he_uniform
from fedjax_opt.registry import Hyperparameter, documented


class Images(NamedTuple):
  """A data set of labelled images.

  Attributes:
    help: one line.
    num_classes: labels are below it.
    mean: what is subtracted from each channel, in units of `largest`.
    std: what each channel is then divided by, in the same unit.
    largest: largest value of a pixel.
    tfds_name: its name in TensorFlow Datasets; None for the embedded digits.
    side: height and width in pixels.
    label: its name for people; `help` if None.
  """

  help: str
  num_classes: int
  mean: tuple[float, ...]
  std: tuple[float, ...]
  largest: float = 255.0
  tfds_name: str | None = None
  side: int = 28
  label: str | None = None

  def load(self, data_dir: str | None) -> tuple[Examples, Examples]:
    """The training and the test examples."""
    if self.tfds_name is None:
      return embedded.digits()
    load = lambda split: tfds.load(self.tfds_name, split, data_dir)
    return load("train"), load("test")


# The constants are those of the Δ-SGD paper's code, if it has the data set.
DATASETS: dict[str, Images] = {
  "digits": Images(
    "8x8 digits of scikit-learn",
    10,
    (0.3,),
    (0.38,),
    16.0,
    side=8,
    label="digits",
  ),
  "mnist": Images("MNIST", 10, (0.1307,), (0.3081,), tfds_name="mnist"),
  "fmnist": Images(
    "Fashion-MNIST", 10, (0.1307,), (0.3081,), tfds_name="fashion_mnist"
  ),
  "cifar10": Images(
    "CIFAR-10",
    10,
    (0.4914, 0.4822, 0.4465),
    (0.2023, 0.1994, 0.2010),
    tfds_name="cifar10",
    side=32,
  ),
  "cifar100": Images(
    "CIFAR-100",
    100,
    (0.507, 0.487, 0.441),
    (0.267, 0.256, 0.276),
    tfds_name="cifar100",
    side=32,
  ),
  "svhn": Images(
    "SVHN", 10, (0.5,) * 3, (0.5,) * 3, tfds_name="svhn_cropped", side=32
  ),
}


class Model(NamedTuple):
  """A model for images.

  Attributes:
    help: one line.
    make: `images -> module`; also takes `norm` if `has_norm`.
    label: its name for people.
    has_norm: whether it can have normalization layers.
    is_convex: whether the loss is convex in it.
    least_side: smallest height and width of its images, in pixels.
  """

  help: str
  make: Callable[..., nn.Module]
  label: str
  has_norm: bool = False
  is_convex: bool = False
  least_side: int = 1


def _mlp(images: Images) -> nn.Module:
  # As in "Bias-Variance Reduced Local SGD", ICML 2021, section 6.
  return models.MLP(
    (100,),
    images.num_classes,
    activation=nn.softplus,
    initialization=glorot_uniform,
  )


def _cnn(images: Images) -> nn.Module:
  if images.side < 28:  # No room for two layers of 5x5 kernels.
    return models.CNN(images.num_classes, kernel_size=3, padding="SAME")
  return models.CNN(images.num_classes)


def _small_cnn(images: Images) -> nn.Module:
  return models.CNN(
    images.num_classes,
    dropout=0.0,
    channels=(8, 16),
    kernel_size=3,
    padding=((1, 1), (1, 1)),
    strided=True,
    hidden=64,
    initialization=he_uniform,
  )


def _resnet(factory: Callable[..., nn.Module], help: str, label: str) -> Model:
  make = lambda images, norm: factory(num_classes=images.num_classes, norm=norm)
  return Model(help, make, label, has_norm=True)


MODELS: dict[str, Model] = {
  "logistic": Model(
    "multinomial logistic regression",
    lambda images: models.LinearModel(images.num_classes),
    "logistic",
    is_convex=True,
  ),
  "mlp": Model("one hidden layer of 100 softplus units", _mlp, "MLP"),
  "relu_mlp": Model(
    "two hidden layers of 200 ReLU units",
    lambda images: models.MLP(
      (200, 200), images.num_classes, activation=nn.relu
    ),
    "ReLU MLP",
  ),
  "cnn": Model("two convolutions, two dense layers, dropout", _cnn, "CNN"),
  "small_cnn": Model(
    "two convolutions of stride 2, two dense layers", _small_cnn, "small CNN"
  ),
  "vgg16": Model(
    "13 convolutions, one dense layer, no normalization",
    lambda images: models.VGG(images.num_classes),
    "VGG-16",
    least_side=32,  # It halves the side five times.
  ),
  "resnet18": _resnet(
    models.resnet18, "residual network of 11 million parameters", "ResNet-18"
  ),
  "resnet20": _resnet(
    models.resnet20, "residual network of 0.3 million parameters", "ResNet-20"
  ),
  "resnet50": _resnet(
    models.resnet50,
    "residual network of bottlenecks, 24 million parameters",
    "ResNet-50",
  ),
  "resnet56": _resnet(
    models.resnet56, "residual network of 0.9 million parameters", "ResNet-56"
  ),
}


@fields.checked(
  augmentation=fields.one_of("none", *AUGMENTATIONS),
  norm=fields.one_of(*NORMS),
)
def load(
  dataset: str,
  model: str,
  data_dir: str | None = None,
  augmentation: str = "none",
  norm: str = "group",
  pixels: Literal["channels", "half"] = "channels",
) -> Task:
  """Loads a data set of `DATASETS` and makes a model of `MODELS` for it.

  Args:
    dataset: key of `DATASETS`.
    model: key of `MODELS`.
    data_dir: folder of the data.
    augmentation: what tasks of images do to images at random, anew in each
      local step
      - none: nothing
      - crop_flip: crops after padding by 4 pixels, half of them mirrored
    norm: normalization layers of the ..._resnet tasks
      - group: 8 groups of channels
      - batch: batch normalization; running statistics are averaged over the
        clients; for algorithms with a client rule, and full batches
      - batch_untracked: as batch, but layers inside blocks have no running
        statistics; an evaluation takes the statistics of its own batches, of
        128 examples
      - none: no normalization
    pixels: how tasks of images normalize pixels, which are from 0 to 1
      - channels: by the mean and the deviation of each channel of the data set
      - half: (x - 0.5) / 0.5

  Raises:
    ValueError: if the data cannot be read.
  """
  images = DATASETS[dataset]
  if pixels == "half":
    images = images._replace(mean=(0.5,), std=(0.5,))
  train, test = images.load(data_dir)
  model = model_of(model, images, norm)
  return classification(model, images, train, test, augmentation)


def model_of(name: str, images: Images, norm: str = "group") -> nn.Module:
  """A model of `MODELS` for a data set."""
  model = MODELS[name]
  return model.make(images, norm=norm) if model.has_norm else model.make(images)


def classification(
  model: nn.Module,
  images: Images,
  train: Examples,
  test: Examples,
  augmentation: str = "none",
  **fields: Any,
) -> Task:
  """Cross-entropy of a model's logits on images; see `classifier.task`."""
  augment = AUGMENTATIONS.get(augmentation)

  def prepare(x: jax.Array, rng):  # [B, H, W, C] float
    if augment is not None and rng is not None:
      key, rng = jax.random.split(rng)
      x = augment(key, x)
    mean, std = jnp.asarray(images.mean), jnp.asarray(images.std)
    return (x / images.largest - mean) / std, rng

  # Models that depend on the batch are evaluated in batches of the paper's
  # size.
  is_of_batch = getattr(model, "norm", "none") == "batch_untracked"
  fields["evaluated"] = {"batch_size": 128} if is_of_batch else {}
  apply, init = classifier.network(model, train, prepare)
  return classifier.task(apply, init, train, test, images.num_classes, **fields)


# The entries of the registry.

_DIFFERS = {"may_differ": True}
_AUGMENTATION, _NORM, _PIXELS = documented(
  load, augmentation=_DIFFERS, norm=_DIFFERS, pixels=_DIFFERS
)


def options(model: str) -> tuple[Hyperparameter, ...]:
  """The options of tasks of images, also of a user's own images."""
  return (_AUGMENTATION, _NORM) if MODELS[model].has_norm else (_AUGMENTATION,)


def _choice(dataset: str, model: str) -> TaskEntry:
  data, network = DATASETS[dataset], MODELS[model]
  return TaskEntry(
    functools.partial(load, dataset, model),
    f"{data.help}, {network.help}",
    (*options(model), _PIXELS),
    takes=() if data.tfds_name is None else ("data_dir",),
    is_convex=network.is_convex,
    label=f"{data.label or data.help} {network.label}",
  )


TASKS: dict[str, TaskEntry] = {
  f"{dataset}_{model}": _choice(dataset, model)
  for dataset, data in DATASETS.items()
  for model, network in MODELS.items()
  if data.side >= network.least_side
}
DIGITS = dataclasses.replace(TASKS["digits_mlp"], label="digits")
