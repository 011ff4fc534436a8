"""Figures 1, 5, 12 to 15: fMRI scans, and FEMNIST under constraints.

The paper's strength on fMRI scans is not given: three of them are run. Their
subject 6, the paper's validation set, is the test part of the task.
"""

import functools
from collections.abc import Mapping, Sequence

import numpy as np

from experiments.artefacts import drawing, views
from experiments.artefacts.base import (
  Artefact,
  Block,
  Cell,
  Found,
  Key,
  Picture,
  Plan,
  RunOf,
  Table,
)
from experiments.artefacts.claims import Claim, Quantity
from experiments.artefacts.record import Kept, Record
from experiments.fco import grids, regression
from experiments.fco.claims import OSP, OTHERS, OURS, PRIMAL
from experiments.fco.grids import ALGORITHMS, Column, Condition, Rule
from fedjax_opt import Run, plots
from fedjax_opt.study.plots import frame, panels

_SEEDS = "0,1,2,3"
_SIZES = ("smoke", "paper")  # No CPU is enough, and the data are not small.

# fMRI.

_STRENGTHS = "0.0001,0.001,0.01"
_BASELINES = {"centralized": "centralized", "local": "local"}
_METHODS = ALGORITHMS | {"FedAvg(∂)": "fed_avg_subgradient"} | _BASELINES
_VALIDATION = Rule("validation loss", "regularized_test_loss", "min", 1)
_FMRI = ("regularized_test_loss", "test_accuracy", "density")
_BASELINE_RATES = "0.0001,0.0003,0.001,0.003,0.01,0.03,0.1,0.3,1"
_OF_1 = ("FedDualAvg", "FedMiD", "FedAvg(∂)", "centralized", "local")
_OF_5 = (*ALGORITHMS, "centralized")


def _fmri_run(plan: Plan, method: str) -> RunOf:
  if plan.size == "smoke":  # Small and sparse, too.
    return regression.grid(plan, regression.LASSO, "I", method)
  others = (f"--strength={_STRENGTHS}", f"--seed={_SEEDS}")
  if method not in _BASELINES:
    flags = "--flagfile=experiments/fco/fmri.flags"
    return RunOf((flags, f"--algorithm={_METHODS[method]}", *others))
  return RunOf(
    (
      "--task=fmri",
      "--select_on=test",
      f"--algorithm={_METHODS[method]}",
      f"--client_lr={_BASELINE_RATES}",
      "--rounds=300",
      "--eval_every=10",
      *others,
    )
  )


def _fmri_cells(methods: Sequence[str], plan: Plan) -> dict[Key, Cell]:
  if plan.size == "smoke":
    methods = [m for m in methods if m in ("FedMiD", OURS)]
  return {(method,): _fmri_run(plan, method) for method in methods}


def _fmri_blocks(methods: Sequence[str], claims, found: Found) -> list[Block]:
  columns = {
    "validation loss": Column(_FMRI[0], views.final(_FMRI[0])),
    "accuracy": Column(_FMRI[1], views.final(_FMRI[1])),
    "density": Column(_FMRI[2], views.final(_FMRI[2])),
  }
  rules = [_VALIDATION]
  return [
    grids.results(found, methods, rules, columns),
    *_panels(found, methods, _VALIDATION, _FMRI),
    *grids.verdicts(_with_metrics(found, _FMRI), rules, claims),
  ]


def _with_metrics(found: Found, metrics: Sequence[str]) -> Found:
  """Those that measured all that claims look at."""
  has = lambda record: set(metrics) <= record.history.metrics.keys()
  return {key: record for key, record in found.items() if has(record)}


def _panels(
  found: Found, methods: Sequence[str], rule: Rule, metrics: Sequence[str]
) -> list[Picture]:
  rows = {}
  for condition in grids.conditions(found, [rule]):
    picked = grids.pick(found, condition)
    of_row = {m: picked[m,] for m in methods if (m,) in picked}
    strength = condition.strength
    title = "" if strength is None else f"λ = {strength:g}"
    rows[title] = drawing.Row(of_row, {})
  if not rows:
    return []
  alt = f"Curves of {', '.join(methods)}, rates by {rule.name}"
  return [drawing.metrics_by_row(rows, metrics, methods, "curves", alt)]


