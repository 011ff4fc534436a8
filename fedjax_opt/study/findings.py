"""What a study says in sentences; every claim follows the rule of verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedjax_opt.study import verdicts, words
from fedjax_opt.study.bootstrap import Interval
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

# So many conditions, or worse methods, are named in the answer over all
# conditions; more are counted.
_MAX_NAMED = 3
_LOST = (DIVERGED, COLLAPSED)  # Without a result.


def sentences(study: JudgedStudy) -> list[str]:
  """What the numbers say: the answer, and one sentence for each condition.

  Of a single condition its sentence is the answer.
  """
  lines = []
  if len(verdicts.compared(study)) > 1:
    lines.append(_over_conditions(study))
  for i, condition in enumerate(study.conditions):
    # What an interval is, is said once.
    interval = "" if i else "95 % interval "
    lines.append(_of_condition(study, _under(study, condition), interval))
  return lines


def effect(study: JudgedStudy) -> str:
  """The smallest effect of interest in words: 0.5 points."""
  least = study.smallest_effect
  numbers = words.Numbers(study.metric)
  return f"{numbers.value(least)} points" if numbers.unit else f"{least:g}"


def _over_conditions(study: JudgedStudy) -> str:
  """Which method is the best where, and by how much others are worse."""
  compared = verdicts.compared(study)
  groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
  worse = set()
  for condition in compared:
    who = _who(study, _under(study, condition))
    best = (
      f"{_are(who[BEST])} best" if who[BEST] else f"every method {_lost(who)}"
    )
    apart = f", not told apart from {words.named(who[TIED])}" * bool(who[TIED])
    groups.setdefault((best, apart), []).append(condition)
    worse.add(_others(who, who[WORSE]))
  parts = [
    f"{best} {_where(conditions, compared)}{apart}"
    for (best, apart), conditions in groups.items()
  ]
  if len(groups) > 1 and len(compared) > _MAX_NAMED:
    parts = _counts(study, compared)
  behind = [v.behind.estimate for v in study.verdicts if v.verdict == WORSE]
  if behind:
    whose = "where a method is worse, it is" if len(worse) > 1 else worse.pop()
    parts.append(f"{whose} by {_points(study, behind)}")
  for kind in _LOST:
    lost = list(dict.fromkeys(_who(study, study.verdicts)[kind]))
    if lost and any(v.verdict == BEST for v in study.verdicts):
      parts.append(f"{words.named(lost)} {kind} under some condition")
  return f"By mean {words.metric_words(study.metric)}, {'; '.join(parts)}."


def _under(study: JudgedStudy, condition: Mapping[str, Any]) -> list[Verdict]:
  """The verdicts under a condition."""
  return [v for v in study.verdicts if dict(v.cell.condition) == condition]


def _others(who: Mapping[str, Sequence[str]], worse: Sequence[str]) -> str:
  """Who is worse: by name if these are few."""
  is_rest = len(worse) > _MAX_NAMED and not (who[TIED] or _lost(who))
  return f"{'the others are' if is_rest else _are(worse)} worse,"


def _where(
  conditions: Sequence[Mapping[str, Any]], among: Sequence[Mapping[str, Any]]
) -> str:
  """Under which of these conditions: named if they are few."""
  number, total = len(conditions), len(among)
  if number == total:
    return (
      "under both conditions" if total == 2 else f"under all {total} conditions"
    )
  if total > _MAX_NAMED:
    return f"under {number} of {total} conditions"
  return f"at {' and at '.join(map(condition_label, conditions))}"


def _counts(
  study: JudgedStudy, compared: Sequence[Mapping[str, Any]]
) -> list[str]:
  """Under how many conditions each method is the best, or not told apart."""
  labels, total = verdicts.names_of(study), len(compared)
  shares = {
    (BEST,): "best",
    (BEST, TIED): "best or not told apart from the best",
  }
  parts = []
  for kinds, what in shares.items():
    names: dict[int, list[str]] = {}
    for method, label in labels.items():
      number = sum(
        v.verdict in kinds
        for v in study.verdicts
        if v.cell.method == method and dict(v.cell.condition) in compared
      )
      names.setdefault(number, []).append(label)
    names.pop(0, None)
    first, *rest = sorted(names, reverse=True)
    share = f"all {total}" if first == total else f"{first} of {total}"
    text = f"{_are(names[first])} {what} under {share} conditions"
    parts.append(
      ", ".join([text, *(f"{words.named(names[n])} under {n}" for n in rest)])
    )
  return parts


def _points(study: JudgedStudy, behind: Sequence[float]) -> str:
  """Differences to the best, with their unit: '1.1 to 1.9 points'."""
  numbers = verdicts.numbers_of(study)
  ends = [
    numbers.parts(Interval(each, np.nan, np.nan), True)[0]
    for each in (min(behind), max(behind))
  ]
  return " to ".join(dict.fromkeys(ends)) + " points" * bool(numbers.unit)


def _who(study: JudgedStudy, here: Sequence[Verdict]) -> dict[str, list[str]]:
  """verdict -> the names of the methods that have it."""
  labels = verdicts.names_of(study)
  return {
    kind: [labels[v.cell.method] for v in here if v.verdict == kind]
    for kind in (BEST, TIED, WORSE, *_LOST)
  }


def _lost(who: Mapping[str, Sequence[str]]) -> str:
  """What became of methods none of which has a result."""
  return " or ".join(kind for kind in _LOST if who[kind])


def _of_condition(
  study: JudgedStudy, here: Sequence[Verdict], interval: str
) -> str:
  condition, who = here[0].cell.condition, _who(study, here)
  where = f"At {condition_label(condition)}, " if condition else ""
  if not who[BEST]:
    every = "every method" if where else "Every method"
    alone = verdicts.names_of(study)[here[0].cell.method]
    return f"{where}{alone if len(here) == 1 else every} {_lost(who)}."
  text = where + words.named(who[BEST])
  what = f"mean {words.metric_words(study.metric)}"
  numbers = verdicts.numbers_of(study)
  best = next(v.value for v in here if v.verdict == BEST)
  value = numbers.whole(best, interval)
  if len(here) == 1:
    return f"{text} has a {what} of {value}."
  are_many = len(who[BEST]) > 1
  way = "highest" if study.is_larger_better else "lowest"
  text += f" {'have the same' if are_many else 'has the'} {way} {what}"
  means = [v.value.estimate for v in here if v.verdict not in _LOST]
  top = max(means) if study.is_larger_better else min(means)
  if all(
    verdicts.is_same(v.value.estimate, top) for v in here if v.verdict == BEST
  ):
    text += f", {numbers.alone(top) if are_many else value}"
  else:
    text += " over the seeds that all methods have"
    text += "" if are_many else f"; over all of its own it is {value}"
  if who[TIED]:
    text += f"; {_are(who[TIED])} not told apart from "
    text += "them" if are_many else "it"
  if who[WORSE]:
    behind = [v.behind for v in here if v.verdict == WORSE]
    far = _points(study, [each.estimate for each in behind])
    text += f"; {_are(who[WORSE])} worse, by {far}"
    if len(behind) == 1 and (ends := numbers.parts(behind[0], True)[1]):
      text += f" ({ends})"
  for kind in _LOST:
    if who[kind]:
      text += f"; {words.named(who[kind])} {kind}"
  return f"{text}."


def _are(names: Sequence[str]) -> str:
  return f"{words.named(names)} {'is' if len(names) == 1 else 'are'}"
