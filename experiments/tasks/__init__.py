"""The tasks by name, with one file for each family.

`TASKS` names them for the command line. A family's file ends with its entries;
those of images combine `images.DATASETS` and `images.MODELS`, so a new data set
or model is one entry.
"""

from typing import Any

from experiments.tasks import (
  composite,
  images,
  nonconvex,
  own_images,
  shakespeare,
  table,
  text,
)
from experiments.tasks.base import Task, TaskEntry
from fedjax_opt import objectives
from fedjax_opt.registry import register

__all__ = ["TASKS", "Task", "TaskChoice", "load_task"]

# Tasks whose name joins the names of a data set and a model.
_JOINED = {**images.TASKS, **own_images.TASKS}
TASKS: dict[str, TaskEntry] = {
  "digits": images.DIGITS,
  **_JOINED,
  **text.TASKS,
  **composite.TASKS,
  **shakespeare.TASKS,
  **nonconvex.TASKS,
  **table.TASKS,
}
register(TASKS)


def by_own_name() -> dict[str, TaskEntry]:
  """The tasks whose name is not made of a data set and a model."""
  return {n: entry for n, entry in TASKS.items() if n not in _JOINED}


def load_task(spec: Any) -> Task:
  """Loads the task of a specification.

  Raises:
    ValueError: for data that cannot be read, or that no flag names.
  """
  arguments = {name: getattr(spec, name) for name in spec.task.entry.takes}
  spec.task.entry.check_given(spec.task.name, arguments)
  if spec.select_on == "clients" and "validation_fraction" in arguments:
    arguments["validation_fraction"] = 0.0  # Each client has a part of its own.
  task = spec.task.make({}, **arguments)
  if spec.l2:
    task = task._replace(loss_fn=objectives.l2(task.loss_fn, spec.l2))
  return task
