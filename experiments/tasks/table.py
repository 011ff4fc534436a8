"""Tasks of predicting columns of a user's own table.

The table is a CSV or Parquet file, or a folder that Hugging Face's `datasets`
has saved. `--label_column` is predicted from all other columns;
`--client_column` says whose row it is, `--time_column` which are the latest.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from experiments.tasks import base, classification
from experiments.tasks.base import Task, TaskEntry
from experiments.tasks.images import Model
from fedjax_opt import models, objectives
from fedjax_opt.checks import fields
from fedjax_opt.checks.errors import reworded_errors
from fedjax_opt.checks.values import check_choice, listed
from fedjax_opt.data.clients import ClientData
from fedjax_opt.datasets import tables
from fedjax_opt.datasets.tables import KINDS, Table
from fedjax_opt.registry import documented
from fedjax_opt.scores import SCORES

_MAX_COLUMNS = 20  # Of those that a message names.
_ONE_LETTER = {"t": "true", "f": "false", "y": "yes", "n": "no"}
# Flags that name columns, and what is measured.
COLUMN_FLAGS = (
  "label_column",
  "client_column",
  "time_column",
  "ignore_columns",
  "metrics",
)


# Each is made from the number of outputs.
MODELS: dict[str, Model] = {
  "linear": Model(
    "logistic regression of classes, linear regression of numbers",
    models.LinearModel,
    "linear model",
    is_convex=True,
  ),
  "mlp": Model(
    "one hidden layer of 100 ReLU units",
    lambda outputs: models.MLP((100,), outputs),
    "MLP",
  ),
}


@fields.checked(test_fraction="(0, 1)", predict=fields.one_of("auto", *KINDS))
def load(
  data_file: str,
  model: str,
  label_column: str,
  client_column: str | None,
  time_column: str | None,
  ignore_columns: str | None,
  metrics: str | None,
  validation_fraction: float | None,
  validation_seed: int | None,
  test_fraction: float = base.TEST_FRACTION,
  predict: str = "auto",
  class_weights: Literal["none", "balanced"] = "none",
) -> Task:
  """Reads the table, and makes a model of `MODELS` for it.

  Inputs are standardized by the training rows alone, not by rows that are held
  out for validation or tests; but by those that clients hold out later.

  Args:
    data_file: path of the table; see `tables.read_table`.
    model: key of `MODELS`.
    label_column: the column that is predicted; several with commas.
    client_column: column of each row's client; None for no such column.
    time_column: column whose latest rows are the test part; None to draw it.
    ignore_columns: columns that are left out, with commas.
    metrics: keys of `SCORES`, with commas, to measure beside the usual ones.
    validation_fraction: share of the training rows held out for validation.
    validation_seed: the seed of that draw.
    test_fraction: fraction of the rows that is for tests, the same rows for all
      seeds: the latest ones if there is a time_column, else drawn at random.
    predict: what label_column holds
      - auto: classes, if it is one column of words, of true and false, or of at
        most 20 whole numbers; labels, if it is several columns of 0 and 1; else
        numbers
      - classes: the class of each row
      - numbers: numbers, for regression
      - labels: several columns of 0 and 1
    class_weights: weights of classes in the loss: none, or balanced, by which
      all classes count alike.

  Raises:
    ValueError: if the table does not hold what it must.
  """
  with base.reading(data_file) as path, reworded_errors(**_FLAG_OF_ARGUMENT):
    table = tables.read_table(
      path,
      base.split_names(label_column),
      client=client_column,
      time=time_column,
      ignore=base.split_names(ignore_columns),
      kind=None if predict == "auto" else predict,
    )
    scores = _scores(metrics, table.kind)
    train_table, test_table = table.split(test_fraction, base.SEED_OF_TEST)
    pool, clients, validation = train_table.examples, None, None
    client_ids, client_names = train_table.client_ids, ()
    if client_ids is not None:
      clients = ClientData.from_client_ids(pool, client_ids)
      client_names = tuple(map(str, np.unique(client_ids)))
    training = {"train": pool, "clients": clients}
    if validation_fraction:
      if clients is not None and clients.sizes.max() < 2:
        raise ValueError(
          f"client={client_column!r}: each client has one row; with "
          "validation_fraction above 0, clients need two or more"
        )
      with reworded_errors(fraction="validation_fraction"):
        training, validation = base.split_examples(
          clients, pool, validation_fraction, validation_seed
        )
  training, train_rows, (validation, test) = _standardized(
    training, validation, test_table.examples
  )
  head = _head(table, train_rows["y"], class_weights)
  apply, init = classification.network(
    MODELS[model].make(len(table.names)), train_rows
  )
  predict = lambda params, batch: head.predictions(apply(params, batch, None))
  return classification.task(
    apply,
    init,
    training["train"],
    test,
    len(table.names) if table.kind == "classes" else None,
    loss=head.loss,
    is_right=head.is_right,
    evaluated={"outputs": predict, "scores": scores},
    clients=training["clients"],
    validation=validation,
    notes=_notes(table, test_table, time_column),
    client_names=client_names,
    label_names=table.names if table.kind == "classes" else (),
  )


# The arguments of the functions that read a table -> the flags that give them.
_FLAG_OF_ARGUMENT = {
  "label": "label_column",
  "kind": "predict",
  "client": "client_column",
  "time": "time_column",
  "ignore": "ignore_columns",
  "fraction": "test_fraction",
}


def _standardized(training, validation, test):
  """Examples whose inputs have mean 0 and deviation 1 over the training rows.

  Args:
    training: the fields `train` and `clients` of a task.
    validation: examples, or None.
    test: examples.

  Returns:
    The fields; the training rows; and the validation and test examples.
  """
  clients: ClientData | None = training["clients"]
  pool = training["train"] if clients is None else clients.examples
  rows = slice(None) if clients is None else np.unique(clients.owned_rows())
  train = {name: values[rows] for name, values in pool.items()}
  train, pool, *heldout = tables.standardize(train, pool, validation, test)
  if clients is not None:
    clients = dataclasses.replace(clients, examples=pool)
  return {"train": pool, "clients": clients}, train, heldout


# The heads, by what is predicted.


class _Head(NamedTuple):
  """A head: what is made of the model's outputs [B, k].

  Attributes:
    loss: `(outputs, y) -> [B]`.
    is_right: `(outputs, y) -> [B]`, the accuracy; None for numbers.
    predictions: `outputs -> predictions`, in the unit of y.
  """

  loss: Callable[[jax.Array, jax.Array], jax.Array]
  is_right: Callable[[jax.Array, jax.Array], jax.Array] | None
  predictions: Callable[[jax.Array], jax.Array] = lambda outputs: outputs


def _head(table: Table, y: np.ndarray, class_weights: str) -> _Head:
  """The head for a kind of label.

  Args:
    table: says what is predicted.
    y: labels of the training rows.
    class_weights: 'none' or 'balanced'.

  Raises:
    ValueError: for weights of classes if there are no classes.
  """
  if class_weights != "none" and table.kind != "classes":
    raise ValueError(
      f"class_weights={class_weights!r}: is for classes, and here {table.kind} "
      "are predicted; leave class_weights out"
    )
  if table.kind == "classes":
    counts = np.bincount(y, minlength=len(table.names))
    of_class = np.ones(len(counts))
    if class_weights == "balanced":
      of_class = len(y) / (np.sum(counts > 0) * np.maximum(counts, 1))
    weights = jnp.asarray(of_class, jnp.float32)
    return _Head(
      lambda outputs, y: weights[y] * objectives.cross_entropy(outputs, y),
      lambda outputs, y: jnp.argmax(outputs, -1) == y,
    )
  if table.kind == "labels":
    losses = optax.sigmoid_binary_cross_entropy
    return _Head(
      lambda outputs, y: jnp.mean(losses(outputs, y), -1),
      lambda outputs, y: jnp.mean((outputs > 0) == (y > 0.5), -1),
    )
  # The model predicts numbers of deviation 1, so one rate suits all units.
  y = y.astype(np.float64)
  mean, std = (jnp.asarray(stat, jnp.float32) for stat in (y.mean(0), y.std(0)))
  std = jnp.where(std > 0, std, 1)
  return _Head(
    lambda outputs, y: jnp.mean((outputs - (y - mean) / std) ** 2, -1),
    None,
    lambda outputs: mean + std * outputs,
  )


def _scores(metrics: str | None, kind: str) -> dict[str, Callable[..., Any]]:
  """The scores that are measured, by name.

  Raises:
    ValueError: for a score that is unknown, or not for what is predicted.
  """
  scores = {}
  for name in base.split_names(metrics):
    check_choice("metrics", name, SCORES)
    if kind not in SCORES[name].kinds:
      fitting = [n for n, score in SCORES.items() if kind in score.kinds]
      raise ValueError(
        f"metrics={name!r}: does not measure {kind}, which this task "
        f"predicts; must be among {', '.join(fitting)}"
      )
    scores[name] = SCORES[name].of
  return scores


def _notes(table: Table, test: Table, time: str | None) -> tuple[str, ...]:
  """Lines on what was made of the table, for the output of a run."""
  origin = "drawn at random" if time is None else f"the latest by {time}"
  inputs, num_rows = table.columns, len(table.examples["x"])
  texts = dict.fromkeys(column.partition("=")[0] for column in inputs)
  input_names = frozenset(inputs)
  texts = [name for name in texts if name not in input_names]
  numbers = list(itertools.compress(inputs, table.is_number))
  values = itertools.compress(table.examples["x"].T, table.is_number)
  identifiers = [
    name
    for name, column in zip(numbers, values, strict=True)
    if _tells_rows_apart(column)
  ]
  return (
    f"table: {num_rows:,} rows; numbers: {_first(numbers)}; "
    f"texts: {_first(texts)}; {len(inputs)} inputs",
    f"predicts {table.kind} ({_first(table.names)}); --predict changes this",
    f"test part: {len(test.examples['x']):,} rows, {origin}",
    *(
      f"note: {name} has another whole number in each row; if it only "
      f"identifies rows, leave it out: --ignore_columns={name}"
      for name in identifiers
    ),
    *(
      f"note: {listed(names, 'and')} are different classes; if they mean the "
      "same, write them alike"
      for names in _alike(table.names if table.kind == "classes" else ())
    ),
  )


def _alike(names: Iterable[str]) -> list[list[str]]:
  """Groups of names that may mean the same, such as T, True and true."""
  groups: dict[str, list[str]] = {}
  for name in names:
    word = name.casefold()
    groups.setdefault(_ONE_LETTER.get(word, word), []).append(name)
  return [group for group in groups.values() if group[1:]]


def _tells_rows_apart(column: np.ndarray) -> bool:
  """Whether a column has another whole number in each row. [N] float."""
  is_whole = bool(np.all(column == np.round(column)))
  return is_whole and len(np.unique(column)) == len(column)


def _columns(flag: str, flag_values: Mapping[str, Any]) -> str:
  """The columns of the file, if a flag that names one is missing."""
  if flag != "label_column":
    return ""
  try:
    frame = tables.read_frame(flag_values["data_file"])
  except (ValueError, OSError, ImportError):
    return ""
  names = [str(name).strip() for name in frame.columns]
  if len(names) > _MAX_COLUMNS:
    names[_MAX_COLUMNS:] = ["..."]
  return f"; the columns are {', '.join(names)}"


def _first(columns: Sequence[str]) -> str:
  """At most six names, with commas."""
  return ", ".join(columns[:6]) + ", ..." * (len(columns) > 6) or "none"


# The entries of the registry.

TASKS: dict[str, TaskEntry] = {
  f"table_{name}": TaskEntry(
    functools.partial(load, model=name),
    f"your own table in data_file, {model.help}",
    documented(
      load, "test_fraction", "predict", class_weights={"may_differ": True}
    ),
    takes=(
      "data_file",
      *COLUMN_FLAGS,
      "validation_fraction",
      "validation_seed",
    ),
    has_clients=lambda flag_values: flag_values["client_column"] is not None,
    needs={
      "data_file": (
        "a .csv, .csv.gz, .tsv or .parquet file, or a folder of `datasets`"
      ),
      "label_column": "the name of the column that is predicted",
    },
    remark=_columns,
    is_convex=model.is_convex,
    label=f"table, {model.label}",
  )
  for name, model in MODELS.items()
}
