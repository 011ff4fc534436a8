"""The pictures of a study: one for each question, where it has the data.

Each is described by a `Picture`, which says in its caption what it draws.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from fedjax_opt.results.history import is_fraction
from fedjax_opt.results.names import name_of, sentence
from fedjax_opt.study import plots, verdicts, words
from fedjax_opt.study import seed_statistics as statistics
from fedjax_opt.study.cells import Cell
from fedjax_opt.study.plots.metric_axis import (
  as_curve,
  metric_axis,
  panels_axis,
)
from fedjax_opt.study.report import drawing, tuning_pictures
from fedjax_opt.study.report.drawing import Drawn, Picture
from fedjax_opt.study.report.study_tables import axes_of
from fedjax_opt.study.verdicts import DIVERGED, JudgedStudy
from fedjax_opt.study.words import condition_label

_NUM_THRESHOLDS = 101
# What `plots.step_sizes` takes -> its name in a cell.
_TRACES = {
  "step_size": "step_size",
  "smoothness": "smoothness_step",
  "growth": "growth_step",
}
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


def of_study(study: JudgedStudy) -> list[Picture]:
  """The pictures of a study; the first one is the main one."""
  labels = drawing.legend_labels(study.labels)
  drawn = Drawn(study, labels, plots.method_styles(labels.values()))
  pictures = [
    *_against_conditions(drawn),
    *_learning_curves(drawn),
    *_profiles(drawn),
    *tuning_pictures.pictures(drawn),
    *_clients(drawn),
    *_step_sizes(drawn),
  ]
  names = [re.sub(r"[^A-Za-z0-9_-]+", "_", each.name) for each in pictures]
  names = words.unique(names, "{}_{}")
  return [
    picture._replace(name=name)
    for picture, name in zip(pictures, names, strict=True)
  ]


# The final value against a condition.


def _against_conditions(drawn: Drawn) -> Iterator[Picture]:
  """For each condition that is a number and has several values."""
  for name in axes_of(drawn.study):
    values = list(dict.fromkeys(c.get(name) for c in drawn.study.conditions))
    if len(values) > 1 and drawing.are_numbers(values):
      yield from _against(drawn, name, sorted(values))


def _against(drawn: Drawn, name: str, values: list[Any]) -> Iterator[Picture]:
  metric, panels = drawn.study.metric, _panels_against(drawn, name, values)
  if not panels:
    return
  there = {method for panel in panels.values() for method in panel}
  missing = sorted(set(drawn.labels.values()) - there)
  legend, seeds = drawn.seeds
  means = [m for p in panels.values() for v in p.values() for m in v[0]]
  axis = metric_axis(
    metric,
    [as_curve("means", plots.Curve([0], [mean])) for mean in means],
    whole=True,
  )
  others = ", a panel for each of the other conditions" * (len(panels) > 1)
  caption = [
    f"{sentence(words.on_examples(metric))} after the last round against "
    f"{name_of(name)}{others}: {seeds}, of each method at its chosen setting.",
    drawing.error_text(axis),
    "A cross at the edge marks where a seed diverged."
    * any(v.verdict == DIVERGED for v in drawn.study.verdicts),
    f"Without {words.listed(missing)}, which did not run under all conditions."
    * bool(missing),
  ]
  yield drawn.picture(
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


def _panels_against(
  drawn: Drawn, name: str, values: list[Any]
) -> dict[str, dict[str, np.ndarray]]:
  """The other conditions -> method -> interval at each value, [3, values]."""
  found = {
    (v.cell.method, _key(v.cell.condition)): v for v in drawn.study.verdicts
  }
  panels: dict[str, dict[str, np.ndarray]] = {}
  for condition in drawn.study.conditions:
    title = drawn.panel_title({n: v for n, v in condition.items() if n != name})
    for method, label in drawn.labels.items():
      keys = [(method, _key({**condition, name: value})) for value in values]
      if all(key in found for key in keys):
        means = np.array([found[key].value for key in keys]).T
        panels.setdefault(title, {}).setdefault(label, means)
  return panels


def _key(condition: Mapping[str, Any]) -> tuple:
  return tuple(sorted((n, repr(v)) for n, v in condition.items()))


# Learning curves.


def _learning_curves(drawn: Drawn) -> Iterator[Picture]:
  """Against rounds, and against what differs between methods beside them."""
  for x in _X_AXES:
    if x == "rounds" or _differs(drawn.study, x):
      yield from _curves(drawn, x)


def _differs(study: JudgedStudy, cost: str) -> bool:
  """Whether methods spend more than 1 % differently, and all counted it.

  What diverged under every setting spent nothing that is drawn.
  """
  by_condition = [
    [c.spent(cost) for c in study.under(condition).values() if c.measured]
    for condition in study.conditions
  ]
  if any(each is None for spent in by_condition for each in spent):
    return False
  ends = [[each[-1] for each in spent] for spent in by_condition if spent]
  return any(max(each) > 1.01 * min(each) for each in ends)


def _curves(drawn: Drawn, x: str) -> Iterator[Picture]:
  study, metric = drawn.study, drawn.study.metric

  def of_cell(cell: Cell) -> plots.Curve | None:
    places = cell.spent(x)
    if places is None or metric not in cell.measured.history.metrics:
      return None
    values = cell.measured.history.values(metric)
    return drawing.curve(places / (1e6 if x == "bytes" else 1), values)

  panels = drawn.panels(of_cell)
  if not panels:
    return
  legend, seeds = drawn.seeds
  ends = [c.mean[-1] for panel in panels.values() for c in panel.values()]
  lost = {c.method for c in study.cells if c.measured is None}
  names = [label for method, label in study.labels.items() if method in lost]
  what, question = _X_AXES[x]
  caption = [
    f"{sentence(words.on_examples(metric))} against {what}"
    f"{drawing.panels_text(panels)}: {seeds} at each evaluated round, of each "
    "method at its chosen setting.",
    drawing.error_text(panels_axis(metric, panels), "end"),
    drawing.cross_text(ends),
    "Where every setting of a method diverged it has no curve: "
    f"{words.listed(names)}." * bool(names),
  ]
  yield drawn.picture(
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


# Over all conditions.


def _profiles(drawn: Drawn) -> Iterator[Picture]:
  study, metric = drawn.study, drawn.study.metric
  matrices = verdicts.matrices_of(study)
  runs = np.concatenate([[], *map(np.ravel, matrices.values())])
  runs = runs[np.isfinite(runs)]
  if not is_fraction(metric) or not runs.size:
    return
  margin = 0.02 * np.ptp(runs) or 0.01
  ends = max(runs.min() - margin, 0), min(runs.max() + margin, 1)
  levels = np.linspace(*ends, _NUM_THRESHOLDS)
  profile = functools.partial(
    statistics.performance_profile,
    thresholds=levels,
    direction="max" if study.is_larger_better else "min",
  )
  profiles = {
    drawn.labels[method]: plots.Curve(levels, *profile(scores))
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
  yield drawn.picture(
    "performance_profile",
    "How good are the methods over all conditions?",
    caption,
    plots.performance_profiles,
    profiles,
    metric=metric,
    interval="share of runs and 95 % interval",
    styles=drawn.looks,
  )


# Clients.


def _clients(drawn: Drawn) -> Iterator[Picture]:
  for kind in dict.fromkeys(k for c in drawn.study.cells for k in c.per_client):
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
    yield drawn.picture(
      f"clients_{kind}",
      f"How even is the {kind} model over the clients?",
      caption,
      plots.client_distribution,
      panels,
      metric="client_test_accuracy",
      styles=drawn.looks,
    )


def _accuracies(cell: Cell, kind: str) -> np.ndarray | None:
  found = np.asarray(cell.per_client.get(kind, ()), float)
  found = found[np.isfinite(found)]
  return found if found.size else None


# Step sizes.


def _step_sizes(drawn: Drawn) -> Iterator[Picture]:
  for cell in drawn.study.cells:
    trace = cell.step_sizes or {}
    if not set(_TRACES.values()) <= set(trace):
      continue
    name = drawn.study.labels[cell.method]
    label = ", ".join(filter(None, [name, condition_label(cell.condition)]))
    caption = [
      f"{label}: the step sizes of the clients, of the first seed of the "
      "report; below, the share of the steps in which each branch of the rule "
      "was the smaller one."
    ]
    title = f"Which step sizes does {name} take?"
    plot = functools.partial(plots.step_sizes, title=drawing.in_picture(label))
    arrays = {each: trace[kept] for each, kept in _TRACES.items()}
    yield drawn.picture("step_sizes", title, caption, plot, arrays)
