"""Claims as TOML files declare them, in tables `[[NAME.claims]]`.

A claim has the entries of `ClaimDeclaration`, and those of a `Comparison` for
each of its parts:

  better = {A = ["B", "C"]}  row A is better than row B, and than row C
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from experiments.artefacts.artefact import Entries, Key, Records, rows_named
from experiments.artefacts.blocks import Claim, Quantity
from experiments.artefacts.values import ACCURACY, Value, at_chance, value

# Seed -> value, NaN where it is lost.
_OfSeeds = Mapping[int, float]
# Verb of a claim -> the sign of a difference that agrees with it. For `better`
# the sign depends on the metric.
_VERBS = {"better": 0, "more": 1, "less": -1, "near": 1}
_LIMITS = ("above", "below", "near")


class Comparison(NamedTuple):
  """What a claim compares: rows with one another, or with a number.

  In the file, a name of `groups` may stand for a list of rows.

  Attributes:
    value: what is compared, see values.py.
    values: several values, in place of one.
    better: row -> rows that it is better than. The metric decides whether
      larger values are better.
    more: row -> rows that have a smaller value.
    less: row -> rows that have a greater value.
    near: row -> rows whose value differs by at most `within`; or a number from
      which the value of each of `in_rows` differs by at most that.
    within: see `near`.
    above: the number that the value is above in each of `in_rows`.
    below: the number that the value is below in each of `in_rows`.
    by: the least difference that agrees with the claim, one number or one for
      each of `values`.
    in_rows: rows in each of which columns are compared, and not rows.
    between: two columns; what is compared is what a row gains from the first to
      the second.
  """

  value: str = ACCURACY
  values: Sequence[str] = ()
  better: Mapping[str, Sequence[str]] = {}
  more: Mapping[str, Sequence[str]] = {}
  less: Mapping[str, Sequence[str]] = {}
  near: Mapping[str, Sequence[str]] | float = {}
  within: float = 0.0
  above: float | None = None
  below: float | None = None
  by: float | Sequence[float] = 0.0
  in_rows: Sequence[str] = ()
  between: Sequence[str | Sequence[str]] = ()


class ClaimDeclaration(NamedTuple):
  """A claim as a file declares it.

  Attributes:
    text: the claim. {0} and {1} stand for the parts of an entry of `at`.
    at: the other parts of the keys; there is a claim for each entry, if
      anything of it has run. The file may say "columns", for the artefact's
      columns.
    all_of: as `at`, but there is one claim about all entries together.
    parts: the comparisons, all in one claim. In the file, entries of the claim
      itself hold for all of them.
    only_run: whether cells that have not run are left out; otherwise they leave
      a claim undecided.
    ours: whether the claim is ours and not the paper's.
    of: the claim that these are cases of; by default `text`.
    uncounted: why the claim is shown, but not counted.
  """

  text: str
  parts: Sequence[Comparison]
  at: Sequence[str | Sequence[str]] = ((),)
  all_of: Sequence[str | Sequence[str]] = ()
  only_run: bool = False
  ours: bool = False
  of: str = ""
  uncounted: str = ""


def declared(entries: Entries) -> list[ClaimDeclaration]:
  """The claims that an artefact declares."""
  declarations = []
  for table in entries.get("claims", ()):
    own = {n: v for n, v in table.items() if n in ClaimDeclaration._fields}
    shared = {n: v for n, v in table.items() if n in Comparison._fields}
    parts = [_comparison(entries, shared | p) for p in own.pop("parts", [{}])]
    if own.get("at") == "columns":
      own["at"] = entries["columns"]
    declarations.append(ClaimDeclaration(parts=parts, **own))
  return declarations


def _comparison(entries: Entries, table: Mapping[str, Any]) -> Comparison:
  """A comparison, with the rows of groups in place of their names."""
  rows = {"in_rows": rows_named(entries, table.get("in_rows", ()))}
  pairs = {
    verb: {row: rows_named(entries, others) for row, others in of_verb.items()}
    for verb in _VERBS
    if isinstance(of_verb := table.get(verb), dict)
  }
  return Comparison(**table | rows | pairs)


def claims(entries: Entries, records: Records) -> list[Claim]:
  """The claims of an artefact, if anything that they compare has run."""
  titles, all_claims = entries.get("titles", {}), []
  for claim in declared(entries):
    places = [claim.all_of] if claim.all_of else [[place] for place in claim.at]
    for together in places:
      all_claims.append(_claim(claim, [*map(_rest, together)], records, titles))
  return [claim for claim in all_claims if claim is not None]


def _claim(
  claim: ClaimDeclaration,
  rests: Sequence[Key],
  records: Records,
  titles: Mapping[str, str],
) -> Claim | None:
  """One claim about all these other parts of keys; None if nothing has run."""
  quantities = []
  for rest in rests:
    for part in claim.parts:
      for q in _quantities(part, records, rest):
        where = rest if len(rests) > 1 else ()
        quantities.append(q._replace(name=", ".join((q.name, *where))))
  run = [quantity for quantity in quantities if quantity.values]
  if not run:
    return None
  text = claim.text.format(*[titles.get(p, p) for p in rests[0]])
  return Claim(
    text,
    run if claim.only_run else quantities,
    claim.ours,
    claim.of or claim.text,
    claim.uncounted,
  )


def _rest(place: str | Sequence[str]) -> Key:
  return (place,) if isinstance(place, str) else tuple(place)


def _quantities(
  part: Comparison, records: Records, rest: Key
) -> Iterator[Quantity]:
  words = part.values or [part.value]
  limits = part.by if isinstance(part.by, list) else [part.by] * len(words)
  for of, limit in zip(map(value, words), limits, strict=True):
    for bound in _LIMITS:
      if isinstance(getattr(part, bound), int | float):
        for row in part.in_rows:
          yield _limited(part, records, (row, *rest), of, bound)
    for verb in _VERBS:
      for first, second in _pairs(part, verb):
        keys = (*first, *rest), (*second, *rest)
        yield _compared(part, records, *keys, of, verb, limit)


def _pairs(part: Comparison, verb: str) -> Iterator[tuple[Key, Key]]:
  """The pairs that a verb compares: rows, or columns in some rows."""
  pairs = getattr(part, verb)
  for name, other_names in pairs.items() if isinstance(pairs, dict) else ():
    for other_name in other_names:
      if not part.in_rows:
        yield (name,), (other_name,)
      for row in part.in_rows:
        yield _key(row, name), _key(row, other_name)


def _key(row: str, column: str) -> Key:
  """The key of a cell; '' is a column without a name."""
  return (row, column) if column else (row,)


def _compared(
  part: Comparison,
  records: Records,
  first: Key,
  second: Key,
  of: Value,
  verb: str,
  limit: float,
) -> Quantity:
  if part.between:
    quantity = _gains_more(part.between, records, first, second, of)
  else:
    quantity = lead(records, first, second, of, _VERBS[verb])
  if verb == "near":
    margins = tuple(part.within - abs(v) for v in quantity.values)
    name = f"{part.within:g} less what is between: {quantity.name}"
    return quantity._replace(name=name, values=margins)
  return quantity._replace(limit=limit)


def lead(
  records: Records,
  one: Key,
  other: Key,
  of: Value | None = None,
  sign: int = 0,
) -> Quantity:
  """The difference of two cells, at the seeds that both have.

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
  keys = one, other
  measured = [_measured(records, key, of) for key in keys]
  quantity = _above(name, sides, measured, of, sign * of.scale)
  if of.words != ACCURACY or not quantity.values:
    return quantity
  counts = [at_chance(records[key]) for key in keys]
  words = _at_seeds(sides, "ended at chance", counts, len(quantity.values))
  return quantity._replace(at_chance=words)


