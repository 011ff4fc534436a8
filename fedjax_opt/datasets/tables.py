"""Tables as pools of examples: CSV, Parquet, data frames, scikit-learn's data.

A column is what is predicted, one may be the client of each row, one its time;
the others are the input. Text becomes one column of 0 and 1 for each word that
it takes, numbers stay as they are until `standardize`.
"""

import os
import pathlib
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedjax_opt.checks import values as checks
from fedjax_opt.checks.fields import checked
from fedjax_opt.data import hold_out
from fedjax_opt.files import memory

__all__ = [
  "KINDS",
  "Table",
  "from_bunch",
  "from_frame",
  "read_frame",
  "read_table",
  "standardize",
]

# Of a text column, how many words it may take; more are names, not kinds.
MOST_WORDS = 100
# Whole numbers that take at most so many values are classes.
_MOST_CLASSES = 20
# A parsed table takes about so many times the bytes of its file.
_MEMORY_OF_CSV, _MEMORY_OF_PARQUET = 4, 10
KINDS = ("classes", "numbers", "labels")


class Table(NamedTuple):
  """Examples that were read from a table.

  Attributes:
    examples: "x" [N, d] float32. "y" is [N] int32 of classes, [N, k] float32 of
      numbers and of labels (0 or 1).
    columns: what each entry of x is, [d].
    is_number: whether it is a number, and no 0 or 1 of a word. [d] bool.
    kind: what is predicted: one of `classes`, any `numbers` (regression), or
      several `labels`, each there or not.
    names: of the classes, or of the columns that are predicted.
    client_ids: the client of each row, [N] of any type; None without.
    time: by which rows are in order, [N] numbers; None without.
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
    of = lambda values: None if values is None else values[rows]
    return self._replace(
      examples={name: of(values) for name, values in self.examples.items()},
      client_ids=of(self.client_ids),
      time=of(self.time),
    )

  @checked(fraction="(0, 1)")
  def split(self, fraction: float, seed: int = 0) -> tuple["Table", "Table"]:
    """Holds rows out for testing.

    With a time these are the latest, of each client where there are clients;
    without they are drawn, of each class alike.

    Args:
      fraction: of the rows that is held out, in (0, 1).
      seed: of the draw.

    Returns:
      (the others, those held out).

    Raises:
      ValueError: if the fraction cannot be, or there is one row only.
    """
    number = np.arange(len(self.examples["x"]))
    if self.time is None:
      pool = {"row": number, "y": self.examples["y"]}
      parts = hold_out(pool, fraction, seed)
      return self.rows(parts[0]["row"]), self.rows(parts[1]["row"])
    clients = np.zeros(len(number), int)
    if self.client_ids is not None:
      _, clients = np.unique(self.client_ids, return_inverse=True)
    order = np.lexsort((number, self.time, clients))
    sizes = np.bincount(clients)
    place = np.empty(len(number), int)
    starts = np.cumsum(sizes) - sizes
    place[order] = number - np.repeat(starts, sizes)
    late = place >= (sizes - np.round(fraction * sizes).astype(int))[clients]
    if late.all() or not late.any():
      raise ValueError(
        f"fraction={fraction:g}: holds {'all' if late.all() else 'none'} of "
        f"the {len(number)} rows out"
      )
    return self.rows(number[~late]), self.rows(number[late])


def read_table(
  path: str | os.PathLike,
  label: str | Sequence[str],
  *,
  client: str | None = None,
  time: str | None = None,
  ignore: Sequence[str] = (),
  kind: str | None = None,
) -> Table:
  """Reads a CSV or Parquet file, or a folder that `datasets` has saved.

  Args:
    path: a file .csv, .csv.gz, .tsv or .parquet; or a folder that
      `Dataset.save_to_disk` of Hugging Face's `datasets` made.
    label: the column that is predicted, or several.
    client: the column that says whose row it is.
    time: the column by which rows are in order: numbers or dates.
    ignore: columns that are left out.
    kind: one of `KINDS`; by default words, booleans and few whole numbers are
      classes, several columns of 0 and 1 are labels, others are numbers.

  Returns:
    The table.

  Raises:
    ValueError: if it cannot be read, a column is missing, or a cell is empty or
      is no number where the others of its column are.
    ImportError: naming the package to install.
  """
  frame = read_frame(path)
  try:
    return from_frame(
      frame, label, client=client, time=time, ignore=ignore, kind=kind
    )
  except ValueError as error:
    raise ValueError(f"{os.fspath(path)}: {error}") from None


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
  pandas = checks.imported("pandas", "reading tables", "fedjax_opt[run]")
  path = pathlib.Path(path).expanduser()
  ending = "".join(path.suffixes[-2:]).lower().removesuffix(".gz")[-8:]
  with checks.reading(path, "a table is needed", ImportError, Exception):
    if path.is_dir():
      datasets = checks.imported("datasets", "its folders", "datasets")
      found = datasets.load_from_disk(os.fspath(path))
      if isinstance(found, Mapping):
        raise ValueError(
          f"it has the parts {', '.join(found)}; give the folder of one of them"
        )
      frame = found.to_pandas()
      for name, feature in found.features.items():
        if isinstance(feature, datasets.ClassLabel):
          frame[name] = feature.int2str(frame[name].tolist())
      return frame
    if not path.is_file():  # Nor a pipe, which would wait for ever.
      path.stat()
      raise ValueError("it is no file")
    size = path.stat().st_size
    if ending.endswith(".parquet"):
      memory.check_memory("it may take", _MEMORY_OF_PARQUET * size)
      return pandas.read_parquet(path)
    if ending.endswith((".csv", ".tsv", ".txt")):
      packed = 10 if path.suffix.lower() == ".gz" else 1
      memory.check_memory("it may take", packed * _MEMORY_OF_CSV * size)
      mark = "\t" if ending.endswith(".tsv") else ","
      return pandas.read_csv(path, sep=mark, skipinitialspace=True)
    raise ValueError("must be .csv, .tsv, .csv.gz or .parquet, or a folder")


def from_frame(
  frame: Any,
  label: str | Sequence[str],
  *,
  client: str | None = None,
  time: str | None = None,
  ignore: Sequence[str] = (),
  kind: str | None = None,
) -> Table:
  """A `pandas.DataFrame` as examples.

  Args:
    frame: rows are examples.
    label: see `read_table`, as all others.
    client: column that says whose row it is.
    time: column by which rows are in order.
    ignore: columns that are left out.
    kind: what is predicted.

  Returns:
    The table.

  Raises:
    ValueError: if a column is missing, or a cell is empty or no number where
      the others of its column are.
  """
  frame = frame.rename(columns=lambda name: str(name).strip())
  labels = [label] if isinstance(label, str) else list(label)
  given = {"label": labels, "client": [client], "time": [time]}
  given["ignore"] = list(ignore)
  _check_columns(list(frame.columns), given)
  if not len(frame):
    raise ValueError("has no rows")
  used = [*labels, client, time, *ignore]
  x, columns, is_number = _inputs(frame.drop(columns=[c for c in used if c]))
  if kind is not None:
    checks.check_choice("kind", kind, KINDS)
  y, kind, names = _target(frame[labels], kind)
  ids = None
  if client is not None:
    _check_full(client, frame[client])
    ids = frame[client].to_numpy()
    ids = ids.astype(str) if ids.dtype.kind not in "iu" else ids
  return Table(
    {"x": x, "y": y},
    columns,
    is_number,
    kind,
    names,
    ids,
    None if time is None else _time(time, frame[time]),
  )


def from_bunch(bunch: Any, kind: str | None = None) -> Table:
  """Data of `sklearn.datasets`, such as `load_iris()`, as examples.

  Args:
    bunch: with `data` [N, d] and `target` [N] or [N, k].
    kind: see `read_table`.

  Returns:
    The table.

  Raises:
    ValueError, TypeError: if it is none, or has values that are missing.
  """
  pandas = checks.imported("pandas", "reading tables", "fedjax_opt[run]")
  if not {"data", "target"} <= set(bunch):
    raise TypeError(
      f"bunch={checks.shown(bunch)}: must have data and target, as those of "
      "sklearn.datasets"
    )
  data = pandas.DataFrame(bunch["data"])
  names = [str(n) for n in bunch.get("feature_names", data.columns)]
  data.columns = [f"{name}" for name in names]
  target = np.asarray(bunch["target"])
  words = bunch.get("target_names")
  if words is not None and target.ndim == 1 and target.dtype.kind in "iu":
    target = np.asarray(words)[target]
  target = pandas.DataFrame(target.reshape(len(data), -1))
  target.columns = [f"target {i}" for i in range(target.shape[1])]
  return from_frame(data.join(target), list(target.columns), kind=kind)


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
  x = np.asarray(train["x"], np.float64)
  mean, std = x.mean(0), x.std(0)
  scale = np.where(std > 0, 1 / np.where(std > 0, std, 1), 0)
  of = lambda x: ((np.asarray(x, np.float64) - mean) * scale).astype("float32")
  return [
    None if each is None else {**each, "x": of(each["x"])}
    for each in (train, *others)
  ]


def _check_columns(columns, given):
  """That each column that is named is there, and has one role."""
  repeated = [name for name in columns if columns.count(name) > 1]
  if repeated:
    raise ValueError(f"two columns are named {repeated[0]!r}")
  roles: dict[str, str] = {}
  for role, names in given.items():
    for name in names:
      if name is None:
        continue
      if name not in columns:
        near = checks.nearest(str(name), columns)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        listed = ", ".join(columns[:20]) + ", ..." * (len(columns) > 20)
        raise ValueError(
          f"{role}={name!r}: no such column{hint} (columns: {listed})"
        )
      if name in roles:
        raise ValueError(
          f"{role}={name!r}: that column is already {roles[name]}"
        )
      roles[name] = role
  if not given["label"]:
    raise ValueError("label: give the column that is predicted")
  if len(roles) == len(columns):
    raise ValueError("no column is left as input")


def _check_full(name, values):
  """That no cell of a column is empty."""
  empty = values.isna().to_numpy()
  if empty.any():
    raise ValueError(
      f"column {name!r}: row {1 + int(np.argmax(empty))} is empty or NaN "
      f"({int(empty.sum())} such rows); fill them in or drop them before"
    )


def _inputs(frame):
  """x [N, d], the name of each of its entries, and which are numbers."""
  parts, columns, is_number = [], [], []
  for name in frame.columns:
    values = frame[name]
    _check_full(name, values)
    if values.dtype.kind in "biuf":
      parts.append(_finite(name, values.to_numpy(np.float64))[:, None])
      columns.append(name)
      is_number.append(values.dtype.kind != "b")
      continue
    if values.dtype.kind in "mM":
      raise ValueError(
        f"column {name!r}: has dates; name it as time, ignore it, or make "
        "numbers of it"
      )
    words, codes = np.unique(values.astype(str).to_numpy(), return_inverse=True)
    _check_words(name, words)
    parts.append(np.eye(len(words))[codes])
    columns += [f"{name}={word}" for word in words]
    is_number += [False] * len(words)
  x = np.concatenate(parts, 1).astype(np.float32)
  return x, tuple(columns), np.array(is_number)


def _check_words(name, words):
  """That a column of text says kinds, and has no numbers with a slip."""
  if len(words) <= MOST_WORDS:
    return
  numbers = sum(_is_number(word) for word in words)
  if numbers > len(words) / 2:
    odd = next(word for word in words if not _is_number(word))
    raise ValueError(f"column {name!r}: has {odd!r} among numbers")
  raise ValueError(
    f"column {name!r}: has {len(words):,} different texts; must be at most "
    f"{MOST_WORDS}, or ignore it"
  )


def _is_number(word):
  try:
    float(word)
  except ValueError:
    return False
  return True


def _finite(name, values):
  if not np.isfinite(values).all():
    row = int(np.argmax(~np.isfinite(values)))
    raise ValueError(f"column {name!r}: row {1 + row} is infinite")
  limit = float(np.finfo(np.float32).max)
  if np.abs(values).max() > limit:
    raise ValueError(f"column {name!r}: has numbers above {limit:.3g}")
  return values


def _time(name, values):
  """What rows are ordered by, [N]."""
  _check_full(name, values)
  if values.dtype.kind in "iufmM":
    wide = np.float64 if values.dtype.kind == "f" else np.int64
    return values.to_numpy().astype(wide)
  pandas = checks.imported("pandas", "reading tables", "fedjax_opt[run]")
  try:
    with warnings.catch_warnings():
      # It warns before it guesses a format for each row.
      warnings.simplefilter("error", UserWarning)
      found = pandas.to_datetime(values, utc=True)
  except (ValueError, TypeError, UserWarning):
    raise ValueError(
      f"time={name!r}: must be numbers or dates of one format; row 1 is "
      f"{values.iloc[0]!r}"
    ) from None
  return found.dt.tz_localize(None).to_numpy("datetime64[ns]").astype(np.int64)


def _target(frame, kind):
  """y, its kind, and the names of classes or outputs."""
  for name in frame.columns:
    _check_full(name, frame[name])
  if kind is None:
    kind = _usual_kind(frame)
  if kind == "classes":
    if frame.shape[1] > 1:
      raise ValueError(
        "kind='classes': is of one column; several columns are numbers or "
        "labels"
      )
    values = frame.iloc[:, 0]
    if values.dtype.kind == "f" and (values % 1 == 0).all():
      values = values.astype(np.int64)
    is_whole = values.dtype.kind in "iu"
    words, y = np.unique(
      values.to_numpy() if is_whole else values.astype(str).to_numpy(),
      return_inverse=True,
    )
    if len(words) < 2:
      raise ValueError(
        f"label={frame.columns[0]!r}: has one class, {words[0]!r}; must have "
        "at least two"
      )
    if len(words) > max(_MOST_CLASSES, len(frame) // 2):
      raise ValueError(
        f"label={frame.columns[0]!r}: has {len(words):,} classes in "
        f"{len(frame):,} rows; for a number give kind='numbers'"
      )
    return y.astype(np.int32), kind, tuple(map(str, words))
  for name in frame.columns:
    if frame[name].dtype.kind not in "biuf":
      raise ValueError(
        f"label={name!r}: has text, {str(frame[name].iloc[0])!r}; "
        f"kind={kind!r} needs numbers"
      )
    _finite(name, frame[name].to_numpy(np.float64))
  y = frame.to_numpy(np.float32)
  if kind == "labels" and not np.isin(y, (0, 1)).all():
    raise ValueError("kind='labels': all columns must be 0 or 1")
  return y, kind, tuple(frame.columns)


def _usual_kind(frame):
  """What is predicted, by what the columns hold."""
  is_flag = [
    frame[name].dtype.kind in "biuf" and frame[name].isin((0, 1)).all()
    for name in frame.columns
  ]
  if frame.shape[1] > 1:
    return "labels" if all(is_flag) else "numbers"
  values = frame.iloc[:, 0]
  if values.dtype.kind not in "iuf":
    return "classes"
  is_whole = (values % 1 == 0).all()
  return (
    "classes" if is_whole and values.nunique() <= _MOST_CLASSES else "numbers"
  )
