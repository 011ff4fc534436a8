"""Table 1 of the BVR-L-SGD paper: orders of rounds, as rounds that were needed.

How many rounds local steps save depends on how much the clients' Hessians
differ (zeta). `fedjax_opt.data.synthetic.heterogeneous` has zeta as a dial; its
clients' gradients differ in any case. All methods have the same K B examples of
each client in a round. The paper gives orders in the accuracy eps, the budget K
B and zeta; here each of these varies while the others stay fixed. Learning
rates are chosen with other seeds than the reported ones.
"""

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fedjax_opt as fo
from experiments.artefacts import declared_claims
from experiments.artefacts.artefact import Entries, Key, Records
from experiments.artefacts.blocks import Block, Picture, Table
from experiments.artefacts.values import NOT_RUN, with_interval
from experiments.stored.records import Record
from experiments.tasks import nonconvex
from fedjax_opt import algorithms, plots, statistics
from fedjax_opt.data import synthetic
from fedjax_opt.results.history import History
from fedjax_opt.results.outcome import outcome_of
from fedjax_opt.results.selection import Criterion
from fedjax_opt.study.numbers import NumberFormat
from fedjax_opt.study.plots import panels

METHODS = {
  "Minibatch SGD": algorithms.minibatch_sgd,
  "Minibatch SARAH": algorithms.minibatch_sarah,
  "Local SGD": algorithms.local_sgd,
  "SCAFFOLD": algorithms.scaffold,
  "BVR-L-SGD": algorithms.bvr_l_sgd,
}
IN_STAGES = ("Minibatch SARAH", "BVR-L-SGD")
NUM_TUNING = 3  # The first seeds, which choose rates.


def metric(eps: float, counts_stages: bool = False) -> str:
  """The name of the rounds until the squared gradient norm is at most eps.

  Args:
    eps: what is to be reached.
    counts_stages: whether the large gradient that begins a stage counts as a
      round of its own. In the paper it does not.
  """
  return f"{'rounds' if counts_stages else 'iterations'}_to_{eps:g}"


def rounds_to_small_gradient(
  method: str,
  local_steps: int,
  zetas: Sequence[float],
  rates: Sequence[float],
  seeds: Sequence[int],
  batch_size: int,
  rounds: int,
  eps: Sequence[float],
) -> tuple[History, list[dict[str, Any]]]:
  """Runs a method at all zetas and rates, in one program.

  Args:
    method: key of `METHODS`.
    local_steps: K.
    zetas: how far the clients' Hessians differ.
    rates: learning rates.
    seeds: the runs' seeds.
    batch_size: B, examples of a local step.
    rounds: the most rounds, both as the paper counts them and with large
      gradients.
    eps: squared gradient norms to reach.

  Returns:
    The metrics of `metric`, NaN where `eps` was not reached; and the points.
  """
  problem = synthetic.heterogeneous(zetas[0])

  def make(zeta, client_lr):
    return METHODS[method](problem._replace(zeta=zeta).loss_fn, client_lr)

  def evaluate(params, data, test):
    del data, test  # The objective is known, and the same for all zetas.
    gradient = jax.grad(problem.objective)(params)
    return {"grad_norm_sq": jnp.sum(jnp.square(gradient))}

  grid = {"zeta": list(zetas), "client_lr": list(rates)}
  result = fo.sweep(
    make,
    grid,
    nonconvex.start(problem),
    problem.data,
    rounds=rounds,
    seeds=list(seeds),
    local_steps=local_steps,
    batch_size=batch_size,
    replacement=True,
    evaluate=evaluate,
    eval_every=1,
  )
  stage = None
  if method in IN_STAGES:
    stage = math.ceil(1 + problem.data.max_size / (local_steps * batch_size))
  metrics = {}
  for target in eps:
    first = _first(result.history.values("grad_norm_sq"), target)
    metrics[metric(target)] = first[:, None]
    with_stages = first if stage is None else first + np.ceil(first / stage)
    is_late = with_stages > rounds
    total = np.where(is_late, np.nan, with_stages)
    metrics[metric(target, counts_stages=True)] = total[:, None]
  points = fo.grid_points(grid, seeds)
  return History([rounds], metrics), [dict(point) for point in points]


def _first(values: np.ndarray, eps: float) -> np.ndarray:
  """The first round with a value of at most eps, NaN if there is none. [S]"""
  reached = values <= eps
  return np.where(reached.any(axis=1), reached.argmax(axis=1), np.nan)