def _above(
  name: str,
  sides: Sequence[str],
  values: Sequence[_OfSeeds | None],
  of: Value,
  scale: float,
) -> Quantity:
  """The quantity that one side is above another, at seeds that both have.

  Args:
    name: the quantity's name.
    sides: names of both sides.
    values: of both sides, NaN where a seed is lost; None if a side has not run.
    of: the value that is compared.
    scale: factor of the difference; negative if smaller is better.
  """
  if any(side is None for side in values):
    return Quantity(name, (), of.unit)
  difference = _difference(*values, scale)
  lost = [sum(not np.isfinite(v[s]) for s in difference) for v in values]
  words = _at_seeds(sides, of.lost, lost, len(difference))
  return Quantity(name, tuple(difference.values()), of.unit, lost=words)


def _difference(one: _OfSeeds, other: _OfSeeds, scale: float) -> _OfSeeds:
  """One less the other, at seeds that both have; infinite if one is lost."""
  seeds = [seed for seed in one if seed in other]
  a, b = (np.array([of[s] for s in seeds], float) for of in (one, other))
  difference = scale * (a - b) + 0.0  # It turns -0 into 0.
  difference = np.where(np.isnan(a) & ~np.isnan(b), -np.inf, difference)
  difference = np.where(np.isnan(b) & ~np.isnan(a), np.inf, difference)
  return dict(zip(seeds, difference.tolist(), strict=True))


