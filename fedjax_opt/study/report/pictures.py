"""The pictures of a study: one for each question, where it has the data.

Each is described by a `Picture`, which says in its caption what it draws.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedjax_opt.results.history import is_fraction
from fedjax_opt.results.names import name_of, sentence
from fedjax_opt.study import plots, verdicts, words
from fedjax_opt.study import seed_statistics as statistics
from fedjax_opt.study.cells import Cell
from fedjax_opt.study.plots.metric_axis import metric_axis
from fedjax_opt.study.plots.study_curves import curves_axis
from fedjax_opt.study.report import drawing, tuning_pictures
from fedjax_opt.study.report.drawing import Drawn, Picture
from fedjax_opt.study.report.study_tables import axes_of
from fedjax_opt.study.study import Study
from fedjax_opt.study.verdicts import DIVERGED
from fedjax_opt.study.words import condition_label

_NUM_THRESHOLDS = 101
_TRACES = ("step_size", "smoothness_step", "growth_step")
# The x axis of learning curves -> in a caption, and the question.
_X_AXES = {
  "rounds": ("communication rounds", "How fast does each method learn?"),
  "bytes": (
    "bytes exchanged with a client (down and up)",
    "What does each method reach for the bytes that it sends?",
  ),
  "gradient_evaluations": (
    "gradient evaluations of a client",
    "What does each method reach for its computation?",
  ),
}


def of_study(study: Study) -> list[Picture]:
  """The pictures of a study; the first one is the main one."""
  labels = drawing.legend_labels(study.labels)
  looks = plots.method_styles(labels.values())
  drawn = Drawn(study, labels, looks)
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
    if len(values) > 1 and drawing.are_numbers(values):
      pictures += _against(drawn, name, sorted(values))
  return pictures


def _against(drawn: Drawn, name: str, values: list[Any]) -> list[Picture]:
  metric, panels = drawn.study.metric, _panels_against(drawn, name, values)
  if not panels:
    return []
  there = {method for panel in panels.values() for method in panel}
  missing = sorted(set(drawn.labels.values()) - there)
  legend, seeds = drawn.seeds
  means = [m for p in panels.values() for v in p.values() for m in v[0]]
  axis = metric_axis(metric, [np.array([mean]) for mean in means], whole=True)
  others = ", a panel for each of the other conditions" * (len(panels) > 1)
  caption = [
    f"{sentence(words.on_examples(metric))} after the last round against "
    f"{name_of(name)}{others}: {seeds}, of each method at its chosen setting.",
    drawing.error_text(axis.is_error),
    "A cross at the edge marks where a seed diverged."
    * any(v.verdict == DIVERGED for v in drawn.study.verdicts),
    f"Without {words.listed(missing)}, which did not run under all conditions."
    * bool(missing),
  ]
  return [
    drawn.picture(
      f"against_{name}",
      f"How does the {words.metric_words(metric)} depend on {name_of(name)}?",
      caption,
      plots.study_values,
      panels,
      metric=metric,
      x_name=drawing.in_picture(name),
      x_values=values,
      interval=legend,
      styles=drawn.looks,
    )
  ]


def _panels_against(
  drawn: Drawn, name: str, values: list[Any]
) -> dict[str, dict[str, np.ndarray]]:
  """The other conditions -> method -> interval at each value, [3, values]."""
  of_cell = {
    (v.cell.method, _key(v.cell.condition)): v for v in drawn.study.verdicts
  }
  panels: dict[str, dict[str, np.ndarray]] = {}
  for condition in drawn.study.conditions:
    rest = {n: v for n, v in condition.items() if n != name}
    panel = panels.setdefault(drawn.panel_title(rest), {})
    for method, label in drawn.labels.items():
      keys = [(method, _key({**rest, name: value})) for value in values]
      if label not in panel and all(key in of_cell for key in keys):
        panel[label] = np.array([of_cell[key].value for key in keys]).T
  return {title: panel for title, panel in panels.items() if panel}


def _key(condition: Mapping[str, Any]) -> tuple:
  return tuple(sorted((n, repr(v)) for n, v in condition.items()))


# Learning curves.


def _learning_curves(drawn: Drawn) -> list[Picture]:
  """Against rounds, and against what differs between methods beside them."""
  axes = [x for x in _X_AXES if x == "rounds" or _differs(drawn.study, x)]
  return [picture for x in axes for picture in _curves(drawn, x)]


def _differs(study: Study, cost: str) -> bool:
  """Whether methods spend more than 1 % differently, and all counted it.

  What diverged under every setting spent nothing that is drawn.
  """
  by_condition = [
    [c.spent(cost) for c in study.under(condition).values() if c.measured]
    for condition in study.conditions
  ]
  if any(each is None for cells in by_condition for each in cells):
    return False
  ends = [[each[-1] for each in cells] for cells in by_condition if cells]
  return any(max(each) > 1.01 * min(each) for each in ends)


def _curves(drawn: Drawn, x: str) -> list[Picture]:
  study, metric = drawn.study, drawn.study.metric

  def of_cell(cell: Cell) -> plots.Curve | None:
    places = cell.spent(x)
    if places is None or metric not in cell.measured.history.metrics:
      return None
    places = places / (1e6 if x == "bytes" else 1)
    interval = statistics.mean_interval(cell.measured.history.values(metric))
    return drawing.curve(places, *map(np.atleast_1d, interval))

  panels = drawn.panels(of_cell)
  if not panels:
    return []
  legend, seeds = drawn.seeds
  all_curves = [c for panel in panels.values() for c in panel.values()]
  lost = {c.method for c in study.cells if c.measured is None}
  names = [label for method, label in study.labels.items() if method in lost]
  what, question = _X_AXES[x]
  caption = [
    f"{sentence(words.on_examples(metric))} against {what}"
    f"{drawing.panels_text(panels)}: {seeds} at each evaluated round, of each "
    "method at its chosen setting.",
    drawing.error_text(curves_axis(metric, all_curves).is_error, "end"),
    drawing.cross_text(any(not np.isfinite(c.mean[-1]) for c in all_curves)),
    "Where every setting of a method diverged it has no curve: "
    f"{words.listed(names)}." * bool(names),
  ]
  return [
    drawn.picture(
      "learning_curves" + ("" if x == "rounds" else f"_{x}"),
      question,
      caption,
      plots.study_curves,
      panels,
      metric=metric,
      x_label=x,
      interval=legend,
      styles=drawn.looks,
    )
  ]


# Over all conditions.


def _profiles(drawn: Drawn) -> list[Picture]:
  study, metric = drawn.study, drawn.study.metric
  matrices = verdicts.matrices_of(study)
  runs = np.concatenate([[], *map(np.ravel, matrices.values())])
  runs = runs[np.isfinite(runs)]
  if not is_fraction(metric) or not runs.size:
    return []
  margin = 0.02 * np.ptp(runs) or 0.01
  ends = max(runs.min() - margin, 0), min(runs.max() + margin, 1)
  levels = np.linspace(*ends, _NUM_THRESHOLDS)
  way = "max" if study.is_larger_better else "min"
  profiles = {
    drawn.labels[method]: drawing.curve(
      levels, *statistics.performance_profile(scores, levels, direction=way)
    )
    for method, scores in matrices.items()
  }
  numbers = verdicts.numbers_of(study)
  middles = [
    f"{words.name(study.labels[method])} {numbers.whole(value)}"
    for method, value in verdicts.overall(study).items()
    if np.isfinite(value.estimate)
  ]
  caption = [
    "The share of all runs, of all conditions and seeds, that are better than "
    f"each {words.metric_words(metric)}, with its 95 % interval. A run that "
    "diverged is better than none. A line above another at every value is "
    "better throughout.",
    "Interquartile means, of the middle half of the runs of a method of which "
    f"none diverged: {words.listed(middles)}." * bool(middles),
  ]
  return [
    drawn.picture(
      "performance_profile",
      "How good are the methods over all conditions?",
      caption,
      plots.performance_profiles,
      profiles,
      metric=metric,
      interval="share of runs and 95 % interval",
      styles=drawn.looks,
    )
  ]


# Clients.


def _clients(drawn: Drawn) -> list[Picture]:
  kinds = dict.fromkeys(k for c in drawn.study.cells for k in c.per_client)
  pictures = []
  for kind in kinds:
    panels = drawn.panels(functools.partial(_accuracies, kind=kind))
    if not panels:
      continue
    first = next(iter(next(iter(panels.values())).values()))
    caption = [
      f"How the accuracy of the {kind} model is spread over the "
      "clients, each measured on examples of its own that it held out"
      f"{drawing.panels_text(panels)}: {first.size} clients, of the first seed "
      "of the report.",
      "Lines mark the mean, and the mean of the worst 10 % of the clients."
      if max(map(len, panels.values())) == 1
      else "A triangle marks the mean of the worst 10 % of the clients.",
    ]
    pictures.append(
      drawn.picture(
        f"clients_{kind}",
        f"How even is the {kind} model over the clients?",
        caption,
        plots.client_distribution,
        panels,
        metric="client_test_accuracy",
        styles=drawn.looks,
      )
    )
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
    label = ", ".join(filter(None, [name, condition_label(cell.condition)]))
    caption = (
      f"{label}: the step sizes of the clients, of the first seed of the "
      "report; below, the share of the steps in which each branch of the rule "
      "was the smaller one."
    )
    title = f"Which step sizes does {name} take?"
    arrays = {n.removesuffix("_step"): trace[n] for n in _TRACES[1:]}
    arrays["step_size"] = trace["step_size"]
    options = {"title": drawing.in_picture(label)}
    draw = functools.partial(plots.step_sizes, arrays, **options)
    pictures.append(Picture("step_sizes", title, caption, draw))
  return pictures
