"""What a study says in sentences; every claim follows the rule of verdicts."""

from __future__ import annotations

from collections.abc import Sequence

from fedjax_opt.study import verdicts, words
from fedjax_opt.study.verdicts import (
  BEST,
  DIVERGED,
  TIED,
  WORSE,
  JudgedStudy,
  Verdict,
)
from fedjax_opt.study.words import condition_label


def sentences(study: JudgedStudy) -> list[str]:
  """What the numbers say: one sentence over all, one for each condition.

  Every claim follows the rule of verdicts.
  """
  lines = []
  if len(verdicts.compared(study)) > 1:
    lines.append(_over_conditions(study))
  for i, condition in enumerate(study.conditions):
    here = [v for v in study.verdicts if dict(v.cell.condition) == condition]
    # What an interval is, is said once.
    lines.append(_of_condition(study, here, "" if i else "95 % interval "))
  return lines


def _over_conditions(study: JudgedStudy) -> str:
  """Under how many conditions each method is the best or not told apart."""
  conditions, labels = verdicts.compared(study), verdicts.names_of(study)
  names: dict[tuple[int, int], list[str]] = {}
  for method in study.methods:
    here = [
      v.verdict
      for v in study.verdicts
      if v.cell.method == method and dict(v.cell.condition) in conditions
    ]
    if here:
      leads = sum(verdict in (BEST, TIED) for verdict in here)
      names.setdefault((leads, len(here)), []).append(labels[method])
  parts = []
  for leads, number in sorted(names, key=lambda each: -each[0] / each[1]):
    who = words.listed(names[leads, number])
    if not parts:
      many = len(names[leads, number]) > 1
      who += (
        f" {'are' if many else 'is'} best, or not told apart from the best,"
      )
    share = f"{leads} of {number}" if leads else "none"
    if leads == number == len(conditions):
      share = "both" if number == 2 else f"all {number}"
    parts.append(f"{who} under {share}")
  parts[0] += " conditions" if not parts[0].endswith("none") else ""
  return f"{'; '.join(parts)}."


def _of_condition(
  study: JudgedStudy, here: Sequence[Verdict], interval: str
) -> str:
  condition, labels = here[0].cell.condition, verdicts.names_of(study)
  where = f"At {condition_label(condition)}, " if condition else ""
  who = {
    kind: [labels[v.cell.method] for v in here if v.verdict == kind]
    for kind in (BEST, TIED, WORSE, DIVERGED)
  }
  if not who[BEST]:
    every = "every method" if where else "Every method"
    return f"{where}{who[DIVERGED][0] if len(here) == 1 else every} diverged."
  text = where + words.listed(who[BEST])
  what = f"mean {words.metric_words(study.metric)}"
  numbers = verdicts.numbers_of(study)
  best = next(v.value for v in here if v.verdict == BEST)
  value = numbers.whole(best, interval)
  if len(here) == 1:
    return f"{text} has a {what} of {value}."
  are_many = len(who[BEST]) > 1
  way = "highest" if study.is_larger_better else "lowest"
  text += f" {'have the same' if are_many else 'has the'} {way} {what}"
  means = [v.value.estimate for v in here if v.verdict != DIVERGED]
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
    text += f"; {_are(who[WORSE])} worse"
  if who[DIVERGED]:
    text += f"; {words.listed(who[DIVERGED])} diverged"
  return f"{text}."


def _are(names: Sequence[str]) -> str:
  return f"{words.listed(names)} {'is' if len(names) == 1 else 'are'}"
