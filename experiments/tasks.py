"""The tasks by name, and their flags."""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from absl import flags

from experiments import (
  command_line,
  composite_tasks,
  image_tasks,
  nonconvex_task,
)
from experiments.task import Task
from fedjax_opt import objectives
from fedjax_opt.data.augmentation import AUGMENTATIONS
from fedjax_opt.data.synthetic import VARIANTS
from fedjax_opt.hyperparameters import (
  Hyperparameter,
  check_belongs,
  check_choice,
)
from fedjax_opt.models.layers import NORMS


class Entry(NamedTuple):
  """A task that can be chosen by name.

  Attributes:
    load: flags -> task; reads or makes the data.
    help: one line; "" for one that need not be listed.
    has_clients: whether its clients come with the data, so that there is
      nothing to divide.
    regularizer: of composite algorithms, if none is chosen.
    options: names of the flags that belong to it, with their defaults.
    is_convex: whether the loss is, in the model.
    client_lr: if none is given; None for that of the client's rule.
  """

  load: Callable[[Mapping[str, Any]], Task]
  help: str = ""
  has_clients: bool = False
  regularizer: str | None = None
  options: tuple[tuple[str, Any], ...] = ()
  is_convex: bool = False
  client_lr: float | None = None


def _images(dataset: str, model: str) -> Entry:
  options = image_tasks.options(model)

  def load(flag):
    own = {name: flag[name] for name, _ in options}
    return image_tasks.load(dataset, model, flag["data_dir"], **own)

  return Entry(load, options=options, is_convex=model == "logistic")


_VARIANT, _LARGE, _SMALL = (
  ("variant", "I"),
  ("zero_threshold", 1e-2),
  ("zero_threshold", 1e-4),
)

TASKS: dict[str, Entry] = {
  "digits": _images("digits", "mlp"),
  **{
    f"{dataset}_{model}": _images(dataset, model)
    for dataset in image_tasks.DATASETS
    for model in image_tasks.MODELS
    if image_tasks.exists(dataset, model)
  },
  "lasso": Entry(
    composite_tasks.lasso,
    "sparse least squares, synthetic",
    has_clients=True,
    regularizer="l1",
    options=(_VARIANT, _LARGE),
    is_convex=True,
    client_lr=3e-4,
  ),
  "low_rank": Entry(
    composite_tasks.low_rank,
    "low-rank least squares, synthetic",
    has_clients=True,
    regularizer="nuclear",
    options=(_VARIANT, _LARGE),
    is_convex=True,
    client_lr=3e-4,
  ),
  "fmri": Entry(
    composite_tasks.haxby,
    "horse or face from brain scans (Haxby), logistic regression",
    has_clients=True,
    regularizer="l1",
    options=(_SMALL,),
    is_convex=True,
  ),
  "femnist10": Entry(
    composite_tasks.femnist10,
    "FEMNIST's digits by writer, logistic regression",
    has_clients=True,
    regularizer="l2_ball",
    is_convex=True,
  ),
  "femnist62": Entry(
    composite_tasks.femnist62,
    "FEMNIST's characters by writer, 784-200-200-62 network",
    has_clients=True,
    regularizer="l1_ball",
  ),
  "nonconvex": Entry(
    nonconvex_task.nonconvex,
    "double wells, clients that differ by zeta, synthetic",
    has_clients=True,
    options=(("zeta", 0.1),),
    client_lr=0.03,
  ),
}

_THRESHOLD = Hyperparameter(
  "zero_threshold", 1e-2, "below it a coefficient counts as zero", "(0, inf)"
)
_ZETA = Hyperparameter("zeta", 0.1, "how far Hessians differ", "[0, inf)")

# The flags that belong to some tasks, and what they accept.
_KINDS: dict[str, Any] = {
  "variant": VARIANTS,
  "zero_threshold": _THRESHOLD,
  "zeta": _ZETA,
  "augmentation": ("none", *AUGMENTATIONS),
  "norm": NORMS,
}


