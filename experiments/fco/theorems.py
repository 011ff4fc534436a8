"""Theorems 4.1 to 4.3 on a small problem that meets their assumptions."""

import functools
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from experiments.artefacts.artefact import (
  Block,
  Cell,
  Computed,
  Found,
  Key,
  Picture,
  Plan,
  Table,
)
from experiments.artefacts.claims import Claim, Quantity
from experiments.artefacts.record import Record
from experiments.artefacts.values import with_interval
from experiments.fco import convex
from fedjax_opt import plots
from fedjax_opt.study.plots import frame, panels

_NAMES = {"fed_dual_avg": "FedDualAvg", "fed_mid": "FedMiD"}
# eta_c up to 1 / 4L; in 4.1 eta_s eta_c up to 1 / 4KL.
_RATES = {
  "4.1": (0.0025, 0.005, 0.01, 0.025),
  "4.2": (0.003, 0.01, 0.03, 0.1, 0.25),
  "4.3": (0.003, 0.01, 0.03, 0.1, 0.25),
}
_FALLS = 1 / 2  # The power of 1 / R in the slowest term of all three bounds.
_SHOWN = (32, 128, 512)
_FROM = 64  # Rounds from which a slope is fitted.


def _computed(plan: Plan, theorem: str, algorithm: str) -> Computed:
  smoke = plan.size == "smoke"
  rates = _RATES[theorem]
  return Computed(
    convex.gaps,
    {
      "theorem": theorem,
      "algorithm": algorithm,
      "rates": rates[-2:] if smoke else rates,
      "rounds": 4 if smoke else 512,
      "seeds": [0, 1] if smoke else [0, 1, 2, 3, 4],
      "kind": "ball" if theorem == "4.2" else "l1",
    },
  )


def cells(about: Mapping[str, Any], plan: Plan) -> dict[Key, Cell]:
  """The algorithms of a theorem, and what it is compared with."""
  theorem = about["theorem"]
  algorithms = ["fed_dual_avg"]
  if theorem == "4.1" and plan.size != "smoke":
    algorithms.append("fed_mid")
  cells: dict[Key, Cell] = {
    (_NAMES[a],): _computed(plan, theorem, a) for a in algorithms
  }
  if theorem == "4.3":  # What small rates of clients reach.
    cells["small rates",] = _computed(plan, "4.1", "fed_dual_avg")
  return cells


def _of_rate(record: Record, metric: str, rate: float) -> np.ndarray:
  """The values of a metric at a rate, [seeds, E]."""
  return record.where(rate=rate).history.values(metric)


def _rates_of(record: Record) -> list[float]:
  return sorted({point["rate"] for point in record.points})


def _best(record: Record, metric: str) -> np.ndarray:
  """The smallest value over the rates at each round, [seeds, E]."""
  stacked = [_of_rate(record, metric, rate) for rate in _rates_of(record)]
  return np.min(stacked, axis=0)


def blocks(about: Mapping[str, Any], found: Found) -> list[Block]:
  """Gaps and bounds as a table and a picture, and what the theorem says."""
  theorem = about["theorem"]
  own = {key: r for key, r in found.items() if key[0] in _NAMES.values()}
  rows, heads = [], ["algorithm", "rate"]
  rounds = next(iter(found.values())).history.rounds
  at_rounds = [r for r in _SHOWN if r in rounds] or [rounds[-1]]
  for r in at_rounds:
    heads += [f"gap at {r}", f"bound at {r}"]
  for (name,), record in own.items():
    for rate in _rates_of(record):
      cells = []
      for r in at_rounds:
        at = record.history.rounds.index(r)
        gap = _of_rate(record, "gap", rate)[:, at]
        bound = _of_rate(record, "bound", rate)[0, at]
        cells += [with_interval(gap, "gap"), f"{bound:.3g}"]
      rows.append([name, f"{rate:g}", *cells])
  shown: list[Block] = [Table(heads, rows)] if rows else []
  if own:
    alt = "Gap to the optimum over rounds, with the bound"
    shown.append(Picture("gap", functools.partial(_draw, own), alt))
  if theorem == "4.3":
    shown.append(_larger_rates(found))
  return [*shown, *(c for key in own for c in _claims(theorem, found, key))]


def _claims(theorem: str, found: Found, key: Key) -> list[Claim]:
  record = found[key]
  below = [
    Quantity(
      f"rate {rate:g}: smallest share of the bound that is left",
      tuple(_left(record, rate)),
    )
    for rate in _rates_of(record)
  ]
  claims = [
    Claim(f"{key[0]}: the gap is below the bound of theorem {theorem}", below)
  ]
  late = np.asarray(record.history.rounds) >= _FROM
  if late.sum() > 1:
    rounds = np.log(np.asarray(record.history.rounds, float)[late])
    gaps = np.log(_best(record, "gap")[:, late])
    slopes = np.polyfit(rounds, gaps.T, 1)[0]
    text = (
      f"{key[0]}: at the best rate the gap falls at least as fast as R^-"
      f"{_FALLS:g}, from round {_FROM}"
    )
    faster = Quantity(f"exponent beyond {_FALLS:g}", tuple(-slopes - _FALLS))
    claims.append(Claim(text, [faster]))
  return claims


def _left(record: Record, rate: float) -> np.ndarray:
  """The smallest relative distance to the bound over the rounds, [seeds]."""
  gap, bound = (_of_rate(record, m, rate) for m in ("gap", "bound"))
  return (1 - gap / bound).min(axis=1)


def _larger_rates(found: Found) -> Claim:
  """That local steps help: LB/KR against LB/R."""
  text = (
    "Larger client rates than those of theorem 4.1 converge in fewer rounds"
  )
  pair = [found.get((name,)) for name in ("small rates", "FedDualAvg")]
  if None in pair:
    return Claim(text, [])
  small, large = (_best(record, "gap")[:, -1] for record in pair)
  name = "log10 of the last gap at the best rate, small rates over larger"
  return Claim(text, [Quantity(name, tuple(np.log10(small / large)))])


def _draw(found: Found, path: pathlib.Path) -> None:
  entries = {}
  with plots.figure(len(found), 1, (1.2, 1.1)) as (figure, axes):
    for panel, ((name,), record) in zip(axes[0], found.items(), strict=True):
      for rate, color in zip(_rates_of(record), plots.COLORS, strict=False):
        rounds = record.history.rounds
        gap = _of_rate(record, "gap", rate).mean(axis=0)
        bound = _of_rate(record, "bound", rate)[0]
        (line,) = panel.plot(rounds, gap, color=color)
        panel.plot(rounds, bound, color=color, linestyle=":")
        entries[f"rate {rate:g}"] = line
      plots.log_scale(panel.xaxis, (rounds[0], rounds[-1]))
      plots.log_scale(panel.yaxis)
      panel.set(title=name, xlabel="Communication round")
    axes[0, 0].set_ylabel("Gap to the optimum")
    width = 2.8 * 1.2 * len(found)
    title = "Gap (mean over seeds); dotted: the bound"
    panels.add_below(figure, entries, width, title)
    frame.finish(figure, path)
