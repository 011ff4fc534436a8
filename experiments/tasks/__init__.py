"""The tasks by name, one family per file.

`TASKS` names them for the command line; a new task is an entry here. Those of
images are made of `images.DATASETS` and `images.MODELS`, where a new data set
or model is an entry.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

from experiments.tasks import (
  composite,
  images,
  nonconvex,
  npz,
  shakespeare,
  text,
)
from experiments.tasks.base import Task
from fedjax_opt import objectives
from fedjax_opt.data.augmentation import AUGMENTATIONS
from fedjax_opt.data.synthetic import VARIANTS
from fedjax_opt.models.layers import NORMS
from fedjax_opt.registry import Choice, Hyperparameter, Option, register

__all__ = ["TASKS", "Task", "TaskChoice", "load"]


@dataclasses.dataclass(frozen=True)
class TaskChoice(Choice):
  """A task; its factory reads or makes the data.

  Attributes:
    takes: fields of the specification that the factory takes by name, beside
      its hyperparameters: 'data_dir', 'data_file', 'pretrained', 'eval_every'.
    has_clients: whether its clients come with the data, so that there is
      nothing to divide; of 'data_file' that file says it, see npz.py.
    is_convex: whether the loss is convex in the model.
    splits: on what settings can be chosen, the default first; see
      `experiments.specification.resolve`.
    draws_validation: whether it draws its own validation examples.
    regularizer: that of composite algorithms, if none is chosen.
    defaults: flag -> default, where the task has its own; `strength` is that
      of its own regularizer.
  """

  takes: tuple[str, ...] = ("data_dir",)
  has_clients: bool = False
  is_convex: bool = False
  splits: tuple[str, ...] = ("validation", "test", "train")
  draws_validation: bool = False
  regularizer: str | None = None
  defaults: Mapping[str, float] = dataclasses.field(default_factory=dict)

  @property
  def reads_data(self) -> bool:
    """Whether it reads files, for which `--data_dir` is."""
    return "data_dir" in self.takes

  @property
  def reads_file(self) -> bool:
    """Whether it reads `--data_file`."""
    return "data_file" in self.takes

  @property
  def reads_pretrained(self) -> bool:
    """Whether it starts from the folder `--pretrained`."""
    return "pretrained" in self.takes

  def brings_clients(self, data_file: str | None) -> bool:
    """Whether its clients come with the data.

    Args:
      data_file: the file, if it reads one.

    Raises:
      ValueError: if that is said in a file which cannot be read.
    """
    return npz.has_clients(data_file) if self.reads_file else self.has_clients


_VARIANT = Option(
  "variant",
  "I",
  "which problem, of 1024 coefficients or a 32 x 32 matrix"
  + "".join(
    f"\n{name:3}  {size.num_nonzero} nonzero or rank {size.rank}; "
    f"{size.num_clients} clients of {size.examples_per_client} examples"
    for name, size in VARIANTS.items()
  ),
  tuple(VARIANTS),
)
_THRESHOLD = Hyperparameter(
  "zero_threshold",
  1e-2,
  "coefficients and singular values below it count as zero in f1, density and "
  "rank",
  "(0, inf)",
)
_ZETA = Hyperparameter(
  "zeta", 0.1, "how far clients' Hessians differ, in the 2-norm", "[0, inf)"
)
_AUGMENTATION = Option(
  "augmentation",
  "none",
  "what is done to images at random in each local step, anew for each: none, "
  "or crop_flip (crops after padding by 4 pixels, half of them mirrored). For "
  "tasks of images",
  ("none", *AUGMENTATIONS),
  "task {chosen} does not have images that could be cropped; leave "
  "augmentation out",
  may_differ=True,
)
_NORM = Option(
  "norm",
  "group",
  "normalization layers of the ..._resnet tasks: group (8 groups of channels), "
  "none, batch, whose running statistics are averaged as the weights are (for "
  "algorithms with a client rule, and full batches), or batch_untracked, as "
  "batch, but those inside blocks have no running statistics: an evaluation "
  "takes those of its own batch, of 128 examples",
  NORMS,
  "the model of task {chosen} has no place for normalization layers; those of "
  "the ..._resnet tasks have",
  may_differ=True,
)
_PIXELS = Option(
  "pixels",
  "channels",
  "how pixels, from 0 to 1, are normalized: channels (by the mean and the "
  "deviation of each channel of the data set) or half ((x - 0.5) / 0.5). For "
  "tasks of images",
  images.PIXELS,
  "task {chosen} has no images whose pixels it normalizes; leave pixels out",
  may_differ=True,
)

_TEST_FRACTION = Hyperparameter(
  "test_fraction",
  None,
  "fraction of the examples of data_file that is held out of training as the "
  "test part, at random and of each class or client alike, the same for all "
  "seeds; 0.2, or 0 if the file has a test part",
  "[0, 1)",
)


def _of_file(model: str) -> TaskChoice:
  help = f"your own data in data_file, {images.MODELS[model].help}"
  own = (_TEST_FRACTION, *_options(model))
  load = functools.partial(npz.load, model=model)
  return TaskChoice(
    load,
    help,
    own,
    takes=("data_file",),
    is_convex=images.MODELS[model].is_convex,
    label=f"NPZ {images.MODELS[model].label}",
  )


def _options(model: str) -> tuple[Option, ...]:
  """The options of tasks of images, also of one's own."""
  return (_AUGMENTATION, *((_NORM,) if images.MODELS[model].has_norm else ()))


