"""What a table's columns become: inputs, what is predicted, time, clients.

`plain` reads any column as one of a few types; the others make arrays of these.
A column that would be read as something else than it means is refused. A table
may have 200,000 columns, so columns of numbers are read together.
"""

import re
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from fedjax_opt.checks import errors, memory

# The most different words of a text column; more are names, not kinds.
MOST_WORDS = 100
# Whole numbers that take at most so many values are classes. A text column of
# so many words may be of numbers, as "3" and "4 or more" are.
_MOST_CLASSES = 20
# As some files mark a cell without a number.
_BLANKS = ("?", "-", "--", ".", "*")
_UNITS = " %$€£¥"  # Of numbers, before or behind them.
# Between thousands, as in 1 000.
_GAP = re.compile(r"(?<=\d)[\s_'’](?=\d{3}(?!\d))")
# A text that begins with a date, such as 2020-12-31 or 31.12.2020.
_DATE = re.compile(r"(\d{4}([-/.])\d\d?\2\d\d?|\d\d?([-/.])\d\d?\3\d{4})(?!\d)")
_HEXADECIMAL = re.compile(r"[+-]?0[xX][0-9a-fA-F]+")
_NUMBER_TYPES = ("integer", "floating", "mixed-integer-float", "decimal")
_DATES = ("datetime64", "datetime", "date")
# What pandas calls a column's type -> the NumPy type of its objects.
_NUMPY_TYPES = {
  "boolean": "bool",
  **dict.fromkeys(_NUMBER_TYPES, "float64"),
  **dict.fromkeys(_DATES, "datetime64[us]"),  # Nanoseconds end in 2262.
  **dict.fromkeys(("string", "categorical"), "str"),
}


_LARGEST = float(np.finfo(np.float32).max)
# Beyond it a float no longer has every whole number.
_MAX_EXACT = 1 << 53
# Bytes of columns of numbers that are converted together.
_BYTES_AT_ONCE = 1 << 26


def _pandas() -> Any:
  return errors.imported("pandas", "reading tables", "fedjax_opt[run]")


def all_plain(frame: Any) -> Any:
  """The frame, each column as `plain` gives it.

  Raises:
    ValueError: naming the first column that `plain` refuses.
  """
  are_numbers = np.array([_is_of_numbers(dtype) for dtype in frame.dtypes])
  is_plain = are_numbers & frame.notna().all().to_numpy()
  names = frame.columns[~is_plain]
  converted = {name: plain(name, frame[name]) for name in names}
  # One by one they would be put in in a time of their number squared.
  converted = _pandas().DataFrame(converted, index=frame.index)
  parts = [frame.loc[:, is_plain], converted]
  return _pandas().concat(parts, axis=1)[frame.columns]


def _is_of_numbers(dtype: Any) -> bool:
  """Whether a column's type is one of NumPy's numbers or booleans."""
  return isinstance(dtype, np.dtype) and dtype.kind in "biuf"


def plain(name: str, values: Any) -> Any:
  """A column of numbers, booleans, dates or text, none of them empty.

  Args:
    name: of the column.
    values: a `pandas.Series`, [N].

  Returns:
    The same, of a NumPy type of numbers, booleans or dates, or texts without
    spaces around them.

  Raises:
    ValueError: if a cell is empty, or the values are something else.
  """
  kind = _pandas().api.types.infer_dtype(values, skipna=True)
  is_text = _NUMPY_TYPES.get(kind) == "str"
  if is_text:
    values = values.astype("string").str.strip().mask(lambda cell: cell == "")
  empty = values.isna().to_numpy()
  if empty.any():
    raise ValueError(
      f"column {name!r}: its cell in row {1 + int(np.argmax(empty))} is empty, "
      f"NaN, NA, None or null (cells like it: {int(empty.sum())}); fill them "
      "in, or drop the rows"
    )
  if kind not in _NUMPY_TYPES:
    raise ValueError(
      f"column {name!r}: has values of the kind {kind}; must be numbers, "
      "booleans, dates or texts, or ignore the column"
    )
  if not is_text and values.dtype != object:
    return values
  try:
    numbers = values.astype(_NUMPY_TYPES[kind])
  except (OverflowError, ValueError) as error:  # Such as of 400 digits.
    raise ValueError(
      f"column {name!r}: {errors.reason(error)}; ignore the column"
    ) from None
  if kind == "integer" and numbers.nunique() < values.nunique():
    raise ValueError(
      f"column {name!r}: has whole numbers that are rounded to the same one; "
      "write a letter before each, or ignore the column"
    )
  return numbers


