"""Tables as pools of examples: CSV, Parquet, data frames, scikit-learn's data.

One column is predicted, one may be the client of each row, and one its time.
The others are the input. Text becomes one column of 0 and 1 for each word.
Numbers do not change until `standardize`.
"""

import collections
import contextlib
import csv
import gzip
import os
import typing
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np

from fedjax_opt.checks import errors, memory
from fedjax_opt.checks.fields import Field, checked, mapping_of
from fedjax_opt.checks.values import (
  brief,
  check_choice,
  check_instance,
  check_strings,
  check_word,
)
from fedjax_opt.data import hold_out
from fedjax_opt.datasets import table_columns
from fedjax_opt.datasets.files import saved_data_set
from fedjax_opt.files import csv_files
from fedjax_opt.files.folders import user_path

# The memory of a parsed table: about so many times the bytes of its file, and
# if it was packed, so many bytes for each cell.
_MEMORY_OF_PARQUET = 10
_BYTES_OF_CELL = 16
_Kind = Literal["classes", "numbers", "labels"]
KINDS = typing.get_args(_Kind)


def _is_label(name: str, value: Any) -> None:
  """Checks that a value is the name of a column, or several."""
  if isinstance(value, str):
    check_word(name, value)
  else:
    check_strings(name, value)


def _is_frame(name: str, value: Any) -> None:
  pandas = errors.imported("pandas", "reading tables", "fedjax_opt[run]")
  check_instance(name, value, [pandas.DataFrame])


_Label = Annotated[str | Sequence[str], Field(_is_label)]


class Table(NamedTuple):
  """Examples that were read from a table.

  Attributes:
    examples: "x" [N, d] float32. "y" is [N] int32 of classes, [N, k] float32 of
      numbers and of labels (0 or 1).
    columns: what each entry of x is, [d].
    is_number: whether the entry is a number, not the 0 or 1 of a word. [d]
      bool.
    kind: what is predicted: one of `classes`, any `numbers` (regression), or
      several `labels`, each there or not.
    names: of the classes, or of the columns that are predicted.
    client_ids: the client of each row, [N] of any type; None if there are none.
    time: the time of each row, [N] numbers; None if there is none.
  """

  examples: dict[str, np.ndarray]
  columns: tuple[str, ...]
  is_number: np.ndarray
  kind: str
  names: tuple[str, ...]
  client_ids: np.ndarray | None = None
  time: np.ndarray | None = None

  def rows(self, rows: np.ndarray) -> "Table":
    """Some of the rows, [n]."""
    take = lambda values: None if values is None else values[rows]
    return self._replace(
      examples={name: take(values) for name, values in self.examples.items()},
      client_ids=take(self.client_ids),
      time=take(self.time),
    )

  @checked(fraction="(0, 1)")
  def split(self, fraction: float, seed: int = 0) -> tuple["Table", "Table"]:
    """Holds rows out for testing.

    If rows have a time, the latest rows are held out, of each client if there
    are clients. Otherwise rows are drawn, of each class alike.

    Args:
      fraction: of the rows that is held out, in (0, 1).
      seed: of the draw.

    Returns:
      (other rows, held-out rows).

    Raises:
      ValueError: if the fraction cannot be, or there is one row only.
    """
    row_numbers = np.arange(len(self.examples["x"]))
    if self.time is None:
      pool = {"row": row_numbers, "y": self.examples["y"]}
      parts = hold_out(pool, fraction, seed)
      return self.rows(parts[0]["row"]), self.rows(parts[1]["row"])
    clients = np.zeros(len(row_numbers), int)
    if self.client_ids is not None:
      _, clients = np.unique(self.client_ids, return_inverse=True)
    order = np.lexsort((row_numbers, self.time, clients))
    sizes = np.bincount(clients)
    place = np.empty(len(row_numbers), int)
    starts = np.cumsum(sizes) - sizes
    place[order] = row_numbers - np.repeat(starts, sizes)
    is_late = place >= (sizes - np.round(fraction * sizes).astype(int))[clients]
    if is_late.all() or not is_late.any():
      raise ValueError(
        f"fraction={fraction:g}: holds {'all' if is_late.all() else 'none'} of "
        f"the {len(row_numbers)} rows out; must be "
        f"{'smaller' if is_late.all() else 'larger'}"
      )
    return self.rows(row_numbers[~is_late]), self.rows(row_numbers[is_late])


@checked()
def read_table(
  path: str | os.PathLike,
  label: _Label,
  *,
  client: str | None = None,
  time: str | None = None,
  ignore: str | Sequence[str] = (),
  kind: _Kind | None = None,
) -> Table:
  """Reads a CSV or Parquet file, or a folder that `datasets` has saved.

  Args:
    path: a file .csv, .csv.gz, .tsv or .parquet; or a folder that
      `save_to_disk` of Hugging Face's `datasets` made.
    label: the column that is predicted, or several.
    client: the column that says to which client a row belongs.
    time: the column by which rows are ordered: numbers or dates.
    ignore: the column that is left out, or several.
    kind: one of `KINDS`; by default words, booleans and few whole numbers are
      classes, several columns of 0 and 1 are labels, others are numbers.

  Returns:
    The table.

  Raises:
    ValueError: if it cannot be read, a column is missing, two clients are the
      same number, such as 7 and 007, or a cell is empty or is no number where
      the others of its column are.
    ImportError: naming the package to install.
  """
  frame = read_frame(path)
  with errors.reworded_errors(os.fspath(path)):
    table = from_frame(
      frame, label, client=client, time=time, ignore=ignore, kind=kind
    )
    if client is not None and _is_csv(user_path(path)):
      _check_ids(user_path(path), frame, client)
    return table


