"""All cells of a study, and what can be told of them."""

import dataclasses
import functools
import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedjax_opt.results.metric_names import (
  check_has_direction,
  direction,
  is_accuracy,
)
from fedjax_opt.results.names import shown_name
from fedjax_opt.study import words
from fedjax_opt.study.cells import Cell
from fedjax_opt.study.numbers import NumberFormat, format_of
from fedjax_opt.study.pairs import Pair, all_pairs
from fedjax_opt.study.sizes import ClientSummary
from fedjax_opt.study.verdicts import (
  COLLAPSED,
  Verdict,
  shared_seeds,
  verdicts_on,
)

# The default smallest difference of interest for accuracies: half a point.
_MIN_EFFECT_OF_ACCURACIES = 0.005


@dataclasses.dataclass(frozen=True, repr=False)
class StudyCells:
  """Methods compared under conditions: a study without its report.

  Attributes:
    cells: at most one for each method and condition.
    metric: the metric by which methods are compared, such as 'test_accuracy'.
    title: the report's title.
    target: value of the metric whose cost is reported, or None.
    about: name -> value, for all that the cells share; for the report.
    command: the command that made it, or "".
    notes: sentences on what else limits the comparison, for the report.
    clients: {part of a condition that changes the clients: clients of one
      seed}; {} if they are not known.
    min_effect: the smallest difference of interest, in the metric's unit; None
      for 0.005 of accuracies, half a point, and 0 of others.
    pairs: every two methods under each condition: difference, p, power.
    verdicts: the verdict on every cell, condition after condition.

  Raises:
    ValueError: if there is no cell, two have the same method and condition, or
      it is not known in which direction the metric improves.
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

  def __post_init__(self):
    if not self.cells:
      raise ValueError("cells: is empty; must have at least one")
    check_has_direction(self.metric)
    keys = [(cell.method, dict(cell.condition)) for cell in self.cells]
    for i, key in enumerate(keys):
      if keys.index(key) < i:
        method, condition = key
        raise ValueError(
          f"cells[{i}]: method {method!r} has two cells under {condition}; "
          "give one of them another method or condition"
        )

  @functools.cached_property
  def methods(self) -> list[str]:
    """The labels of the methods, in order."""
    return list(dict.fromkeys(cell.method for cell in self.cells))

  @functools.cached_property
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
    return [dict(cells[0].condition) for cells in self.groups if cells[1:]]

  def cell(self, method: str, condition: Mapping[str, Any]) -> Cell | None:
    """The cell of a method under a condition; None if there is none."""
    return self.under(condition).get(method)

  def under(self, condition: Mapping[str, Any]) -> dict[str, Cell]:
    """The cells of a condition, by method."""
    is_there = lambda cell: dict(cell.condition) == dict(condition)
    cells = {cell.method: cell for cell in filter(is_there, self.cells)}
    return {method: cells[method] for method in self.methods if method in cells}

  @functools.cached_property
  def groups(self) -> list[list[Cell]]:
    """The cells of each condition, condition after condition."""
    return [
      list(self.under(condition).values()) for condition in self.conditions
    ]

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
    return _MIN_EFFECT_OF_ACCURACIES if is_accuracy(self.metric) else 0.0

  @functools.cached_property
  def pairs(self) -> list[Pair]:
    """Every two methods under each condition, if no seed of theirs diverged."""
    is_usable = lambda cell: not cell.has_diverged(self.metric)
    usable = (list(filter(is_usable, cells)) for cells in self.groups)
    return all_pairs(usable, self.metric)

  @functools.cached_property
  def verdicts(self) -> list[Verdict]:
    """The verdict on every cell, condition after condition."""
    about = self.pairs, self.metric, self.smallest_effect, self.target
    groups = (verdicts_on(cells, *about) for cells in self.groups)
    return list(itertools.chain(*groups))

  @property
  def matrices(self) -> dict[str, np.ndarray]:
    """method -> the metric, [seeds, conditions]; {} if there is one condition.

    Only methods that ran under all conditions, with the same number of seeds.
    """
    conditions, matrices = self.conditions, {}
    for method in self.methods if len(conditions) > 1 else ():
      cells = [self.cell(method, condition) for condition in conditions]
      if all(cell and cell.report_runs for cell in cells):
        columns = [cell.final(self.metric) for cell in cells]
        if len(set(map(len, columns))) == 1:
          matrices[method] = np.stack(columns, 1)
    return matrices

  @property
  def has_shared_seeds(self) -> bool:
    """Whether some best one is found over the seeds that all methods have."""
    return any(shared_seeds(cells, self.metric) for cells in self.groups)

  # In words.

  @functools.cached_property
  def labels(self) -> dict[str, str]:
    """method -> its name for people, different for each method."""
    names = [shown_name(" ".join(m.split())) for m in self.methods]
    unique = words.unique(name or "(no name)" for name in names)
    return dict(zip(self.methods, unique, strict=True))

  @functools.cached_property
  def names(self) -> dict[str, str]:
    """method -> its name in a sentence."""
    return {m: words.quoted_if_list(label) for m, label in self.labels.items()}

  @functools.cached_property
  def numbers(self) -> NumberFormat:
    """How its values are written, everywhere; by methods that are stable."""
    stable = [v.value for v in self.verdicts if v.kind != COLLAPSED]
    return format_of(self.metric, stable)

  @functools.cached_property
  def collapse_level(self) -> str:
    """What a mean must be better than, in words; "" if it is not known.

    Such as 'above 73.1 % on 40 examples'; it may differ between cells.
    """
    levels = [cell.collapse_level(self.metric) for cell in self.cells]
    levels = sorted(level for level in levels if np.isfinite(level))
    if not levels:
      return ""
    texts = dict.fromkeys(map(self.numbers.value, (levels[0], levels[-1])))
    word = "above" if self.is_larger_better else "below"
    text = f"{word} {' to '.join(texts)}{self.numbers.unit}"
    sets = [cell.examples_of(self.metric) for cell in self.cells]
    sizes = {examples.size for examples in sets if examples}
    return f"{text} on {words.span(sizes)} examples" if sizes else text

  @property
  def effect(self) -> str:
    """The smallest difference of interest in words: 0.5 points."""
    numbers = NumberFormat(self.metric)
    points = " points" if numbers.unit else ""
    return numbers.as_given(self.smallest_effect) + points

  def __repr__(self) -> str:
    return (
      f"{type(self).__name__}({len(self.methods)} methods, "
      f"{len(self.conditions)} conditions, {len(self.cells)} cells, by "
      f"{self.metric})"
    )
