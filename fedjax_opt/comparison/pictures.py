"""The pictures of a study: one for each question, where it has the data.

Each is described by a `Picture`, which says in its caption what it draws.
"""

import functools
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedjax_opt.comparison import drawing, tuning_pictures, words
from fedjax_opt.comparison.cells import Cell, Study, condition_label
from fedjax_opt.comparison.drawing import Drawn, Picture
from fedjax_opt.comparison.tables import axes_of
from fedjax_opt.comparison.verdicts import (
  DIVERGED,
  Verdict,
  matrices_of,
  numbers_of,
  overall,
  spent,
)
from fedjax_opt.results import plots, statistics
from fedjax_opt.results.history import is_fraction
from fedjax_opt.results.names import name_of
from fedjax_opt.results.plots.metric_axis import metric_axis
from fedjax_opt.results.plots.study_curves import curves_axis

_NUM_THRESHOLDS = 101
_TRACES = ("step_size", "smoothness_step", "growth_step")


def of_study(study: Study, found: Sequence[Verdict]) -> list[Picture]:
  """The pictures of a study; the first one is the main one."""
  labels = drawing.legend_labels(study.labels)
  looks = plots.method_styles(labels.values())
  drawn = Drawn(study, found, labels, looks)
  pictures = [
    *_against_conditions(drawn),
    *_learning_curves(drawn),
    *_profiles(drawn),
    *tuning_pictures.pictures(drawn),
    *_clients(drawn),
    *_step_sizes(drawn),
  ]
  names: set[str] = set()
  return [each._replace(name=_unused(each.name, names)) for each in pictures]


def _unused(name: str, names: set[str]) -> str:
  """A name for files that is not among `names`, and then is."""
  name = re.sub(r"[^A-Za-z0-9_-]+", "_", name)
  unused, copy = name, 1
  while unused in names:
    copy += 1
    unused = f"{name}_{copy}"
  names.add(unused)
  return unused


# The final value against a condition.


def _against_conditions(drawn: Drawn) -> list[Picture]:
  """For each condition that is a number and has several values."""
  pictures = []
  for name in axes_of(drawn.study):
    values = list(dict.fromkeys(c.get(name) for c in drawn.study.conditions))
    if len(values) > 1 and all(map(drawing.is_number, values)):
      pictures += _against(drawn, name, sorted(values))
  return pictures


def _against(drawn: Drawn, name: str, values: list[Any]) -> list[Picture]:
  study = drawn.study
  of_cell = {(v.cell.method, _key(v.cell.condition)): v for v in drawn.found}
  panels: dict[str, dict[str, Any]] = {}
  for condition in study.conditions:
    rest = {n: v for n, v in condition.items() if n != name}
    panel = panels.setdefault(drawn.panel_title(condition_label(rest)), {})
    for method, label in drawn.labels.items():
      keys = [(method, _key({**rest, name: value})) for value in values]
      if label not in panel and all(key in of_cell for key in keys):
        panel[label] = np.array([of_cell[key].value for key in keys]).T
  panels = {title: panel for title, panel in panels.items() if panel}
  if not panels:
    return []
  missing = set(drawn.labels.values()) - {m for p in panels.values() for m in p}
  legend, seeds = drawing.seeds(
    (v.num_seeds for v in drawn.found), "of the report"
  )
  metric = study.metric
  is_error = metric_axis(
    metric,
    [np.array([m]) for p in panels.values() for v in p.values() for m in v[0]],
    whole=True,
  ).is_error
  others = ", a panel for each of the other conditions" * (len(panels) > 1)
  caption = (
    f"{drawing.with_examples(metric)} after the last round against "
    f"{name_of(name)}{others}: {seeds}, of each method at its chosen setting."
    f"{drawing.error_text(is_error)}"
  )
  if any(v.verdict == DIVERGED for v in drawn.found):
    caption += " A cross at the edge marks where a seed diverged."
  if missing:
    caption += (
      f" Without {words.listed(sorted(missing))}, which did not run under all "
      "conditions."
    )
  draw = functools.partial(
    plots.study_values,
    drawing.flat(panels),
    metric=metric,
    x_name=drawing.in_picture(name),
    x_values=values,
    interval=legend,
    styles=drawn.looks,
  )
  what = words.metric_words(metric)
  title = f"How does the {what} depend on {name_of(name)}?"
  return [Picture(f"against_{name}", title, caption, draw)]


def _key(condition: Mapping[str, Any]) -> tuple:
  return tuple(sorted((n, repr(v)) for n, v in condition.items()))


# Learning curves.


def _learning_curves(drawn: Drawn) -> list[Picture]:
  """Against rounds, and against what differs between methods beside them."""
  pictures = []
  for x, words_of_x in (
    ("rounds", "communication rounds"),
    ("bytes", "bytes exchanged with a client (down and up)"),
    ("gradient_evaluations", "gradient evaluations of a client"),
  ):
    if x == "rounds" or _differs(drawn.study, x):
      pictures += _curves(drawn, x, words_of_x)
  return pictures


def _differs(study: Study, cost: str) -> bool:
  """Whether methods spend more than 1 % differently, and all counted it.

  What diverged under every setting spent nothing that is drawn.
  """
  by_condition = [
    [
      spent(cell, cost)
      for cell in study.under(condition).values()
      if cell.measured is not None
    ]
    for condition in study.conditions
  ]
  if any(each is None for cells in by_condition for each in cells):
    return False
  ends = [[each[-1] for each in cells] for cells in by_condition if cells]
  return any(max(each) > 1.01 * min(each) for each in ends)