# Table 1: the rounds for which the paper has orders. A column is named by the
# values that it has in place of those in `fixed`, such as 'ζ = 10, ε = 0.01'.


def needed(
  entries: Entries, records: Records, counts_stages: bool = False
) -> dict[Key, Record]:
  """What each method needs at its rate, at all points of the table.

  Args:
    entries: the artefact's entries.
    records: the cells.
    counts_stages: whether the large gradient of a stage counts as a round; in
      the paper it does not.

  Returns:
    (method, column) -> a record with a point for each seed of the report. Its
    metrics are 'rounds' and 'halvings', minus their logarithm, NaN where eps
    was not reached. It has no 'client_lr' if no rate reached eps.
  """
  return {
    (method, name): record
    for columns in entries["varied"].values()
    for name in columns
    for method in METHODS
    if (record := _needed(entries, records, method, name, counts_stages))
  }


def _needed(
  entries: Entries,
  records: Records,
  method: str,
  column: str,
  counts_stages: bool,
) -> Record | None:
  texts = dict(part.split(" = ") for part in column.split(", "))
  at = entries["fixed"] | {name: float(x) for name, x in texts.items()}
  record = records.get((method, f"K = {at['K']:g}"))
  if record is None:
    return None
  # The others do not depend on zeta, and ran at one.
  is_local = method in entries["groups"]["local"]
  record = record.where(zeta=(at if is_local else entries["fixed"])["ζ"])
  if not record.points:
    return None
  name = metric(at["ε"], counts_stages)
  seeds = [point["seed"] for point in record.points]
  chooses = np.isin(seeds, sorted(set(seeds))[:NUM_TUNING])
  tuning = record.take(np.flatnonzero(chooses))
  report = record.take(np.flatnonzero(~chooses))
  best = outcome_of(tuning.history, tuning.points, Criterion(name, "min")).best
  if best is None:
    points = [
      {"seed": s} for s in dict.fromkeys(p["seed"] for p in report.points)
    ]
    rounds = np.full(len(points), np.nan)
  else:
    report = report.where(client_lr=best.hyperparameters["client_lr"])
    points, rounds = report.points, report.final(name)
  metrics = {"rounds": rounds[:, None], "halvings": -np.log2(rounds)[:, None]}
  return Record((), record.flags, {}, points, History([0], metrics))


def exponents(entries: Entries, parts: Records) -> dict[Key, Record]:
  """How rounds grow: the slope of their logarithm, for each seed.

  Args:
    entries: the artefact's entries.
    parts: what `needed` returns.

  Returns:
    (method, 'in ζ', 'in K' or 'in 1/ε') -> a record with a point for each seed
    and the metric 'exponent', NaN where some value was not reached.
  """
  fits = {}
  for method in METHODS:
    for name, columns in entries["fits"].items():
      records = [parts.get((method, column)) for column in columns]
      if None in records:
        continue
      rounds = np.log([r.final("rounds") for r in records])  # [n, seeds]
      x = np.log([float(_last(column)) for column in columns])
      x = (x - x.mean()) * (-1 if name.startswith("1/") else 1)
      # Equal numbers of rounds get a slope of exactly 0.
      slopes = x @ (rounds - rounds[0]) / (x @ x)
      points = [{"seed": p["seed"]} for p in records[0].points]
      history = History([0], {"exponent": slopes[:, None]})
      record = Record((), records[0].flags, {}, points, history)
      fits[method, f"in {name}"] = record
  return fits


def _last(column: str) -> str:
  """The number that varies, at the end of a column's name."""
  return column.split(" = ")[-1]


def blocks(entries: Entries, records: Records) -> list[Block]:
  """Tables of rounds and rates, a picture, and the claims of the orders."""
  record = next(iter(records.values()))
  limit = int(record.history.rounds[-1])
  parts, varied = needed(entries, records), entries["varied"]
  orders = exponents(entries, parts)
  tables = [_table(parts, *item, limit) for item in varied.items()]
  rates = [_rates(parts, *item) for item in varied.items()]
  first = next(iter(varied.items()))
  longer_parts = needed(entries, records, counts_stages=True)
  longer_table = _table(longer_parts, *first, limit)
  longer_rates = _rates(longer_parts, *first)
  title = "The same, if the large gradient of a stage counts as a round"
  draw = functools.partial(_draw, parts, varied, limit)
  return [
    tables[0]._replace(title=_how(record, tables[0].title)),
    *tables[1:],
    *rates,
    longer_table._replace(title=title),
    longer_rates._replace(title="Its rates"),
    _fits(entries["fits"], orders),
    Picture("rounds", draw, "Rounds against ζ, K and ε"),
    *declared_claims.claims(entries, parts | orders),
  ]


