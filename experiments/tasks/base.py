"""Tasks: the entry of one in the registry, and the record that it loads."""

import contextlib
import dataclasses
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from fedjax_opt import multi_process
from fedjax_opt.base import EvaluateFn, FeaturesFn, LossFn, Params
from fedjax_opt.checks.memory import size_text
from fedjax_opt.data import hold_out
from fedjax_opt.data.clients import ClientData
from fedjax_opt.evaluation import PerExampleFn
from fedjax_opt.files.folders import user_path
from fedjax_opt.registry import Entry
from fedjax_opt.results.selection import Criterion

# Reading a larger file takes seconds, which a line announces.
_MAX_SILENT_BYTES = 100_000_000
# The test part of a user's own data, if they have none; the same for all seeds.
TEST_FRACTION, SEED_OF_TEST = 0.2, 0


class Task(NamedTuple):
  """Data, model, loss and metrics.

  Attributes:
    train: pooled training examples, {"x": [N, ...], "y": [N]}.
    test: pooled test examples, or None.
    init: random key -> initial model.
    loss_fn: `(params, batch, rng) -> [B]`.
    per_example: `(params, batch) -> {name: [B]}`, metrics of each example.
    evaluate: metrics of a model.
    criteria: examples on which settings are chosen -> how they are compared:
      'validation', 'test', 'train', 'support', and 'truth' if it is known.
    num_classes: labels are below it; None if "y" is no label.
    features_fn: `(params, batch, rng) -> [B, d]`, or None if there are none.
    validation: pooled validation examples, if the task draws them; else
      `experiments.single_run.loading` holds them out.
    clients: the population, if it comes with the data; then `train` is unused.
    panels: metrics to draw; None for the usual ones.
    trainable: paths of the leaves that are trained, if the specification does
      not say; () for all.
    notes: lines on what was done to the data, for the output of a run.
    client_names: the names of `clients`; () if they have none.
    label_names: the names of the labels; () if they have none.
  """

  train: dict[str, np.ndarray]
  test: dict[str, np.ndarray] | None
  init: Callable[[jax.Array], Params]
  loss_fn: LossFn
  per_example: PerExampleFn
  evaluate: EvaluateFn
  criteria: Mapping[str, Criterion]
  num_classes: int | None = None
  features_fn: FeaturesFn | None = None
  validation: dict[str, np.ndarray] | None = None
  clients: ClientData | None = None
  panels: tuple[str, ...] | None = None
  trainable: tuple[str, ...] = ()
  notes: tuple[str, ...] = ()
  client_names: tuple[str, ...] = ()
  label_names: tuple[str, ...] = ()

  @property
  def has_accuracy(self) -> bool:
    """Whether an accuracy is measured; also of several labels of 0 or 1."""
    return any(c.metric.endswith("_accuracy") for c in self.criteria.values())


@dataclasses.dataclass(frozen=True)
class TaskEntry(Entry):
  """A task by name; its factory reads or makes the data.

  Attributes:
    takes: fields of the specification that the factory takes by name, beside
      its hyperparameters: 'data_dir', 'data_file', 'pretrained', 'eval_every'.
    needs: the fields in `takes` that must be given -> what each must be.
    remark: function from a flag that is missing, and the values of all flags,
      to what a file says about it; "" if it says nothing.
    has_clients: whether its clients come with the data, so that there is
      nothing to divide; a function of the flags' values if a file decides it.
    resolve: function from the values of all flags, None where not given, to the
      hyperparameters that a file decides. Raises ValueError.
    is_convex: whether the loss is convex in the model.
    splits: sets of examples on which settings can be chosen, the default first.
    draws_validation: whether it draws its own validation examples.
    regularizer: the regularizer of composite algorithms, if none is chosen.
    defaults: flag -> default, for flags with a default of this task; `strength`
      belongs to its own regularizer.
  """

  takes: tuple[str, ...] = ("data_dir",)
  needs: Mapping[str, str] = dataclasses.field(default_factory=dict)
  remark: Callable[[str, Mapping[str, Any]], str] = lambda flag, values: ""
  has_clients: bool | Callable[[Mapping[str, Any]], bool] = False
  resolve: Callable[[Mapping[str, Any]], dict[str, Any]] = lambda _: {}
  is_convex: bool = False
  splits: tuple[str, ...] = ("validation", "test", "train")
  draws_validation: bool = False
  regularizer: str | None = None
  defaults: Mapping[str, float] = dataclasses.field(default_factory=dict)

  def check_given(self, name: str, flag_values: Mapping[str, Any]) -> None:
    """Checks that none of these flags is missing.

    Args:
      name: the task's name.
      flag_values: the values of some flags; None where not given.

    Raises:
      ValueError: naming the flag, and what it must be.
    """
    for flag, requirement in self.needs.items():
      if flag in flag_values and not (flag_values[flag] or "").strip():
        raise ValueError(
          f"{flag}: task {name} needs it; must be {requirement}"
          f"{self.remark(flag, flag_values)}"
        )

  def brings_clients(self, flag_values: Mapping[str, Any]) -> bool:
    """Whether its clients come with the data, given the flags' values.

    Raises:
      ValueError: if a file decides it, and cannot be read.
    """
    has = self.has_clients
    return has(flag_values) if callable(has) else has


def split_examples(
  clients: ClientData | None,
  pool: dict[str, np.ndarray],
  fraction: float,
  seed: int,
  in_order: bool = False,
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
  """Divides examples, those of each client if clients are given.

  Args:
    clients: the data's own clients; None if the pool is divided later.
    pool: the training examples, {name: [N, ...]}.
    fraction: the part of the examples that is held out of training.
    seed: the seed of the draw.
    in_order: whether examples held out of clients are in the pool's order, each
      once, instead of one client after the other.

  Returns:
    The examples for training, as the fields `train` and `clients` of a task;
    and the examples held out.
  """
  if clients is None:
    training, heldout = hold_out(pool, fraction, seed)
    return {"train": training, "clients": None}, heldout
  training, heldout = clients.split(fraction, seed)
  rows = heldout.owned_rows()
  rows = np.unique(rows) if in_order else rows
  examples = {n: np.asarray(v)[rows] for n, v in heldout.examples.items()}
  return {"train": pool, "clients": training}, examples


def split_names(text: str | None) -> list[str]:
  """Names between commas."""
  return [name.strip() for name in text.split(",")] if text else []


@contextlib.contextmanager
def reading(file: str) -> Iterator[str]:
  """The path of the data file; errors inside name it.

  If the file is large, a line on stderr says so, because nothing else is shown
  until it is read.
  """
  path = user_path(file)
  size = path.stat().st_size if path.is_file() else 0
  if size >= _MAX_SILENT_BYTES and multi_process.is_first_process():
    print(f"reading {file}, {size_text(size)} ...", file=sys.stderr)
  try:
    yield str(path)
  except (TypeError, ValueError) as error:
    text = str(error).removeprefix(str(path)).lstrip(": ")
    raise ValueError(f"data_file={file!r}: {text}") from None
