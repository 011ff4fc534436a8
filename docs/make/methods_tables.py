"""Fills the tables of methods.md and tasks.md from the registries.

  PYTHONPATH=. python docs/make/methods_tables.py

The site fills them again when it is built.
"""

import pathlib
import re
from collections.abc import Callable, Mapping

import marks

from experiments import tasks
from experiments.command_line.choice_pages import source_of
from experiments.command_line.texts import shown_default
from experiments.specification import choice_flags
from experiments.specification.choice_flags import ChoiceFlag
from experiments.tasks import images
from fedjax_opt.registry import Entry
from fedjax_opt.results.names import name_of

_HERE = pathlib.Path(__file__).parents[1]
PAGES = (_HERE / "methods.md", _HERE / "tasks.md")
# title -> the algorithms of this group.
_GROUPS = {
  "Averages, server rules": (
    "fed_avg fed_avg_m fed_adam fed_yogi fed_adagrad fed_exp fed_nova local_sgd"
    " minibatch_sgd diloco centralized local"
  ),
  "Against drift": (
    "fed_prox moon scaffold fed_dyn fed_dc fed_cm mime_lite prox_skip bvr_l_sgd"
    " minibatch_sarah"
  ),
  "Momentum, adaptive clients": (
    "domo domo_s fed_avg_sm fed_avg_lm fed_avg_lm_z fed_avg_slm fed_avg_slm_z"
    " fed_acg fed_adamw fed_lada"
  ),
  "Sharpness-aware": (
    "fed_sam mo_fed_sam fed_speed fed_gamma fed_lesam fed_smoo"
  ),
  "Composite": (
    "fed_mid fed_mid_osp fed_dual_avg fed_dual_avg_osp fed_avg_subgradient"
  ),
  "A model for each client": (
    "ditto fed_per fed_rep fed_bn p_fed_me per_fed_avg"
  ),
  "On a clock": "fed_buff fed_async ca2fl fadas",
  "Adapters": "fed_ex_lora",
}
_WORDS = "| {} | what |\n|---|---|\n"
_HEAD = """\
| name | what | flags | source |
|---|---|---|---|
"""
# The end of a help that the source says again: authors and year.
_CITATION = re.compile(r" \((\w+)[^()]*\d{4}\)$")


def _of(kind: ChoiceFlag) -> Callable[[], str]:
  return lambda: _table(kind, kind.entries)


# title -> its rows; made when asked, as registries get other entries.
TABLES: dict[str, Callable[[], str]] = {
  "algorithms": lambda: _algorithms(),
  "rules": _of(choice_flags.CLIENT),
  "uploads": _of(choice_flags.UPLOAD),
  "aggregators": _of(choice_flags.AGGREGATOR),
  "faults": _of(choice_flags.FAULT),
  "privacy": _of(choice_flags.PRIVACY),
  "regularizers": _of(choice_flags.REGULARIZER),
  "partitions": _of(choice_flags.PARTITION),
  "samplers": _of(choice_flags.SAMPLER),
  "data sets": lambda: (
    _WORDS.format("data set")
    + "".join(
      f"| {_both(name, data.label or data.help)} | {_images(data)} |\n"
      for name, data in images.DATASETS.items()
    )
  ),
  "models": lambda: (
    _WORDS.format("model")
    + "".join(
      f"| {_both(name, model.label)} | {model.help} |\n"
      for name, model in images.MODELS.items()
    )
  ),
  "tasks": lambda: _table(choice_flags.TASK, tasks.by_own_name()),
}


def _algorithms() -> str:
  """A table for each group of algorithms."""
  entries, parts = dict(choice_flags.ALGORITHM.entries), []
  for title, names in _GROUPS.items():
    parts.append((title, {name: entries.pop(name) for name in names.split()}))
  if entries:
    parts.append(("Others", entries))
  return "\n".join(
    f"### {title}\n\n{_table(choice_flags.ALGORITHM, group)}"
    for title, group in parts
  )


def _table(kind: ChoiceFlag, entries: Mapping[str, Entry]) -> str:
  rows, owners = [], {}
  for name, entry in entries.items():
    source = source_of(entry).removesuffix(".")
    # A source that a row before has is not said again.
    owner = owners.setdefault(source, name)
    source_text = source if not source or owner == name else f"as `{owner}`"
    rows.append(_row(kind, name, entry, source_text))
  return _HEAD + "".join(rows)


def _row(kind: ChoiceFlag, name: str, entry: Entry, source: str) -> str:
  meaning, citation = entry.help, _CITATION.search(entry.help)
  if citation and citation[1] in source_of(entry):
    meaning = meaning[: citation.start()]
  meaning = _with_labels(meaning)
  flags = [
    f"`--{flag}` {shown_default(parameter.default)}".strip()
    for flag, parameter in kind.parameters(name).items()
  ]
  shown = source or "–" * (kind is choice_flags.ALGORITHM)
  cells = (_both(name, name_of(name)), meaning, ", ".join(flags), shown)
  text = " | ".join(cell.replace("|", r"\|") for cell in cells)
  return f"| {text} |\n"


def _with_labels(text: str) -> str:
  """Prose in which algorithms have the names that people call them by."""
  for name in choice_flags.ALGORITHM.entries:
    label = name_of(name)
    if "_" in name or label.isupper():  # The others are also plain words.
      text = re.sub(rf"\b{name}\b", label, text)
  return re.sub(r"\b(fedopt_\w+)", r"`\1`", text)


def _both(name: str, label: str) -> str:
  """A name, and what people call it if this is something else."""
  is_same = re.sub("[ -]", "_", label) == name
  return f"`{name}`" if is_same else f"`{name}`<br>{label}"


def _images(data: images.Images) -> str:
  """What the images of a data set are."""
  colors = "gray" if len(data.mean) == 1 else "color"
  return f"{data.side} x {data.side}, {colors}, {data.num_classes} classes"


def filled(text: str) -> str:
  """A page with each table between its two marks made anew."""
  for title, table in TABLES.items():
    text = marks.filled(text, title, table())
  return text


if __name__ == "__main__":
  for page in PAGES:
    page.write_text(filled(page.read_text()))
