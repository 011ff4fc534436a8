"""What a study says: its cells, and what can be told of them."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedjax_opt.results.metric_names import direction, is_fraction
from fedjax_opt.results.names import shown_name
from fedjax_opt.study import pairs as pairwise
from fedjax_opt.study import statistics, words
from fedjax_opt.study import verdicts as judging
from fedjax_opt.study.bootstrap import Interval
from fedjax_opt.study.cells import Cell
from fedjax_opt.study.sizes import ClientSummary

# The default smallest difference of interest for accuracies: half a point.
_MIN_EFFECT_OF_SHARES = 0.005


@dataclasses.dataclass(frozen=True, repr=False)
class Comparison:
  """Methods compared under conditions, and what can be told of them.

  `study.Study` says what the attributes are, and adds the report.
  """

  cells: tuple[Cell, ...]
  metric: str
  title: str = "Study"
  target: float | None = None
  about: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  command: str = ""
  notes: tuple[str, ...] = ()
  clients: Mapping[str, ClientSummary] = dataclasses.field(default_factory=dict)
  min_effect: float | None = None

  @property
  def methods(self) -> list[str]:
    """The labels of the methods, in order."""
    return list(dict.fromkeys(cell.method for cell in self.cells))

  @property
  def conditions(self) -> list[dict[str, Any]]:
    """The conditions, in order."""
    different: list[dict[str, Any]] = []
    for cell in self.cells:
      if dict(cell.condition) not in different:
        different.append(dict(cell.condition))
    return different

  @property
  def compared(self) -> list[dict[str, Any]]:
    """The conditions under which several methods ran."""
    return [
      condition
      for condition in self.conditions
      if len(self.under(condition)) > 1
    ]

  def cell(self, method: str, condition: Mapping[str, Any]) -> Cell | None:
    """The cell of a method under a condition; None if there is none."""
    for cell in self.cells:
      if cell.method == method and dict(cell.condition) == dict(condition):
        return cell
    return None

  def under(self, condition: Mapping[str, Any]) -> dict[str, Cell]:
    """The cells of a condition, by method."""
    cells = {m: self.cell(m, condition) for m in self.methods}
    return {method: cell for method, cell in cells.items() if cell is not None}

  # What can be told from chance.

  @property
  def is_larger_better(self) -> bool:
    """Whether larger values of the metric are better."""
    return direction(self.metric) == "max"

  @property
  def smallest_effect(self) -> float:
    """The smallest difference of interest, in the metric's unit."""
    if self.min_effect is not None:
      return self.min_effect
    return _MIN_EFFECT_OF_SHARES if is_fraction(self.metric) else 0.0

  @functools.cached_property
  def pairs(self) -> list[pairwise.Pair]:
    """Every two methods under each condition, if no seed of theirs diverged."""
    groups = (self.under(condition).values() for condition in self.conditions)
    is_lost = lambda cell: cell.has_diverged(self.metric)
    usable = ([cell for cell in cells if not is_lost(cell)] for cells in groups)
    return pairwise.of_conditions(usable, self.metric)

  @functools.cached_property
  def verdicts(self) -> list[judging.Verdict]:
    """The verdict on every cell, condition after condition."""
    how = self.pairs, self.metric, self.smallest_effect, self.target
    groups = (
      list(self.under(condition).values()) for condition in self.conditions
    )
    return [v for cells in groups for v in judging.of_condition(cells, *how)]

  @property
  def matrices(self) -> dict[str, np.ndarray]:
    """method -> the metric, [seeds, conditions]; {} if there is one condition.

    Only methods that ran under all conditions, with the same number of seeds.
    """
    conditions, matrices = self.conditions, {}
    for method in self.methods if len(conditions) > 1 else ():
      cells = [self.cell(method, condition) for condition in conditions]
      if all(
        cell is not None and cell.report_runs is not None for cell in cells
      ):
        columns = [cell.final(self.metric) for cell in cells]
        if len(set(map(len, columns))) == 1:
          matrices[method] = np.stack(columns, 1)
    return matrices

  @property
  def overall(self) -> dict[str, Interval]:
    """method -> interquartile mean over all conditions and seeds."""
    items = self.matrices.items()
    return {m: statistics.interquartile_mean(v) for m, v in items}

  # In words.

  @property
  def labels(self) -> dict[str, str]:
    """method -> its name for people, different for each method."""
    names = [shown_name(" ".join(m.split())) for m in self.methods]
    unique = words.unique(name or "(no name)" for name in names)
    return dict(zip(self.methods, unique, strict=True))

  @property
  def names(self) -> dict[str, str]:
    """method -> its name in a sentence."""
    return {m: words.quoted_if_list(label) for m, label in self.labels.items()}

  @property
  def numbers(self) -> words.Numbers:
    """How its values are written, everywhere."""
    return words.numbers_of(self.metric, [v.value for v in self.verdicts])

  @property
  def effect(self) -> str:
    """The smallest difference of interest in words: 0.5 points."""
    effect, numbers = self.smallest_effect, words.Numbers(self.metric)
    return f"{numbers.value(effect)} points" if numbers.unit else f"{effect:g}"