def _table(
  parts: Records, title: str, columns: Sequence[str], limit: int
) -> Table:
  text = lambda *key: _text(parts.get(key), limit)
  heads = [title.split(",")[0], *map(_last, columns)]
  return Table(heads, _rows(columns, text), title)


def _rows(columns: Iterable[str], text: Callable[..., str]) -> list[list[str]]:
  """A line of texts for each method, by `(method, column) -> text`."""
  return [[m, *(text(m, column) for column in columns)] for m in METHODS]


def _rates(parts: Records, title: str, columns: Sequence[str]) -> Table:
  """The rates of a table's cells; none where no rate reached eps."""

  def text(*key):
    rate = parts[key].points[0].get("client_lr") if key in parts else None
    return NOT_RUN if rate is None else f"{rate:g}"

  heads = [title.split(",")[0], *map(_last, columns)]
  return Table(heads, _rows(columns, text), f"Rates against {title}")


def _fits(names: Iterable[str], orders: Records) -> Table:
  def text(*key):
    record = orders.get(key)
    if record is None:
      return NOT_RUN
    slopes = record.final("exponent")
    if np.isnan(slopes).any():
      return f"> {record.flags['rounds']} rounds somewhere"
    return with_interval(slopes, "exponent")

  columns = [f"in {name}" for name in names]
  title = "Exponents of the rounds, fitted for each seed (in ζ from 0.3 on)"
  return Table(["method", *columns], _rows(columns, text), title)


def _text(record: Record | None, limit: int) -> str:
  if record is None:
    return NOT_RUN
  rounds = record.final("rounds")
  num_late = int(np.isnan(rounds).sum())
  if num_late:
    some = f" in {num_late} of {len(rounds)}" if num_late < len(rounds) else ""
    return f"> {limit}{some}"
  parts = NumberFormat("rounds", 1).texts(statistics.mean_interval(rounds))
  return "{} ({})".format(*parts)


def _how(record: Record, title: str) -> str:
  """The line above the first table, which explains its numbers."""
  options = record.flags
  limit, seeds = options["rounds"], options["seeds"]
  return (
    f"Mean number of rounds (at most {limit}) until the squared gradient norm "
    f"is at most ε, with its 95 % interval over {len(seeds) - NUM_TUNING} "
    f"seeds. The rate is the best of {len(options['rates'])} on "
    f"{NUM_TUNING} other seeds. As in the paper, the large gradient of a stage "
    f"is no round. B = {options['batch_size']}. Against {title}"
  )


def _draw(
  parts: Records,
  varied: Mapping[str, Sequence[str]],
  limit: int,
) -> Any:
  """Draws four panels; a cross above the line marks that a seed failed."""
  styles = plots.method_styles(METHODS)
  with plots.figure(columns=2, rows=2) as (figure, axes):
    for panel, (title, columns) in zip(axes.flat, varied.items(), strict=True):
      for i, (method, style) in enumerate(styles.items()):
        records = [parts.get((method, name)) for name in columns]
        _draw_method(panel, method, style, records, limit, 0.1 * (i - 2))
      panel.axhline(limit, color="#808080", linewidth=0.7)
      panel.set_yscale("log")
      panel.set_ylim(1.5, 2.2 * limit)
      panel.yaxis.set_major_formatter("{x:g}")
      panel.set_xticks(range(len(columns)), [*map(_last, columns)])
      panel.set_xlabel(title)
    for row_axes in axes:
      row_axes[0].set_ylabel("Rounds")
    handles, names = axes[0][0].get_legend_handles_labels()
    entries = dict(zip(names, handles, strict=True))
    (lost,) = axes[0][0].plot([], [], "x", color="#606060", markersize=4)
    entries[f"a seed needs more than {limit}"] = lost
    panels.add_legend(figure, entries, 5.6)
    return figure


def _draw_method(panel, method, style, records, limit, shift) -> None:
  means = np.array([
    np.nan if r is None else np.mean(r.final("rounds")) for r in records
  ])  # fmt: skip
  look = {"color": style.color, "markersize": 4}
  line = {"marker": style.marker, "linestyle": style.linestyle}
  panel.plot(means, label=method, **line, **look)
  is_lost = np.isnan(means) & [r is not None for r in records]
  # Several crosses stand beside one another.
  lost = np.flatnonzero(is_lost) + shift
  panel.plot(lost, [1.5 * limit] * len(lost), "x", **look)