@checked()
def read_frame(path: str | os.PathLike) -> Any:
  """A file's table as a `pandas.DataFrame`.

  Args:
    path: see `read_table`.

  Returns:
    The data frame.

  Raises:
    ValueError: if it cannot be read, or does not fit into memory.
    ImportError: naming the package to install.
  """
  pandas = errors.imported("pandas", "reading tables", "fedjax_opt[run]")
  path = user_path(path)
  with errors.while_reading(path, "a table is needed", ImportError, Exception):
    if path.is_dir():
      datasets, data = saved_data_set(path)
      if isinstance(data, Mapping):
        raise ValueError(
          f"it has the parts {', '.join(data)}; give the folder of one of them"
        )
      num_cells = data.num_rows * max(data.num_columns, 1)
      num_bytes = data.data.nbytes + _BYTES_OF_CELL * num_cells
      memory.check_memory("it may take", num_bytes)
      frame = data.to_pandas()
      for name, feature in data.features.items():
        if isinstance(feature, datasets.ClassLabel):
          frame[name] = feature.int2str(frame[name].tolist())
      return frame
    if path.suffix.lower() == ".parquet":
      memory.check_is_file(path)
      size = path.stat().st_size
      parquet = errors.imported("pyarrow.parquet", "Parquet", "pyarrow")
      footer = parquet.read_metadata(path)  # A constant column takes no space.
      num_bytes = _BYTES_OF_CELL * footer.num_rows * max(footer.num_columns, 1)
      memory.check_memory("it may take", _MEMORY_OF_PARQUET * size + num_bytes)
      return pandas.read_parquet(path)
    if _is_csv(path):
      csv_files.check_table_fits(path)
      return _read_csv(path)
    raise ValueError("must be .csv, .tsv, .csv.gz or .parquet, or a folder")


def _read_csv(path):
  """A table whose columns are divided by a comma, a semicolon or a tab."""
  mark, names = _mark_and_names(path)
  _check_different([name.strip() for name in names if name.strip()])
  options = {"skipinitialspace": True, "low_memory": False}
  return csv_files.read_rows(path, sep=mark, **options)


def _mark_and_names(path):
  rows = {mark: _first_row(path, mark) for mark in ",;\t"}
  mark = max(rows, key=lambda mark: len(rows[mark]))
  return mark, rows[mark]


def _check_ids(path, frame, client):
  """Checks that no two clients are one number, as 7 and 007 are."""
  column = [str(name).strip() for name in frame.columns].index(client)
  numbers = frame.iloc[:, column]
  if numbers.dtype.kind not in "iuf":
    return
  mark, _ = _mark_and_names(path)
  cells = csv_files.read_rows(path, sep=mark, usecols=[column], dtype=str)
  words = cells.iloc[:, 0].str.strip()
  # Of each number the first word.
  first_words = words.groupby(numbers.to_numpy()).transform("first")
  differ = (words != first_words).to_numpy()
  if differ.any():
    row = int(np.argmax(differ))
    raise ValueError(
      f"client={client!r}: {first_words.iloc[row]!r} and {words.iloc[row]!r} "
      "are one number; write a letter before each, or write them alike"
    )


def _is_csv(path):
  name = path.name.lower().removesuffix(".gz")
  return not path.is_dir() and name.endswith((".csv", ".tsv", ".txt"))


def _first_row(path, mark):
  """The cells of the first line that is not blank, divided by a mark.

  Not by pandas, which takes half a minute for one row of 200,000 texts. The
  row is [] if there is none, or if a cell is so long that the mark is wrong.
  """
  open_file = gzip.open if path.suffix.lower() == ".gz" else open
  with (
    open_file(path, "rt", encoding="utf-8-sig", newline="") as file,
    contextlib.suppress(csv.Error),
  ):
    for row in csv.reader(file, delimiter=mark, skipinitialspace=True):
      if len(row) > 1 or any(map(str.strip, row)):
        return row
  return []


def _check_different(names):
  """Checks that no two columns have the same name."""
  times = collections.Counter(names)
  repeated = [name for name, number in times.items() if number > 1]
  if repeated:
    raise ValueError(f"two columns are named {repeated[0]!r}; rename one")


