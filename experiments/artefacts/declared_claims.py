"""Claims as TOML files declare them.

A claim `[[NAME.claims]]` has a `text`, and compares rows or columns:

  better = {A = ["B", "C"]}  row A is better than row B, and than row C. The
                             metric decides whether larger values are better
  more, less                 likewise: A has a greater, or a smaller value
  near, with within          likewise: two values differ by at most `within`

A name of `groups` may stand for a list of rows. With one of these entries the
comparison is another:

  in_rows                    in each of these rows, column A is better than
                             columns B and C
  from, to                   from one column to the other, row A gains more than
                             rows B and C

A claim may also compare with a number, in each of the rows `in_rows`:

  above, below               the value is above, or below, this number
  near, with within          the value differs from this number by at most
                             `within`

Further entries:

  value, values              what is compared, see values.py. Default: the last
                             test accuracy
  by                         the least difference that agrees with the claim,
                             one number or one for each of `values`. Default: 0
  at                         a list of the other parts of the keys, or "columns"
                             for those of the artefact. There is a claim for
                             each entry, if anything of it has run; in `text`,
                             {0} and {1} stand for its parts
  all_of                     likewise, but one claim about all entries together
  parts                      a list of comparisons, all in one claim
  only_run                   whether cells that have not run are left out;
                             otherwise they leave a claim undecided
  ours                       whether the claim is ours and not the paper's
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from experiments.artefacts.artefact import Key, Records
from experiments.artefacts.claims import Claim, Quantity
from experiments.artefacts.values import ACCURACY, Value, value

# Verb of a claim -> the sign of a difference that agrees with it. For `better`
# the sign depends on the metric.
_VERBS = {"better": 0, "more": 1, "less": -1, "near": 1}
_LIMITS = ("above", "below", "near")


def claims(about: Mapping[str, Any], records: Records) -> list[Claim]:
  """The claims of an artefact, if anything that they compare has run.

  Args:
    about: the artefact, as its TOML file has it.
    records: what there is.
  """
  all_claims = []
  for declared in about.get("claims", ()):
    together = declared.get("all_of")
    at = declared.get("at", [[]])
    at = about["columns"] if at == "columns" else at
    places = [together] if together else [[place] for place in at]
    for parts in places:
      all_claims.append(_claim(about, declared, [*map(_rest, parts)], records))
  return [claim for claim in all_claims if claim is not None]


def _claim(
  about: Mapping[str, Any],
  declared: Mapping[str, Any],
  rests: Sequence[Key],
  records: Records,
) -> Claim | None:
  """One claim about all these other parts of keys; None if nothing has run."""
  quantities = []
  for rest in rests:
    for part in declared.get("parts", [{}]):
      for q in _quantities(about | declared | part, records, rest):
        where = rest if len(rests) > 1 else ()
        quantities.append(q._replace(name=", ".join((q.name, *where))))
  run = [quantity for quantity in quantities if quantity.values]
  if not run:
    return None
  titles = about.get("titles", {})
  text = declared["text"].format(*[titles.get(p, p) for p in rests[0]])
  kept_quantities = run if declared.get("only_run") else quantities
  return Claim(text, kept_quantities, declared.get("ours", False))


def _rest(place: str | Sequence[str]) -> Key:
  return (place,) if isinstance(place, str) else tuple(place)


def group(about: Mapping[str, Any], rows: str | Sequence[str]) -> Sequence[str]:
  """The rows, with each name of a group replaced by the group's rows."""
  return about["groups"][rows] if isinstance(rows, str) else rows


def _quantities(
  declared: Mapping[str, Any], records: Records, rest: Key
) -> Iterator[Quantity]:
  words = declared.get("values", [declared.get("value", ACCURACY)])
  limits = declared.get("by", 0.0)
  limits = limits if isinstance(limits, list) else [limits] * len(words)
  for of, limit in zip(map(value, words), limits, strict=True):
    for bound in _LIMITS:
      if isinstance(declared.get(bound), int | float):
        for row in group(declared, declared["in_rows"]):
          yield _limited(declared, records, (row, *rest), of, bound)
    for verb in _VERBS:
      for first, second in _pairs(declared, verb):
        keys = (*first, *rest), (*second, *rest)
        yield _compared(declared, records, *keys, of, verb, limit)


def _pairs(declared: Mapping[str, Any], verb: str) -> Iterator[tuple[Key, Key]]:
  """The pairs that a verb compares: rows, or columns in some rows."""
  pairs = declared.get(verb, {})
  for name, other_names in pairs.items() if isinstance(pairs, dict) else ():
    for other_name in group(declared, other_names):
      if "in_rows" not in declared:
        yield (name,), (other_name,)
      else:
        for row in group(declared, declared["in_rows"]):
          yield _key(row, name), _key(row, other_name)