def _curves(drawn: Drawn, x: str, words_of_x: str) -> list[Picture]:
  metric = drawn.study.metric

  def of_cell(cell: Cell) -> plots.Curve | None:
    places = spent(cell, x)
    if places is None or metric not in cell.measured.history.metrics:
      return None
    places = places / (1e6 if x == "bytes" else 1)
    interval = statistics.mean_interval(cell.measured.history.values(metric))
    return drawing.curve(places, *map(np.atleast_1d, interval))

  panels = drawn.panels(of_cell)
  if not panels:
    return []
  legend, seeds = drawing.seeds(
    (v.num_seeds for v in drawn.found), "of the report"
  )
  all_curves = [c for panel in panels.values() for c in panel.values()]
  is_error = curves_axis(metric, all_curves).is_error
  is_lost = any(not np.isfinite(c.mean[-1]) for c in all_curves)
  caption = (
    f"{drawing.with_examples(metric)} against {words_of_x}"
    f"{drawing.panels_text(len(panels))}: {seeds} at each evaluated "
    f"round, of each method at its chosen setting."
    f"{drawing.error_text(is_error, 'end')}{drawing.CROSS if is_lost else ''}"
  )
  lost = {c.method for c in drawn.study.cells if c.measured is None}
  if lost:
    names = [label for m, label in drawn.study.labels.items() if m in lost]
    caption += (
      f" Where every setting of a method diverged it has no curve: "
      f"{words.listed(names)}."
    )
  draw = functools.partial(
    plots.study_curves,
    drawing.flat(panels),
    metric=metric,
    x_label=x,
    interval=legend,
    styles=drawn.looks,
  )
  title = {
    "rounds": "How fast does each method learn?",
    "bytes": "What does each method reach for the bytes that it sends?",
    "gradient_evaluations": "What does each method reach for its computation?",
  }[x]
  name = "learning_curves" + ("" if x == "rounds" else f"_{x}")
  return [Picture(name, title, caption, draw)]


# Over all conditions.


def _profiles(drawn: Drawn) -> list[Picture]:
  study, metric = drawn.study, drawn.study.metric
  matrices = matrices_of(study)
  finite = [v[np.isfinite(v)] for v in matrices.values()]
  if not is_fraction(metric) or not any(each.size for each in finite):
    return []
  joined = np.concatenate(finite)
  margin = 0.02 * np.ptp(joined) or 0.01
  thresholds = np.linspace(
    max(joined.min() - margin, 0), min(joined.max() + margin, 1),
    _NUM_THRESHOLDS,
  )  # fmt: skip
  way = "max" if study.is_larger_better else "min"
  profiles = {
    drawn.labels[method]: drawing.curve(
      thresholds,
      *statistics.performance_profile(scores, thresholds, direction=way),
    )
    for method, scores in matrices.items()
  }
  middles = overall(study)
  numbers = numbers_of(study, drawn.found)
  each = [
    f"{words.name(study.labels[method])} {numbers.whole(value)}"
    for method, value in middles.items()
    if np.isfinite(value.estimate)
  ]
  caption = (
    "The share of all runs, of all conditions and seeds, that are better than "
    f"each {words.metric_words(metric)}, with its 95 % interval; a run that "
    "diverged has none. A line above another at every value is better "
    "throughout."
  )
  if each:
    caption += (
      " Interquartile means, of the middle half of the runs of a method of "
      f"which none diverged: {words.listed(each)}."
    )
  draw = functools.partial(
    plots.performance_profiles,
    profiles,
    metric=metric,
    interval="share of runs and 95 % interval",
    styles=drawn.looks,
  )
  title = "How good are the methods over all conditions?"
  return [Picture("performance_profile", title, caption, draw)]


# Clients.


def _clients(drawn: Drawn) -> list[Picture]:
  kinds = dict.fromkeys(k for c in drawn.study.cells for k in c.per_client)
  pictures = []
  for kind in kinds:
    panels = drawn.panels(functools.partial(_accuracies, kind=kind))
    if not panels:
      continue
    first = next(iter(next(iter(panels.values())).values()))
    is_histogram = max(map(len, panels.values())) == 1
    marks = (
      "Lines mark the mean, and the mean of the worst 10 % of the clients."
      if is_histogram
      else "A triangle marks the mean of the worst 10 % of the clients."
    )
    caption = (
      f"How the accuracy of the {name_of(kind)} model is spread over the "
      "clients, each measured on examples of its own that it held out"
      f"{drawing.panels_text(len(panels))}: {first.size} clients, of the first "
      f"seed of the report. {marks}"
    )
    draw = functools.partial(
      plots.client_distribution,
      drawing.flat(panels),
      metric="client_test_accuracy",
      styles=drawn.looks,
    )
    title = f"How even is the {name_of(kind)} model over the clients?"
    pictures.append(Picture(f"clients_{kind}", title, caption, draw))
  return pictures


def _accuracies(cell: Cell, kind: str) -> np.ndarray | None:
  found = np.asarray(cell.per_client.get(kind, ()), float)
  found = found[np.isfinite(found)]
  return found if found.size else None


# Step sizes.


def _step_sizes(drawn: Drawn) -> list[Picture]:
  pictures = []
  for cell in drawn.study.cells:
    trace = cell.step_sizes or {}
    if not all(name in trace for name in _TRACES):
      continue
    name = drawn.study.labels[cell.method]
    where = condition_label(cell.condition)
    label = f"{name}, {where}" if where else name
    caption = (
      f"{label}: the step sizes of the clients, of the first seed of the "
      "report; below, the share of the steps in which each branch of the rule "
      "was the smaller one."
    )
    draw = functools.partial(
      plots.step_sizes,
      {n.removesuffix("_step"): trace[n] for n in _TRACES[1:]}
      | {"step_size": trace["step_size"]},
      title=drawing.in_picture(label),
    )
    title = f"Which step sizes does {name} take?"
    pictures.append(Picture("step_sizes", title, caption, draw))
  return pictures