@checked(frame=Field(_is_frame))
def from_frame(
  frame: Any,
  label: _Label,
  *,
  client: str | None = None,
  time: str | None = None,
  ignore: str | Sequence[str] = (),
  kind: _Kind | None = None,
) -> Table:
  """A `pandas.DataFrame` as examples.

  Args:
    frame: rows are examples.
    label: see `read_table`.
    client: column that says to which client a row belongs.
    time: column by which rows are ordered.
    ignore: the column that is left out, or several.
    kind: what is predicted.

  Returns:
    The table.

  Raises:
    ValueError: if a column is missing, or a cell is empty or no number where
      the others of its column are.
  """
  if frame.columns.nlevels > 1:
    raise ValueError(
      f"the table's columns have {frame.columns.nlevels} levels; must have one "
      "name each"
    )
  # The copy has its columns in a few arrays; one that was read has one for each
  # of them, and then all that follows takes long.
  frame = frame.copy()
  frame.columns = [
    "" if is_none else str(name).strip()
    for name, is_none in zip(frame.columns, frame.columns.isna(), strict=True)
  ]
  _check_different(frame.columns)
  labels = [label] if isinstance(label, str) else list(label)
  by_role = {"label": labels, "client": [client], "time": [time]}
  ignored = [ignore] if isinstance(ignore, str) else list(ignore)
  by_role["ignore"] = ignored
  _check_columns(list(frame.columns), by_role)
  if not len(frame):
    raise ValueError("the table has no rows; must have at least one")
  role_columns = [*labels, client, time]
  frame = frame.drop(columns=ignored)
  frame = table_columns.all_plain(frame)
  x, columns, is_number = table_columns.inputs(
    frame.drop(columns=[name for name in role_columns if name])
  )
  y, names, kind = table_columns.target(frame[labels], kind)
  ids = None
  if client is not None:
    ids = frame[client].to_numpy()
    table_columns.check_is_exact("client", client, ids)
    if ids.dtype.kind == "f":
      ids = ids + 0.0  # Not -0.0 beside 0.0.
    ids = ids.astype(str) if ids.dtype.kind not in "iu" else ids
  return Table(
    {"x": x, "y": y},
    columns,
    is_number,
    kind,
    names,
    ids,
    None if time is None else table_columns.time(time, frame[time]),
  )


@checked(bunch=mapping_of(None, "data of sklearn.datasets"))
def from_bunch(bunch: Any, kind: _Kind | None = None) -> Table:
  """Data of `sklearn.datasets`, such as `load_iris()`, as examples.

  Args:
    bunch: with `data` [N, d] and `target` [N] or [N, k].
    kind: see `read_table`.

  Returns:
    The table.

  Raises:
    ValueError, TypeError: if it is none, or has values that are missing.
  """
  pandas = errors.imported("pandas", "reading tables", "fedjax_opt[run]")
  if not {"data", "target"} <= set(bunch):
    raise TypeError(
      f"bunch={brief(bunch)}: must have data and target, as those of "
      "sklearn.datasets"
    )
  data = pandas.DataFrame(bunch["data"])
  data.columns = [str(n) for n in bunch.get("feature_names", data.columns)]
  target = np.asarray(bunch["target"])
  words = bunch.get("target_names")
  if words is not None and target.ndim == 1 and target.dtype.kind in "iu":
    target = np.asarray(words)[target]
  target = pandas.DataFrame(target.reshape(len(data), -1))
  target.columns = [f"target {i}" for i in range(target.shape[1])]
  return from_frame(data.join(target), list(target.columns), kind=kind)


@checked()
def standardize(
  train: Mapping[str, np.ndarray], *others: Mapping[str, np.ndarray] | None
) -> list[dict[str, np.ndarray] | None]:
  """Examples whose x has mean 0 and deviation 1 over the training rows.

  A column that is constant there becomes 0.

  Args:
    train: {"x": [N, d], ...}, on which mean and deviation are measured.
    *others: such as the test examples; None stays None.

  Returns:
    All of them, in order, with x as float32.
  """
  check_choice("train", "x", train)
  x = np.asarray(train["x"], np.float64)
  mean, std = x.mean(0), x.std(0)
  # Rounding gives a constant column a tiny deviation.
  varies = x.max(0) > x.min(0)
  scale = np.where(varies, 1 / np.where(varies, std, 1), 0)
  of = lambda x: ((np.asarray(x, np.float64) - mean) * scale).astype("float32")
  return [
    None if examples is None else {**examples, "x": of(examples["x"])}
    for examples in (train, *others)
  ]


def _check_columns(columns, by_role):
  """Checks that each column that is named is there, and has one role."""
  roles: dict[str, str] = {}
  named = {name for names in by_role.values() for name in names}
  for role, names in by_role.items():
    for name in names:
      if name is None:
        continue
      if name in roles:
        raise ValueError(
          f"{role}={name!r}: is {roles[name]}={name!r} already; give another"
        )
      # Another role's column would be refused then.
      free = [column for column in columns if column not in named - {name}]
      listing = "the columns" if len(free) > 20 else None
      check_choice(role, name, free, listing)
      roles[name] = role
  if not by_role["label"]:
    raise ValueError("label: give the column that is predicted")
  if len(roles) == len(columns):
    raise ValueError("no column is left as input; ignore fewer columns")