def _over(found: Found, metric: str, one: str, other: str) -> Quantity:
  """That one is better than the other in a metric at the end."""
  if "accuracy" in metric:
    unit, scale = "points", 100.0
  else:  # Losses and densities.
    unit, scale = "", -1.0
  name = f"{metric.replace('_', ' ')}, {one} better than {other} by"
  value = views.final(metric)
  return views.lead(
    found, name, (one,), (other,), value, unit=unit, scale=scale
  )


def _near(
  found: Found, metric: str, one: str, other: str, limit: float
) -> Quantity:
  """That two are no further apart than a limit."""
  name = (
    f"{metric.replace('_', ' ')}, {one} and {other} nearer than {limit:g} by"
  )
  a, b = (views.values(found, (m,), views.final(metric)) for m in (one, other))
  if a is None or b is None:
    return Quantity(name, ())
  return Quantity(name, tuple(limit - np.abs(a - b)))


def _figure1(found: Found, condition: Condition) -> list[Claim]:
  del condition
  better = lambda one, *others: [
    _over(found, "test_accuracy", one, o) for o in others
  ]
  return [
    Claim(
      "FedDualAvg is near the centralized baseline, within 5 points",
      [_near(found, "test_accuracy", OURS, "centralized", 0.05)],
    ),
    Claim(
      "FedDualAvg is significantly more accurate than the local baseline and "
      "FedAvg(∂)",
      better(OURS, "local", "FedAvg(∂)"),
    ),
  ]


def _figure5(found: Found, condition: Condition) -> list[Claim]:
  del condition
  better = lambda metric, others: [
    _over(found, metric, OURS, other) for other in others
  ]
  return [
    Claim(
      "FedDualAvg is near the centralized baseline, within 5 points",
      [_near(found, "test_accuracy", OURS, "centralized", 0.05)],
    ),
    Claim(
      "FedMiD and FedMiD-OSP are denser and less accurate than FedDualAvg",
      [*better("density", PRIMAL), *better("test_accuracy", PRIMAL)],
    ),
    Claim(
      "FedDualAvg-OSP is less accurate than FedDualAvg",
      better("test_accuracy", [OSP]),
    ),
  ]


# Figure 12: all rates.

_ROUNDS = (10, 30, 100, 300)
_RANGE = (0.003, 0.3)  # Of the product of both rates.


def _rows_of_all_rates(points, seeds) -> list[int]:
  """Indices of the points of the first seed, their product in the range."""
  low, high = _RANGE
  return [
    row
    for row, point in enumerate(points)
    if point["seed"] == min(seeds)
    and "server_lr" in point
    and low * 0.999 <= point["client_lr"] * point["server_lr"] <= high * 1.001
  ]


def _keep_fmri(run: Run) -> Kept:
  """What Figures 1, 5 and 12 show, which share runs and so their records."""
  kept = grids.keep(_VALIDATION, metrics=_FMRI)(run)
  seeds = [point["seed"] for point in run.points]
  rows = {*kept.points, *_rows_of_all_rates(run.points, seeds)}
  return kept._replace(points=sorted(rows))


def _of_strength(record: Record, strength: float) -> list[int]:
  """Indices of the points that Figure 12 shows of a strength."""
  rows = _rows_of_all_rates(record.points, record.arrays["seed"])
  return [row for row in rows if record.points[row]["strength"] == strength]


def _upper_left(record: Record, strength: float) -> np.ndarray:
  """Of each pair of rates, whether it ends sparse and accurate."""
  rows = _of_strength(record, strength)
  accuracy = record.final("test_accuracy")[rows]
  density = record.final("density")[rows]
  return np.where((accuracy > 0.75) & (density < 0.5), 1.0, 0.0)


