"""The flags of the task."""

import math
from typing import Any

from experiments import tasks
from experiments.flags import command_line
from experiments.flags.registries import Flags, Kind
from experiments.tasks import images

TASK = Kind("task", tasks.TASKS, listing="those that --list=tasks shows")


def define() -> None:
  """Defines `--task`, and the flags of some tasks."""
  entries = {name: each.help for name, each in images.DATASETS.items()}
  entries |= {f"..._{name}": each.help for name, each in images.MODELS.items()}
  entries |= {name: each.help for name, each in tasks.OTHERS.items()}
  lines = "".join(f"\n{name:13}  {help}" for name, help in entries.items())
  with command_line.group("Task", "task"):
    command_line.text(
      "task",
      "digits",
      "Data set and model, joined as in mnist_cnn (digits alone is "
      "digits_mlp), or a task with a name of its own, whose clients come with "
      f"its data.{lines}",
    )
    command_line.text(
      "data_dir",
      None,
      "Folder of the data. Default: $TFDS_DATA_DIR or ~/tensorflow_datasets; "
      "for fmri $NILEARN_DATA or ~/nilearn_data; what it lacks is downloaded. "
      "For femnist10 and femnist62 it must be given: the folder of the sqlite "
      "files of TensorFlow Federated or FedJAX.",
    )
    TASK.define()
    command_line.number(
      "l2",
      0.0,
      "Adds l2 / 2 ||w||^2, over all parameters, to each client's loss; not to "
      "the losses that are reported.",
    )


def resolve(flags: Flags) -> dict[str, Any]:
  """The flags of the chosen task, with its defaults filled in.

  Raises:
    ValueError: for an unknown task or a flag that is not the task's.
  """
  name = flags["task"]
  TASK.check(name)
  TASK.check_others(flags, name)
  options = TASK.read(flags, name).static
  if not 0 <= flags["l2"] < math.inf:
    raise ValueError(f"l2={flags['l2']:g}: must be in [0, inf)")
  if flags["data_dir"] is not None and not tasks.TASKS[name].reads_data:
    raise ValueError(
      f"data_dir={flags['data_dir']!r}: task {name} needs no data; leave "
      "data_dir out"
    )
  return options