def inputs(frame: Any) -> tuple[np.ndarray, tuple[str, ...], np.ndarray]:
  """x [N, d], the name of each of its entries, and which are numbers."""
  for name in frame.columns:
    if not name or name.startswith("Unnamed: "):  # As pandas calls them.
      raise ValueError(
        f"column {name!r}: has no name of its own, such as a column of row "
        "numbers; ignore it, or give it a name"
      )
  parts, columns, is_number = [], [], []
  for part in _parts(frame):
    name, values = part.columns[0], part.iloc[:, 0]
    if values.dtype.kind in "biuf":
      parts.append(finite("column ", part))
      columns.extend(part.columns)
      is_number += [dtype.kind != "b" for dtype in part.dtypes]
      continue
    words, codes = np.unique(values.to_numpy(), return_inverse=True)
    if values.dtype.kind == "M" or all(map(_DATE.match, words)):
      raise ValueError(
        f"column {name!r}: has dates; name it as the time, ignore it, or turn "
        "it into numbers"
      )
    _check_words(name, words)
    # In 32 bits, in parts and joined.
    num_bytes = 8 * len(frame) * (len(columns) + len(words))
    memory.check_memory("the input takes", num_bytes)
    parts.append(np.eye(len(words), dtype=np.float32)[codes])
    columns += [f"{name}={word}" for word in words]
    is_number += [False] * len(words)
  return np.concatenate(parts, 1), tuple(columns), np.array(is_number)