def _figure12_blocks(found: Found) -> list[Block]:
  has = _with_metrics(found, ("test_accuracy", "density"))
  strengths = sorted(
    {p["strength"] for record in has.values() for p in record.points}
  )
  share = {
    (key[0], s): float(_upper_left(record, s).mean())
    for key, record in has.items()
    for s in strengths
  }
  rows = [
    [method, *(f"{100 * share[method, s]:.0f}" for s in strengths)]
    for (method,) in has
  ]
  blocks: list[Block] = [
    Table(
      ["algorithm", *(f"λ = {s:g}" for s in strengths)],
      rows,
      "Percent of the pairs of rates that end at an accuracy above 75 % and a "
      "density below 0.5",
    ),
  ]
  claims = [
    Claim(
      f"FedDualAvg is the most robust to rates (λ = {s:g})",
      [
        Quantity(
          f"share over that of {o}",
          (share[OURS, s] - share[o, s],) if (o, s) in share else (),
        )
        for o in OTHERS
      ],
    )
    for s in strengths
    if (OURS, s) in share
  ]
  pictures = [_scatter(has, s) for s in strengths]
  return [*(blocks if rows else []), *pictures, *claims]


def _scatter(found: Found, strength: float) -> Picture:
  def draw(path) -> None:
    styles = plots.method_styles(ALGORITHMS)
    entries = {}
    with plots.figure(len(_ROUNDS)) as (figure, all_axes):
      for axes, at in zip(all_axes[0], _ROUNDS, strict=True):
        for (method,), record in found.items():
          rows = _of_strength(record, strength)
          x, y = (grids.at(m, at)(record)[rows]
                  for m in ("density", "test_accuracy"))  # fmt: skip
          look = styles[method]
          entries[method] = axes.scatter(
            x, 100 * y, s=12, color=look.color, marker=look.marker, alpha=0.7
          )
        axes.set(title=f"Round {at}", xlabel="Density")
        axes.set(xlim=(-0.03, 1.03), ylim=(30, 102))
      all_axes[0, 0].set_ylabel("Accuracy (%)")
      panels.add_below(figure, entries, 2.8 * len(_ROUNDS))
      frame.finish(figure, path)

  alt = "Accuracy over density of all pairs of rates, after four rounds"
  return Picture(f"rates_{strength:g}", draw, alt)


# FEMNIST.

_TRAINING = Rule("training loss", "train_loss", "min", 10)
_FEMNIST = ("train_loss", "train_accuracy", "test_accuracy")


def _femnist_cells(flags: Sequence[str], plan: Plan) -> dict[Key, Cell]:
  if plan.size == "smoke":
    small = (
      "--task=digits_logistic",
      "--num_clients=20",
      "--cohort_size=4",
      "--regularizer=l2_ball",
      "--radius=10",
      "--client_lr=0.01,0.1",
      "--server_lr=1",
      "--rounds=2",
      "--eval_every=1",
      "--seed=0,1,2",
    )
    return {(OURS,): RunOf((*small, f"--algorithm={ALGORITHMS[OURS]}"))}
  preset = "--flagfile=experiments/fco/femnist.flags"
  return {
    (method,): RunOf(
      (preset, *flags, f"--algorithm={algorithm}", f"--seed={_SEEDS}")
    )
    for method, algorithm in ALGORITHMS.items()
  }


def _femnist_blocks(claims, found: Found) -> list[Block]:
  columns = {
    metric.replace("_", " "): Column(metric, views.final(metric))
    for metric in _FEMNIST
  }
  rules = [_TRAINING]
  return [
    grids.results(found, [*ALGORITHMS], rules, columns),
    *_panels(found, [*ALGORITHMS], _TRAINING, _FEMNIST),
    *grids.verdicts(_with_metrics(found, _FEMNIST), rules, claims),
  ]


def _best(found: Found, others: Sequence[str]) -> list[Quantity]:
  """That FedDualAvg is better than others in all three metrics."""
  return [_over(found, metric, OURS, o) for metric in _FEMNIST for o in others]


def _alike(found: Found, methods: Sequence[str]) -> list[Quantity]:
  first, *others = methods
  return [
    _near(found, metric, first, other, 0.02)
    for metric in _FEMNIST[1:]
    for other in others
  ]


