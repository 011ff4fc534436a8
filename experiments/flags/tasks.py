"""The flags of the task."""

import math
from typing import Any

from experiments import tasks
from experiments.flags import command_line
from experiments.flags.registries import Flags, Kind
from experiments.tasks import images, npz, text
from fedjax_opt.registry import Paths

_TRAINABLE = Paths(
  "trainable",
  None,
  "Train only these leaves of the model, such as output or "
  "layers_1,output/kernel: the starts of their paths, between commas. "
  "Messages have these only; l2 counts these only. Default: all.",
)
TASK = Kind("task", tasks.TASKS, listing="those that --list=tasks shows")


def define() -> None:
  """Defines `--task`, and the flags of some tasks."""
  entries = {name: each.help for name, each in images.DATASETS.items()}
  entries["npz"] = "your own data, see data_file"
  entries |= {f"..._{name}": each.help for name, each in images.MODELS.items()}
  named = tasks.TEXTS | tasks.OTHERS
  entries |= {name: each.help for name, each in named.items()}
  lines = "".join(f"\n{name:13}  {help}" for name, help in entries.items())
  with command_line.group("Task", "task"):
    command_line.text(
      "task",
      "digits",
      "Data set and model, joined as in mnist_cnn (digits alone is "
      "digits_mlp), or a task with a name of its own; the clients of those "
      f"from lasso on come with their data.{lines}",
    )
    command_line.text(
      "data_dir",
      None,
      "Folder of the data. Default: $TFDS_DATA_DIR or ~/tensorflow_datasets, "
      "where TFDS prepares what is lacking, if TensorFlow is installed; for "
      "fmri $NILEARN_DATA or ~/nilearn_data; what it lacks is downloaded. "
      "For femnist10 and femnist62 it must be given: the folder of the sqlite "
      "files of TensorFlow Federated or FedJAX.",
    )
    command_line.text(
      "data_file",
      None,
      "File of the npz_... tasks, in NumPy's .npz format, with arrays x and y. "
      "x [N, H, W, channels], [N, H, W], or for logistic and mlps [N, d]: "
      "uint8 is divided by 255, other types are taken as they are. y [N]: "
      "labels, whole numbers from 0. It may also hold client_ids [N], the "
      "client of each example (without, partition divides them); x_test and "
      "y_test (without, see test_fraction); num_classes (without, the largest "
      "label plus 1).",
    )
    command_line.text(
      "pretrained",
      None,
      "Folder of an encoder in Hugging Face's layout, from which the "
      "..._distilbert tasks start: config.json (model_type distilbert or "
      "bert), model.safetensors, and tokenizer.json or vocab.txt. The head is "
      "DistilBERT's; it is taken from there if it is for as many classes, else "
      "drawn at random. Default: the whole encoder is drawn at random, see "
      "encoder and vocab_size.",
    )
    TASK.define()
    command_line.number(
      "l2",
      0.0,
      "Adds l2 / 2 ||w||^2, over all parameters, to each client's loss; not to "
      "the losses that are reported.",
    )
    command_line.text(_TRAINABLE.name, _TRAINABLE.default, _TRAINABLE.help)


def resolve(flags: Flags) -> dict[str, Any]:
  """The flags of the chosen task, with its defaults filled in.

  Raises:
    ValueError: for an unknown task or a flag that is not the task's.
  """
  name = flags["task"]
  TASK.check(name)
  TASK.check_others(flags, name)
  options = TASK.read(flags, name).static
  choice = tasks.TASKS[name]
  if not 0 <= flags["l2"] < math.inf:
    raise ValueError(f"l2={flags['l2']:g}: must be in [0, inf)")
  trainable(flags)
  if flags["data_dir"] is not None and not choice.reads_data:
    what = "reads data_file" if choice.reads_file else "needs no data"
    raise ValueError(
      f"data_dir={flags['data_dir']!r}: task {name} {what}; leave data_dir out"
    )
  if flags["pretrained"] is not None and not choice.reads_pretrained:
    raise ValueError(
      f"pretrained={flags['pretrained']!r}: task {name} has no encoder; give "
      f"--task={next(iter(tasks.TEXTS))}, or leave pretrained out"
    )
  if choice.reads_file:
    return options | npz.resolve(flags)
  if flags["data_file"] is not None:
    raise ValueError(
      f"data_file={flags['data_file']!r}: task {name} has data of its own; "
      "give --task=npz_mlp or another npz task, or leave data_file out"
    )
  if choice.reads_pretrained:
    return options | text.resolve(flags)
  return options


def trainable(flags: Flags) -> tuple[str, ...]:
  """The paths of the leaves that are trained; () for all.

  Raises:
    ValueError: if one is empty.
  """
  given = flags.get("trainable")
  if given is None:
    return ()
  _TRAINABLE.check(given)
  return _TRAINABLE.of(given)