def _images(dataset: str, model: str) -> TaskChoice:
  data, network = images.DATASETS[dataset], images.MODELS[model]
  return TaskChoice(
    functools.partial(images.load, dataset, model),
    f"{data.help}, {network.help}",
    (*_options(model), _PIXELS),
    takes=() if data.tfds_name is None else ("data_dir",),
    is_convex=network.is_convex,
    label=f"{data.label or data.help} {network.label}",
  )


_with_clients = functools.partial(TaskChoice, has_clients=True)
_regression = functools.partial(
  _with_clients,
  hyperparameters=(_VARIANT, _THRESHOLD),
  takes=("eval_every",),
  is_convex=True,
  splits=("validation", "test", "train", "truth"),
  draws_validation=True,
)

_SHAKESPEARE = (
  Hyperparameter(
    "sequence_length",
    80,
    "characters of an example, which are cut one after the other from all that "
    "a speaker says",
    "[1, inf)",
    is_static=True,
  ),
  Hyperparameter(
    "min_sequences",
    2,
    "speakers with fewer sequences are left out",
    "[1, inf)",
    is_static=True,
  ),
  Hyperparameter(
    "test_fraction",
    0.2,
    "fraction of the sequences of each speaker, the last ones, that is held "
    "out of training as the test part; 0 for TFDS's test split, scenes of two "
    "plays whose speakers are mostly new",
    "[0, 1)",
  ),
)


def _shakespeare(model: str, help: str, label: str) -> TaskChoice:
  return _with_clients(
    functools.partial(shakespeare.load, model=model),
    f"Shakespeare's next character by speaker, {help}",
    _SHAKESPEARE,
    label=f"Shakespeare {label}",
  )


