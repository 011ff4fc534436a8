"""Fills the tables of comparison.md from the published records.

  PYTHONPATH=. python docs/comparison_tables.py

The site fills them again when it is built, and shows all cells on a page that
sorts and filters in the browser.
"""

import collections
import functools
import pathlib
import shutil

import marks

from experiments.artefacts import record
from experiments.reference import page, plans, standing
from experiments.reference.plans import Condition
from experiments.reference.standing import Standing
from experiments.specification import kinds
from fedjax_opt.results.names import name_of
from fedjax_opt.study.report import formats
from fedjax_opt.study.report.study_tables import Entry, Table
from fedjax_opt.study.study import Study
from fedjax_opt.study.verdicts import Verdict, numbers_of

NAME = "field"
PAGE = pathlib.Path(__file__).parent / "comparison.md"
_SHOWN = 12  # Methods of a condition; the page in the browser has all.


@functools.cache
def published() -> Standing:
  """The conditions under which all methods have records."""
  asked = plans.read(NAME)
  begun = [c for c in asked.conditions if (asked.records / c.name).exists()]
  places = asked._replace(conditions=begun).places(asked.methods)
  is_there = lambda place: (asked.records / place.file).exists()
  lacking = {p.condition.name for p in places if not is_there(p)}
  places = [p for p in places if p.condition.name not in lacking]
  return standing.of(asked, places, [asked.records], [])


def filled(text: str) -> str:
  """The page with what its two marks enclose made anew."""
  found = published()
  sections = [_extent(found), *(_section(found, n) for n in found.studies)]
  return marks.filled(text, "conditions", "\n".join(sections))


def _extent(found: Standing) -> str:
  """Which conditions are complete, and the time that their cells took."""
  conditions = found.reference.conditions
  left = [c.title for c in conditions if c.name not in found.studies]
  said = f"{len(found.studies)} of {len(conditions)} conditions are complete."
  if left:
    said += f" The others are {'; '.join(left)}."
  seconds = sum(
    each.about["seconds"]
    for place in found.places
    for each in record.read(found.reference.records / place.file)
  )
  return f"{said} All cells took {seconds / 3600:.0f} hours of one core.\n"


def _section(found: Standing, name: str) -> str:
  study, condition = found.studies[name], found.condition(name)
  sign = -1 if study.is_larger_better else 1
  ranked = sorted(study.verdicts, key=lambda v: sign * v.value.estimate)
  shown, others = ranked[:_SHOWN], ranked[_SHOWN:]
  counts = collections.Counter(verdict.verdict for verdict in others)
  rest = " and ".join(f"{n} {_verb(said, n)}" for said, n in counts.items())
  told = f"{len(ranked)} methods."
  if others:
    told += f" The table has the {len(shown)} with the best means."
    told += f" Of the others, {rest}."
  if study.target is not None:
    told += (
      " *Rounds*, *MB* and *gradients* (in thousands) are what a client needs "
      f"to reach a test accuracy of {100 * study.target:g} %."
    )
  table = Table([_row(study, verdict) for verdict in shown], 1)
  rows = formats.markdown(table).strip()
  return f"### {condition.title}\n\n{_trained(condition)}\n\n{told}\n\n{rows}\n"


def _trained(condition: Condition) -> str:
  """What all methods train under a condition, and how."""
  flags = condition.flags
  task = kinds.TASK.entries[flags["task"]].help.split("\n")[0]
  parts = [task[0].upper() + task[1:]]
  if "strength" in flags:
    parts.append(f"l1 of strength {flags['strength']}")
  if "partition" in flags:
    parts.append(f"partition `{flags['partition']}`")
  if "examples_per_client" in flags:
    parts.append(f"{flags['examples_per_client']} examples of each client")
  steps, batch = flags["local_steps"], flags["batch_size"]
  parts.append(
    f"{flags['rounds']} rounds of {steps} local steps on {batch} examples"
  )
  return f"{'; '.join(parts)}."


def _verb(verdict: str, number: int) -> str:
  if verdict == "diverged":
    return verdict
  return f"{'is' if number == 1 else 'are'} {verdict}"


def _row(study: Study, verdict: Verdict) -> dict[str, str | Entry]:
  cell, numbers = verdict.cell, numbers_of(study)
  edges = cell.tuning.edges if cell.tuning else ()
  metric = name_of(study.metric).removeprefix("test ").capitalize()
  metric += " (%)" * bool(numbers.unit)
  return {
    "Method": study.labels[cell.method],
    metric: Entry(*numbers.parts(verdict.value)),
    "Verdict": verdict.verdict,
    **(_costs(study, verdict) if study.target is not None else {}),
    "At edge": ", ".join(name_of(each.name) for each in edges) or "–",
  }


def _costs(study: Study, verdict: Verdict) -> dict[str, str]:
  number = lambda name, scale: f"{verdict.to_target[name] / scale:.3g}"
  costs = {
    "Rounds": number("rounds", 1),
    "MB": number("bytes", 1e6),
    "Gradients": number("gradient_evaluations", 1e3),
  }
  return {name: each.replace("nan", "–") for name, each in costs.items()}


def write_browser_page(folder: pathlib.Path) -> None:
  """Writes the sortable page, beside a copy of the records that it links to."""
  shutil.rmtree(folder, ignore_errors=True)
  shutil.copytree(plans.read(NAME).records, folder)
  path = page.write(published(), folder)
  home = '<p><a href="../comparison.html">The reference comparison</a></p>\n'
  path.write_text(path.read_text().replace("<h1>", home + "<h1>"))


if __name__ == "__main__":
  PAGE.write_text(filled(PAGE.read_text()))
