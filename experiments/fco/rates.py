"""All pairs of rates: which diverge on LASSO, and Figure 12 on brain scans."""

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from experiments.artefacts.artefact import Entries, Records
from experiments.artefacts.blocks import Block, Claim, Picture, Quantity, Table
from experiments.artefacts.values import value
from experiments.stored.records import Record
from fedjax_opt import plots
from fedjax_opt.study.plots import panels

# Figure 12: its panels, its products of both rates, and what it needs.
_ROUNDS = (10, 30, 100, 300)
_PRODUCTS = (0.003, 0.3)
_MEASURED = {"test_accuracy", "density"}

# The paper's rates on LASSO.


def all_rates(entries: Entries, records: Records) -> list[Block]:
  """How many pairs diverge, and whether the paper's best pairs do."""
  rates = sorted({p["client_lr"] for r in records.values() for p in r.points})
  rows = [
    [key[0], *(_finished(record.where(client_lr=rate)) for rate in rates)]
    for key, record in records.items()
  ]
  heads = ["algorithm", *(f"η_c = {rate:g}" for rate in rates)]
  title = "Points that did not diverge; of those the best last F1"
  quantities = [
    Quantity(
      f"{method} at {client:g}, {server:g} (-1 if it diverged)",
      _finished_at(records, method, client, server),
    )
    for method, (client, server) in entries["best_rates"].items()
  ]
  text = "The best rates: all algorithms can run at them"
  return [Table(heads, rows, title), Claim(text, quantities)]


def _finished(record: Record) -> str:
  last = record.final("f1")
  is_finite = np.isfinite(last)
  best = f"; {last[is_finite].max():.3f}" if is_finite.any() else ""
  return f"{int(is_finite.sum())} of {len(last)}{best}"


def _finished_at(
  records: Records, method: str, client: float, server: float
) -> tuple[float, ...]:
  """1 for each seed that finished, -1 for each that diverged."""
  if (method,) not in records:
    return ()
  record = records[method,].where(client_lr=client, server_lr=server)
  return tuple(1.0 if np.isfinite(v) else -1.0 for v in record.final("f1"))


# Figure 12.


def products(entries: Entries, records: Records) -> list[Block]:
  """The pairs that end sparse and accurate, and what all pairs reach."""
  strengths = list(dict.fromkeys(strength for _, strength in records))
  parts = {
    strength: {
      method: record.take(_rows_of_products(record))
      for (method, column), record in records.items()
      if column == strength and record.history.metrics.keys() >= _MEASURED
    }
    for strength in strengths
  }
  share = {
    (method, strength): float(_is_upper_left(record).mean())
    for strength, of_methods in parts.items()
    for method, record in of_methods.items()
  }
  rows = [
    [
      m,
      *(f"{100 * share[m, s]:.0f}" if (m, s) in share else "-" for s in parts),
    ]
    for m in dict.fromkeys(method for method, _ in share)
  ]
  table = Table(
    ["algorithm", *strengths],
    rows,
    "Percent of the pairs of rates that end at an accuracy above 75 % and a "
    "density below 0.5",
  )
  alt = "Accuracy over density of all pairs of rates, after four rounds"
  pictures = [
    Picture(
      f"rates_{strength.split()[-1]}",
      functools.partial(_draw, entries, of_methods),
      f"{alt}, {strength}",
    )
    for strength, of_methods in parts.items()
  ]
  robust = [_most_robust(entries, share, strength) for strength in strengths]
  return [*([table] if rows else []), *pictures, *robust]


def _rows_of_products(record: Record) -> list[int]:
  """Indices of the points whose product of rates is in the figure."""
  low, high = _PRODUCTS
  return [
    row
    for row, point in enumerate(record.points)
    if low * 0.999 <= point["client_lr"] * point["server_lr"] <= high * 1.001
  ]


def _is_upper_left(record: Record) -> np.ndarray:
  """For each pair of rates, whether it ends sparse and accurate."""
  is_accurate = record.final("test_accuracy") > 0.75
  return is_accurate & (record.final("density") < 0.5)


def _most_robust(entries: Entries, share, strength: str) -> Claim:
  ours = share.get(("FedDualAvg", strength))
  over = lambda other: (
    (ours - share[other, strength],)
    if ours is not None and (other, strength) in share
    else ()
  )
  return Claim(
    f"FedDualAvg is the most robust to rates, {strength}",
    [
      Quantity(f"share over that of {other}", over(other))
      for other in entries["groups"]["others"]
    ],
    of="FedDualAvg is the most robust to rates",
  )


def _draw(
  entries: Entries,
  records: Mapping[str, Record],
) -> Any:
  styles = plots.method_styles(entries["rows"])
  handles = {}
  with plots.figure(len(_ROUNDS)) as (figure, all_axes):
    for axes, at in zip(all_axes[0], _ROUNDS, strict=True):
      for method, record in records.items():
        x = value(f"density at {at}").compute(record)
        y = value(f"test_accuracy at {at}").compute(record)
        look = styles[method]
        handles[method] = axes.scatter(
          x, 100 * y, s=12, color=look.color, marker=look.marker, alpha=0.7
        )
      axes.set(title=f"Round {at}", xlabel="Density")
      axes.set(xlim=(-0.03, 1.03), ylim=(30, 102))
    all_axes[0, 0].set_ylabel("Accuracy (%)")
    panels.add_legend(figure, handles, 2.8 * len(_ROUNDS))
    return figure