def define_flags() -> None:
  """Defines `--task` and the flags of some tasks."""
  entries = {n: images.help for n, images in image_tasks.DATASETS.items()}
  entries |= {f"..._{n}": text for n, text in image_tasks.MODELS.items()}
  entries |= {name: entry.help for name, entry in TASKS.items() if entry.help}
  lines = "".join(f"\n{name:13}  {text}" for name, text in entries.items())
  with command_line.group("Task"):
    flags.DEFINE_string(
      "task",
      "digits",
      "Data set and model, joined as in mnist_cnn (digits alone is "
      "digits_mlp), or a task with a name of its own, whose clients come with "
      f"its data.{lines}",
    )
    flags.DEFINE_string(
      "data_dir",
      None,
      "Folder of the data. Default: $TFDS_DATA_DIR or ~/tensorflow_datasets; "
      "for fmri $NILEARN_DATA or ~/nilearn_data; what it lacks is downloaded. "
      "For femnist10 and femnist62 it must be given: where the sqlite files of "
      "TensorFlow Federated or FedJAX are.",
    )
    flags.DEFINE_string(
      "variant",
      None,
      "Which problem, of 1024 coefficients or a 32 x 32 matrix (lasso I, "
      f"low_rank I).{_variants()}",
    )
    flags.DEFINE_float(
      "zero_threshold",
      None,
      "Coefficients and singular values below it count as zero in f1, density "
      "and rank (lasso 0.01, low_rank 0.01, fmri 0.0001).",
    )
    flags.DEFINE_float(
      "zeta",
      None,
      "How far clients' Hessians differ, in the 2-norm, in [0, inf) (nonconvex "
      "0.1).",
    )

    flags.DEFINE_string(
      "augmentation",
      None,
      "What is done to images at random in each local step, anew for each: "
      "none, or crop_flip (crops after padding by 4 pixels, half of them "
      "mirrored). For tasks of images. Default: none.",
    )
    flags.DEFINE_string(
      "norm",
      None,
      "Normalization layers of the ..._resnet tasks: group (8 groups of "
      "channels), none, or batch, whose running statistics are averaged as "
      "the weights are (for algorithms with a client rule, and full batches). "
      "Default: group.",
    )
    flags.DEFINE_float(
      "l2",
      0.0,
      "Adds l2 / 2 ||w||^2, over all parameters, to each client's loss; not to "
      "the losses that are reported.",
    )


def _variants() -> str:
  """The variants, one on each line, for the help."""
  return "".join(
    f"\n{name:3}  {size.num_nonzero} nonzero or rank {size.rank}; "
    f"{size.num_clients} clients of {size.examples_per_client} examples"
    for name, size in VARIANTS.items()
  )


def resolve(flag: Mapping[str, Any]) -> dict[str, Any]:
  """The flags of the chosen task, with its defaults filled in.

  Raises:
    ValueError: for an unknown task or a flag that is not the task's.
  """
  check_choice("task", flag["task"], TASKS)
  for name in _KINDS:
    owners = [task for task in TASKS if name in dict(TASKS[task].options)]
    if flag[name] is not None:
      _check_belongs(name, flag[name], flag["task"], owners)
  options = {
    name: default if flag[name] is None else flag[name]
    for name, default in TASKS[flag["task"]].options
  }
  for name, value in options.items():
    kind = _KINDS[name]
    if isinstance(kind, Hyperparameter):
      kind.check(value)
    else:
      check_choice(name, value, kind)
  if not 0 <= flag["l2"] < math.inf:
    raise ValueError(f"l2={flag['l2']:g}: must be in [0, inf)")
  no_data = ("lasso", "low_rank", "nonconvex")
  if flag["data_dir"] is not None and flag["task"] in no_data:
    raise ValueError(
      f"data_dir={flag['data_dir']!r}: task {flag['task']} needs no data; "
      "leave data_dir out"
    )
  return options


def _check_belongs(name: str, value: Any, task: str, owners: list[str]) -> None:
  """That the flag is the task's; those of many tasks are told in words."""
  if name == "augmentation" and task not in owners:
    raise ValueError(
      f"augmentation={value!r}: task {task} does not have images that could "
      "be cropped; leave augmentation out"
    )
  if name == "norm" and task not in owners:
    raise ValueError(
      f"norm={value!r}: the model of task {task} has no place for "
      "normalization layers; those of the ..._resnet tasks have"
    )
  check_belongs(name, value, "task", task, owners)


def load(flag: Mapping[str, Any]) -> Task:
  """Loads the chosen task.

  Args:
    flag: values of all flags, those of the task resolved.

  Raises:
    ValueError: for data that cannot be read.
  """
  task = TASKS[flag["task"]].load(flag)
  if flag["l2"]:
    task = task._replace(loss_fn=objectives.l2(task.loss_fn, flag["l2"]))
  return task