def _key(row: str, column: str) -> Key:
  """The key of a cell; '' is a column without a name."""
  return (row, column) if column else (row,)


def _compared(
  declared: Mapping[str, Any],
  records: Records,
  first: Key,
  second: Key,
  of: Value,
  verb: str,
  limit: float,
) -> Quantity:
  if "from" in declared:
    quantity = _gains_more(declared, records, first, second, of)
  else:
    quantity = lead(records, first, second, of, _VERBS[verb])
  if verb == "near":
    within = declared["within"]
    margins = tuple(within - abs(number) for number in quantity.values)
    name = f"{within:g} less what is between: {quantity.name}"
    return quantity._replace(name=name, values=margins)
  return quantity._replace(limit=limit)


def lead(
  records: Records,
  one: Key,
  other: Key,
  of: Value | None = None,
  sign: int = 0,
) -> Quantity:
  """By how much one cell is above another, at the seeds that both have.

  Args:
    records: what there is.
    one: key of the cell that should be above.
    other: key of the other.
    of: the value that is compared; by default the last test accuracy.
    sign: 1 if the first should be above, -1 if below, 0 if better by its
      metric.
  """
  of = of or value()
  sign = sign or (-1 if of.is_smaller_better else 1)
  # Parts that both keys share do not tell the sides apart.
  sides = [
    ", ".join(part for part in key if part not in other_key) or "here"
    for key, other_key in ((one, other), (other, one))
  ]
  row = f" ({one[0]})" if one != other and one[0] == other[0] else ""
  # Names such as 0.9 would look like numbers to subtract.
  places = [f"at {side}" if side[0].isdigit() else side for side in sides]
  name = f"{' minus '.join(places[::sign])}{_what(of)}{row}"
  measured = [_measured(records, key, of) for key in (one, other)]
  return _above(name, sides, measured, of, sign * of.scale)


def _above(
  name: str,
  sides: Sequence[str],
  values: Sequence[Sequence[float] | None],
  of: Value,
  scale: float,
) -> Quantity:
  """The quantity that one side is above another, at seeds that both have.

  Args:
    name: of the quantity.
    sides: names of both sides.
    values: of both sides, one for each seed, NaN where it is lost; None if a
      side has not run.
    of: the value that is compared.
    scale: factor of the difference; negative if smaller is better.
  """
  if any(side is None for side in values):
    return Quantity(name, (), of.unit)
  num_shared = min(map(len, values))
  a, b = (np.asarray(side, float)[:num_shared] for side in values)
  difference = scale * (a - b) + 0.0  # It turns -0 into 0.
  difference = np.where(np.isnan(a) & ~np.isnan(b), -np.inf, difference)
  difference = np.where(np.isnan(b) & ~np.isnan(a), np.inf, difference)
  lost = [int(np.sum(~np.isfinite(array))) for array in (a, b)]
  words = " and ".join(
    f"{side} {of.lost} at {number} of {num_shared} seeds"
    for side, number in zip(sides, lost, strict=True)
    if number
  )
  return Quantity(name, tuple(difference.tolist()), of.unit, lost=words)


def _what(of: Value) -> str:
  """The name of the compared value; '' for the usual one."""
  return "" if of.words in (ACCURACY, of.unit) else f", {of.label}"


def _measured(records: Records, key: Key, of: Value) -> np.ndarray | None:
  """Seed -> value; None if the cell has not run or did not measure it."""
  is_measured = key in records and of.metric in records[key].history.metrics
  return of.compute(records[key]) if is_measured else None


def _gains_more(
  declared: Mapping[str, Any], records: Records, one: Key, other: Key, of: Value
) -> Quantity:
  """The quantity that one row gains more between two columns than another."""
  start, end = _rest(declared["from"]), _rest(declared["to"])
  gains = [
    lead(records, (row, *end, *rest), (row, *start, *rest), of).values or None
    for row, *rest in (one, other)
  ]
  name = f"gain of {one[0]} minus that of {other[0]}{_what(of)}"
  return _above(name, (one[0], other[0]), gains, of, 1.0)


def _limited(
  declared: Mapping[str, Any], records: Records, key: Key, of: Value, bound: str
) -> Quantity:
  """The quantity that a value is above or below a limit, or near it."""
  limit = declared[bound]
  name = f"{key[0]}, {of.label} {bound} {limit:g} by"
  of_seeds = _measured(records, key, of)
  if bound == "near" and of_seeds is not None:
    within = declared["within"]
    margin = within - of.scale * np.abs(of_seeds - limit)
    name = f"{within:g} less the distance of {key[0]} to {limit:g}"
    return Quantity(name, tuple(margin.tolist()), of.unit)
  scale = of.scale if bound == "above" else -of.scale
  limits = None if of_seeds is None else np.full_like(of_seeds, limit)
  return _above(name, (key[0], "the limit"), (of_seeds, limits), of, scale)
