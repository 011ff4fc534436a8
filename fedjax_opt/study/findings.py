"""What a study says in a sentence; every claim follows the rule of verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedjax_opt.study import verdicts, words
from fedjax_opt.study.verdicts import (
  BEST,
  COLLAPSED,
  DIVERGED,
  TIED,
  WORSE,
  JudgedStudy,
  Verdict,
)
from fedjax_opt.study.words import condition_label

# So many conditions are named; more are counted, for so many methods.
_MAX_NAMED = 3
_LOST = (DIVERGED, COLLAPSED)  # Without a result.


def answer(study: JudgedStudy) -> str:
  """Which method is the best where, and by how much others are worse."""
  compared = verdicts.compared(study)
  if not compared:
    return f"{'; '.join(_alone(study, v) for v in study.verdicts)}."
  groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
  worse = set()
  for condition in compared:
    here = [v for v in study.verdicts if dict(v.cell.condition) == condition]
    who = _who(study, here)
    groups.setdefault(_best(study, here, who), []).append(condition)
    worse.add(tuple(who[WORSE]))
  parts = [
    f"{best}{_where(conditions, compared)}{apart}"
    for (best, apart), conditions in groups.items()
  ]
  if len(groups) > 1 and len(compared) > _MAX_NAMED:
    parts = _counts(study, compared)
  if any(worse):
    whose = f"{_are(next(iter(worse)))} worse,"
    whose = whose if len(worse) == 1 else "where a method is worse, it is"
    parts.append(f"{whose} by {_far(study)}")
  for kind in _LOST:
    lost = list(dict.fromkeys(_who(study, study.verdicts)[kind]))
    if lost and any(v.verdict == BEST for v in study.verdicts):
      where = " under some condition" * (len(compared) > 1)
      parts.append(f"{words.named(lost)} {kind}{where}")
  return f"By mean {words.metric_words(study.metric)}, {'; '.join(parts)}."


def effect(study: JudgedStudy) -> str:
  """The smallest effect of interest in words: 0.5 points."""
  least = study.smallest_effect
  numbers = words.Numbers(study.metric)
  return f"{numbers.value(least)} points" if numbers.unit else f"{least:g}"


def _alone(study: JudgedStudy, verdict: Verdict) -> str:
  """What is said of a cell to which nothing is compared."""
  condition = condition_label(verdict.cell.condition)
  label = verdicts.names_of(study)[verdict.cell.method]
  said = verdict.verdict
  if said not in _LOST:
    value = verdicts.numbers_of(study).whole(verdict.value, "95 % interval ")
    said = f"has a mean {words.metric_words(study.metric)} of {value}"
  return f"{label} {said}{condition and f' at {condition}'}"


def _who(study: JudgedStudy, here: Sequence[Verdict]) -> dict[str, list[str]]:
  """verdict -> the names of the methods that have it."""
  labels = verdicts.names_of(study)
  return {
    kind: [labels[v.cell.method] for v in here if v.verdict == kind]
    for kind in (BEST, TIED, WORSE, *_LOST)
  }


def _best(
  study: JudgedStudy, here: Sequence[Verdict], who: Mapping[str, Sequence[str]]
) -> tuple[str, str]:
  """Who is best under a condition, and who is not told apart from it."""
  if not who[BEST]:
    lost = " or ".join(kind for kind in _LOST if who[kind])
    return f"every method {lost}", ""
  best = f"{_are(who[BEST])} best"
  if len(who[BEST]) == 1 and len(study.conditions) == 1:
    value = next(v.value for v in here if v.verdict == BEST)
    shown = verdicts.numbers_of(study).whole(value, "95 % interval ")
    best += f" with {shown}"
  apart = f", not told apart from {words.named(who[TIED])}"
  return best, apart * bool(who[TIED])


def _where(
  conditions: Sequence[Mapping[str, Any]], among: Sequence[Mapping[str, Any]]
) -> str:
  """Under which of these conditions."""
  total = len(among)
  if len(conditions) < total:
    return f" at {' and at '.join(map(condition_label, conditions))}"
  all_of = "both" if total == 2 else f"all {total}"
  return f" under {all_of} conditions" * (total > 1)


def _counts(
  study: JudgedStudy, compared: Sequence[Mapping[str, Any]]
) -> list[str]:
  """Under how many conditions methods are the best, or not told apart."""
  found = []
  for method, label in verdicts.names_of(study).items():
    here = [v for v in study.verdicts if dict(v.cell.condition) in compared]
    mine = [v.verdict for v in here if v.cell.method == method]
    times = {"best": mine.count(BEST)}
    times["not told apart from the best"] = mine.count(TIED)
    said = [f"{what} under {n}" for what, n in times.items() if n]
    found.append((sum(times.values()), f"{label} is {' and '.join(said)}"))
  found = sorted((each for each in found if each[0]), key=lambda each: -each[0])
  parts = [said for _, said in found[:_MAX_NAMED]]
  parts[0] += f" of {len(compared)} conditions"
  others = found[_MAX_NAMED:]
  return parts + [f"{len(others)} more, under no more of them"] * bool(others)


def _far(study: JudgedStudy) -> str:
  """How far worse methods are behind the best: '1.1 to 1.9 points'."""
  numbers = verdicts.numbers_of(study)
  behind = [v.behind for v in study.verdicts if v.verdict == WORSE]
  ends = [f(behind, key=lambda each: each.estimate) for f in (min, max)]
  shown = [numbers.parts(each, True) for each in ends]
  text = " to ".join(dict.fromkeys(text for text, _ in shown))
  text += " points" * bool(numbers.unit)
  interval = shown[0][1] if len(behind) == 1 else ""
  return f"{text} ({interval})" if interval else text


def _are(names: Sequence[str]) -> str:
  return f"{words.named(names)} {'is' if len(names) == 1 else 'are'}"