# The strengths of lasso and low_rank: see the artefact fco/strength.
OTHERS: dict[str, TaskChoice] = {
  "lasso": _regression(
    composite.lasso,
    "sparse least squares, synthetic",
    regularizer="l1",
    defaults={"client_lr": 3e-4, "strength": 0.1},
    label="LASSO",
  ),
  "low_rank": _regression(
    composite.low_rank,
    "low-rank least squares, synthetic",
    regularizer="nuclear",
    defaults={"client_lr": 3e-4, "strength": 0.5},
  ),
  "fmri": _with_clients(
    composite.haxby,
    "horse or face from brain scans (Haxby), logistic regression",
    (_THRESHOLD._replace(default=1e-4),),
    is_convex=True,
    regularizer="l1",
    label="fMRI",
  ),
  "femnist10": _with_clients(
    composite.femnist10,
    "FEMNIST's digits by writer, logistic regression",
    is_convex=True,
    regularizer="l2_ball",
    label="FEMNIST (10 classes)",
  ),
  "femnist62": _with_clients(
    composite.femnist62,
    "FEMNIST's characters by writer, 784-200-200-62 network",
    regularizer="l1_ball",
    label="FEMNIST (62 classes)",
  ),
  "shakespeare_lstm": _shakespeare("lstm", "two LSTM layers of 256", "LSTM"),
  "shakespeare_transformer": _shakespeare(
    "transformer", "transformer of 4 layers, 128 wide", "transformer"
  ),
  "nonconvex": _with_clients(
    nonconvex.nonconvex,
    "double wells, clients that differ by zeta, synthetic",
    (_ZETA,),
    takes=(),
    splits=("train",),
    defaults={"client_lr": 0.03},
    label="non-convex",
  ),
}

_ENCODER = Option(
  "encoder",
  "base",
  "size of the encoder of the ..._distilbert tasks, drawn at random; not with "
  "pretrained"
  + "".join(f"\n{name:5}  {size.help}" for name, size in text.SIZES.items()),
  tuple(text.SIZES),
)
_VOCAB_SIZE = Hyperparameter(
  "vocab_size",
  30522,
  "most tokens of the vocabulary, made of the training texts; not with "
  "pretrained",
  "[1, inf)",
  is_static=True,
)
_MAX_LENGTH = Hyperparameter(
  "max_length",
  64,
  "tokens of a text: longer ones are cut, shorter ones filled up; the paper of "
  "Delta-SGD has 512",
  "[3, inf)",
  is_static=True,
)


def _texts(dataset: str, help: str, test_every: int, label: str) -> TaskChoice:
  every = Hyperparameter(
    "test_every",
    test_every,
    "one test example of so many is used, from the first",
    "[1, inf)",
    is_static=True,
  )
  return TaskChoice(
    functools.partial(text.load, dataset=dataset),
    f"{help}, DistilBERT or BERT",
    (_MAX_LENGTH, every, _ENCODER, _VOCAB_SIZE),
    takes=("data_dir", "pretrained"),
    splits=("validation", "test"),
    label=f"{label} DistilBERT",
  )


# The authors of the Delta-SGD paper test on every tenth text of DBpedia.
TEXTS: dict[str, TaskChoice] = {
  "agnews_distilbert": _texts(
    "ag_news", "AG News by title and description", 1, "AG News"
  ),
  "dbpedia_distilbert": _texts(
    "dbpedia", "DBpedia's 14 classes by content", 10, "DBpedia"
  ),
}

# Those whose name is a data set's and a model's.
_JOINED: dict[str, TaskChoice] = {
  **{
    f"{dataset}_{model}": _images(dataset, model)
    for dataset in images.DATASETS
    for model in images.MODELS
    if images.exists(dataset, model)
  },
  **{f"npz_{model}": _of_file(model) for model in images.MODELS},
}
TASKS: dict[str, TaskChoice] = {
  "digits": dataclasses.replace(_images("digits", "mlp"), label="digits"),
  **_JOINED,
  **TEXTS,
  **OTHERS,
}
register(TASKS)


def by_own_name() -> dict[str, TaskChoice]:
  """The tasks whose name is not made of a data set and a model."""
  return {n: each for n, each in TASKS.items() if n not in _JOINED}


def load(spec: Any) -> Task:
  """Loads the task of a specification.

  Raises:
    ValueError: for data that cannot be read.
  """
  choice = TASKS[spec.task.name]
  given = {name: getattr(spec, name) for name in choice.takes}
  task = choice.factory(**spec.task.static, **given)
  if spec.l2:
    task = task._replace(loss_fn=objectives.l2(task.loss_fn, spec.l2))
  return task