def _parts(frame: Any) -> Iterator[Any]:
  """The columns in order: of numbers many at a time, each other one alone."""
  kinds = [dtype.kind in "biuf" for dtype in frame.dtypes]
  most, start = max(1, _BYTES_AT_ONCE // (8 * len(frame))), 0
  for stop in range(1, len(kinds) + 1):
    goes_on = stop < len(kinds) and kinds[start] and kinds[stop]
    if not goes_on or stop == start + most:
      yield frame.iloc[:, start:stop]
      start = stop


def _numbers(words):
  """Texts as numbers, NaN where they are none. [n]."""
  words = _pandas().Series(words, dtype=str)
  return _pandas().to_numeric(words, errors="coerce").to_numpy()


def _check_words(name, words):
  """Checks that a column of text has kinds, and no numbers with a slip."""
  non_numbers = words[np.isnan(_numbers(words))]
  plain = [_GAP.sub("", w.strip(_UNITS)).replace(",", ".") for w in words]
  are_numbers = ~np.isnan(_numbers(plain))
  # A few words may be kinds, but not if all are numbers, or none.
  is_few = len(words) <= _MOST_CLASSES
  are_all = (are_numbers | np.isin(words, _BLANKS)).all() and are_numbers.any()
  is_slip = are_all if is_few else are_numbers.mean() > 0.5
  is_slip |= all(map(_HEXADECIMAL.fullmatch, words))
  if len(non_numbers) and is_slip:
    raise ValueError(
      f"column {name!r}: has {non_numbers[0]!r} among numbers; write numbers "
      "like 0.5"
    )
  if len(words) > MOST_WORDS:
    raise ValueError(
      f"column {name!r}: has {len(words):,} different texts, more than "
      f"{MOST_WORDS}; leave it out with ignore={name!r}"
    )


def finite(what: str, frame: Any) -> np.ndarray:
  """Columns of numbers as float32, if that can tell them apart. [N, d].

  Args:
    what: begins the message, before the name of the column.
    frame: a `pandas.DataFrame` of numbers.

  Raises:
    ValueError: if one is infinite or too large, or they differ by too little.
  """
  exact = frame.to_numpy(np.float64)
  with np.errstate(over="ignore", invalid="ignore"):
    floats = exact.astype(np.float32, order="C")
    error, std = np.abs(floats - exact).max(0), 1e-3 * exact.std(0)
    varies = exact.max(0) > exact.min(0)
    is_fine = (np.abs(exact).max(0) <= _LARGEST) & ~((error > std) & varies)
  # Whole numbers may differ where even float64 has one number for all.
  for i in np.flatnonzero(~varies & (np.abs(exact[0]) >= _MAX_EXACT)):
    is_fine[i] &= frame.iloc[:, i].nunique() == 1
  if not is_fine.all():
    column = int(np.argmin(is_fine))
    raise ValueError(
      f"{what}{frame.columns[column]!r}: {_not_finite(frame.iloc[:, column])}"
    )
  return floats


def _not_finite(values: Any) -> str:
  """Why a column of numbers cannot be float32."""
  exact = values.to_numpy(np.float64)
  if not np.isfinite(exact).all():
    return f"row {1 + int(np.argmax(~np.isfinite(exact)))} is infinite"
  if np.abs(exact).max() > _LARGEST:
    return f"has numbers above {_LARGEST:.3g}"
  return (
    f"has numbers such as {values.iloc[0]}, too near to each other for "
    "float32; subtract the smallest one from all, or ignore the column"
  )


def time(name: str, values: Any) -> np.ndarray:
  """What rows are ordered by, [N] numbers.

  Raises:
    ValueError: if they are neither numbers nor dates of one format, or either
      of their first two numbers may be the day.
  """
  if values.dtype.kind in "iuf":
    return values.to_numpy()
  words, dates = values.astype(str), _dates(values)
  day_first = dates
  # 2020-12-31 and 20201231 begin with the year, so the day is last.
  if not words.str.match(r"\s*\d{4}(\D|\d{4})").all():
    day_first = _dates(values, dayfirst=True)
  if dates.isna().any():
    dates = day_first
  elif day_first.isna().any():
    day_first = dates
  is_wrong = dates.isna() | (dates != day_first)
  if is_wrong.any():
    row = int(np.argmax(is_wrong))
    may_be = ", whose day may be either number" * bool(dates.notna().all())
    raise ValueError(
      f"time={name!r}: must be numbers or dates of one format, such as "
      f"2020-12-31; row {1 + row} is {values.astype(object).iloc[row]!r}"
      f"{may_be}"
    )
  # Of 19-12-31 pandas takes the last number for the year.
  if (is_short := ~words.str.contains(r"\d{4}")).any():
    row = int(np.argmax(is_short))
    raise ValueError(
      f"time={name!r}: years must have four digits, as in 2020-12-31; row "
      f"{1 + row} is {values.astype(object).iloc[row]!r}"
    )
  # In their own unit: nanoseconds would end in 2262.
  return dates.dt.tz_localize(None).to_numpy().astype(np.int64)


def _dates(values: Any, **options: bool) -> Any:
  """The dates, NaT where there is none."""
  with warnings.catch_warnings(action="ignore"):
    # It warns before it guesses a format for each row, which fail then.
    return _pandas().to_datetime(values, utc=True, errors="coerce", **options)


def target(frame: Any, kind: str | None) -> tuple[np.ndarray, str, tuple]:
  """y, its kind, and the names of classes or outputs.

  Args:
    frame: the columns that are predicted.
    kind: of `tables.KINDS`; None for what they hold.

  Raises:
    ValueError: if they are not of that kind.
  """
  if kind is None:
    kind = _usual_kind(frame)
  if kind == "classes":
    return *_classes(frame), kind
  for name in frame.columns:
    if frame[name].dtype.kind not in "biuf":
      raise ValueError(
        f"label={name!r}: has text, {str(frame[name].iloc[0])!r}; "
        f"kind={kind!r} needs numbers"
      )
  y = finite("label=", frame)
  if kind == "labels" and not np.isin(y, (0, 1)).all():
    raise ValueError("kind='labels': all columns must be 0 or 1")
  constant = frame.columns[(y == y[0]).all(axis=0)]
  if kind == "numbers" and len(constant):
    raise ValueError(
      f"label={constant[0]!r}: all rows have the same number; must differ"
    )
  return y, tuple(frame.columns), kind


def check_is_exact(what: str, name: str, values: np.ndarray) -> None:
  """Raises ValueError if floats that serve as names may have been rounded."""
  if values.dtype.kind == "f" and (np.abs(values) > _MAX_EXACT).any():
    raise ValueError(
      f"{what}={name!r}: has numbers above {_MAX_EXACT:,}, which are rounded "
      "when they are read; write a letter before each"
    )


def _classes(frame):
  """The class of each row, and the classes' names."""
  if frame.shape[1] > 1:
    raise ValueError(
      "kind='classes': must be one column; several are numbers or labels"
    )
  name, values = frame.columns[0], frame.iloc[:, 0]
  check_is_exact("label", name, values.to_numpy())
  if values.dtype.kind == "f" and (values % 1 == 0).all():
    values = values.astype(np.int64)
  is_whole = values.dtype.kind in "iu"
  values = values if is_whole else values.astype(str)
  words, y = np.unique(values.to_numpy(), return_inverse=True)
  names = tuple(map(str, words))
  if len(words) < 2:
    raise ValueError(
      f"label={name!r}: has one class, {names[0]!r}; must have at least two"
    )
  if len(words) > max(_MOST_CLASSES, len(frame) // 2):
    is_number = _is_of_numbers(frame.dtypes.iloc[0])
    remedy = "; for a number give kind='numbers'" * is_number
    raise ValueError(
      f"label={name!r}: has {len(words):,} classes in {len(frame):,} rows, too "
      f"many to learn{remedy}"
    )
  return y.astype(np.int32), names


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