def _figure13(found: Found, condition: Condition) -> list[Claim]:
  del condition
  return [
    Claim("FedDualAvg is best in all three metrics", _best(found, OTHERS)),
    Claim(
      "The other three are nearly equal, within 2 points",
      _alike(found, OTHERS),
    ),
  ]


def _figure14(found: Found, condition: Condition) -> list[Claim]:
  del condition
  over = lambda metric, one, other: _over(found, metric, one, other)
  three = [method for method in ALGORITHMS if method != OSP]
  return [
    Claim("FedDualAvg beats FedMiD and FedMiD-OSP", _best(found, PRIMAL)),
    Claim("FedMiD and FedMiD-OSP coincide", _alike(found, PRIMAL)),
    Claim(
      "FedDualAvg-OSP has the worst loss and the best accuracies",
      [
        *(over("train_loss", other, OSP) for other in three),
        *(over(m, OSP, other) for m in _FEMNIST[1:] for other in three),
      ],
    ),
  ]


def _figure15(found: Found, condition: Condition) -> list[Claim]:
  del condition
  return [
    Claim("FedDualAvg is best in all three metrics", _best(found, OTHERS)),
    Claim("FedMiD and FedMiD-OSP coincide", _alike(found, PRIMAL)),
    Claim(
      "FedDualAvg-OSP is far behind, by more than 10 points of accuracy",
      [
        grids.below(
          found, "test accuracy of FedDualAvg-OSP, below that less 0.1",
          (OSP,), views.final("test_accuracy"),
          0.0 if ours is None else float(np.nanmean(ours)) - 0.1,
        )
        for ours in [views.values(found, (OURS,), views.final("test_accuracy"))]
      ],
    ),
  ]  # fmt: skip


def _fmri(number: int, title: str, methods: Sequence[str], claims) -> Artefact:
  return Artefact(
    f"fco/figure{number}",
    title,
    "Haxby's fMRI scans, horse or face, 59 training clients and 12 of subject "
    "6, 20 clients a round, one epoch in batches of 1, 300 rounds, 49 pairs of "
    "rates; strength not given",
    functools.partial(_fmri_cells, methods),
    functools.partial(_fmri_blocks, methods, claims),
    _keep_fmri,
    sizes=_SIZES,
  )


def _femnist(
  number: int, title: str, flags: Mapping[str, str], claims
) -> Artefact:
  arguments = [f"--{name}={value}" for name, value in flags.items()]
  return Artefact(
    f"fco/figure{number}",
    title,
    "FEMNIST, 10 clients a round, 10 epochs in batches of 10, 5,000 rounds, 25 "
    "pairs of rates",
    functools.partial(_femnist_cells, arguments),
    functools.partial(_femnist_blocks, claims),
    grids.keep(_TRAINING, metrics=_FEMNIST),
    sizes=_SIZES,
  )


ARTEFACTS = (
  _fmri(1, "Sparse logistic regression on fMRI scans", _OF_1, _figure1),
  _fmri(5, "Four algorithms on fMRI scans", _OF_5, _figure5),
  Artefact(
    "fco/figure12",
    "Accuracy and density on fMRI scans at all pairs of rates",
    "as Figure 5, pairs whose product is in [0.003, 0.3], after rounds 10, 30, "
    "100 and 300",
    functools.partial(_fmri_cells, tuple(ALGORITHMS)),
    _figure12_blocks,
    _keep_fmri,
    sizes=_SIZES,
  ),
  _femnist(
    13,
    "Logistic regression on FEMNIST-10, l1 norm at most 1000",
    {"task": "femnist10", "regularizer": "l1_ball", "radius": "1000"},
    _figure13,
  ),
  _femnist(
    14,
    "Logistic regression on FEMNIST-10, l2 norm at most 10",
    {"task": "femnist10", "regularizer": "l2_ball", "radius": "10"},
    _figure14,
  ),
  _femnist(
    15,
    "A 784-200-200-62 network on FEMNIST-62, l1 norm of kernels at most 1000",
    {"task": "femnist62", "regularizer": "l1_ball", "radius": "1000"},
    _figure15,
  ),
)