def _at_seeds(
  sides: Sequence[str], what: str, counts: Sequence[int], num_seeds: int
) -> str:
  """What happened to which side, at how many seeds; '' if to none."""
  return " and ".join(
    f"{side} {what} at {count} of {num_seeds} seeds"
    for side, count in zip(sides, counts, strict=True)
    if count
  )


def _what(of: Value) -> str:
  """The name of the compared value; '' for the usual one."""
  return "" if of.words in (ACCURACY, of.unit) else f", {of.label}"


def _measured(records: Records, key: Key, of: Value) -> _OfSeeds | None:
  """The values of a cell; None if it has not run or did not measure them."""
  if key not in records or of.metric not in records[key].history.metrics:
    return None
  # Points of calls of a function may have no seed, but a place.
  seeds = [p.get("seed", i) for i, p in enumerate(records[key].points)]
  return dict(zip(seeds, of.compute(records[key]).tolist(), strict=True))


def _gains_more(
  between: Sequence[Any], records: Records, one: Key, other: Key, of: Value
) -> Quantity:
  """The quantity that one row gains more between two columns than another."""
  start, end = map(_rest, between)
  scale = -of.scale if of.is_smaller_better else of.scale
  gains = []
  for row, *rest in (one, other):
    keys = (row, *end, *rest), (row, *start, *rest)
    sides = [_measured(records, key, of) for key in keys]
    gains.append(None if None in sides else _difference(*sides, scale))
  name = f"gain of {one[0]} minus that of {other[0]}{_what(of)}"
  return _above(name, (one[0], other[0]), gains, of, 1.0)


def _limited(
  part: Comparison, records: Records, key: Key, of: Value, bound: str
) -> Quantity:
  """The quantity that a value is above or below a limit, or near it."""
  limit = getattr(part, bound)
  sides = [f"{key[0]}'s {of.label}", f"{limit:g}"]
  name = " minus ".join(sides if bound == "above" else reversed(sides))
  per_seed = _measured(records, key, of)
  if bound == "near" and per_seed is not None:
    distances = [of.scale * abs(v - limit) for v in per_seed.values()]
    margins = tuple(part.within - distance for distance in distances)
    name = f"{part.within:g} less the distance of {key[0]} to {limit:g}"
    return Quantity(name, margins, of.unit)
  scale = of.scale if bound == "above" else -of.scale
  limits = None if per_seed is None else dict.fromkeys(per_seed, limit)
  return _above(name, (key[0], "the limit"), (per_seed, limits), of, scale)
