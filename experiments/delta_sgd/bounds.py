"""The theorems of the Delta-SGD paper, measured on small problems."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.artefacts.artefact import Block, Found, Picture, Table
from experiments.artefacts.claims import Claim, Quantity
from experiments.artefacts.values import with_interval
from fedjax_opt import plots


def _draw_lines(
  panels: Mapping[str, Mapping[str, np.ndarray]],
  x: Sequence[float],
  path: pathlib.Path,
  x_label: str,
  y_label: str,
  log_x: bool = False,
) -> None:
  """Draws means with ranges on a log axis.

  Args:
    panels: title -> line -> its values, [points, X].
    x: [X].
    path: of the file.
    x_label: of the axis.
    y_label: of the axis.
    log_x: whether that of x too is logarithmic.
  """
  with plots.figure(len(panels)) as (figure, axes):
    for place, (title, lines) in zip(axes[0], panels.items(), strict=True):
      for i, (name, values) in enumerate(lines.items()):
        color = plots.COLORS[i]
        mean = values.mean(axis=0)
        place.plot(x, mean, color=color, label=name, linestyle=_STYLES[i])
        ends = values.min(axis=0), values.max(axis=0)
        place.fill_between(x, *ends, color=color, alpha=0.2, linewidth=0)
      place.set_title(title)
      place.set_xlabel(x_label)
      plots.log_scale(place.yaxis)
      if log_x:
        plots.log_scale(place.xaxis)
    axes[0, 0].set_ylabel(y_label)
    axes[0, -1].legend()
    figure.savefig(path)


_STYLES = ("-", "--", "-.")


def theorem1(about: Any, found: Found) -> list[Block]:
  (record,) = found.values()
  history = record.history
  rounds = np.asarray(history.rounds, float)
  values = history.values("mean_grad_norm_sq")
  line = values[:, 0].mean() * np.sqrt(rounds[0] / rounds)
  lines = {"": {"measured": values, "1/√T": line[None]}}
  ratio = np.log(values[:, -2] / values[:, -1])
  exponent = ratio / np.log(rounds[-1] / rounds[-2])
  last = f"{rounds[-2]:g} to {rounds[-1]:g}"
  return [
    Table(
      ["rounds T", "mean squared gradient norm", "times √T"],
      [
        [
          f"{number:g}",
          with_interval(values[:, i], "grad_norm_sq"),
          f"{values[:, i].mean() * number**0.5:.3g}",
        ]
        for i, number in enumerate(rounds)
      ],
    ),
    Picture(
      "rate",
      lambda path: _draw_lines(
        lines, rounds, path, "Rounds T", "Mean squared gradient norm", True
      ),
      "Mean squared gradient norm over the number of rounds",
    ),
    Claim(
      "The mean squared gradient norm falls as 1/√T with γ and η0 as the "
      "theorem wants: the exponent is above 0.45",
      [
        Quantity(
          f"exponent from T = {last}, less 0.45",
          tuple((exponent - 0.45).tolist()),
        )
      ],
      is_ours=True,
    ),
  ]


_OF_THEOREM5 = {
  "gap": "f - f* at the averaged point",
  "bound": "D / (2 S)",
  "rate": "2 D L² / (2 L t + 1)",
}


def theorem5(about: Any, found: Found) -> list[Block]:
  (record,) = found.values()
  history = record.history
  logs = {n: np.log10(history.metrics[n]) for n in _OF_THEOREM5}
  panels = {}
  for eta in dict.fromkeys(point["eta_0"] for point in record.points):
    rows = [i for i, p in enumerate(record.points) if p["eta_0"] == eta]
    panels[f"η0 = {eta:g}"] = {
      label: history.metrics[name][rows] for name, label in _OF_THEOREM5.items()
    }

  least = lambda a, b: tuple((logs[a] - logs[b]).min(axis=1).tolist())
  return [
    Picture(
      "bounds",
      lambda path: _draw_lines(panels, history.rounds, path, "Step", "f - f*"),
      "The averaged point's gap, its bound and its rate",
    ),
    Claim(
      "At every step f - f* of the averaged point is below D / (2 S), and "
      "that is below 2 D L² / (2 L t + 1)",
      [
        Quantity(
          "least log10 of bound to gap", least("bound", "gap"), "", True
        ),
        Quantity(
          "least log10 of rate to bound", least("rate", "bound"), "", True
        ),
      ],
    ),
  ]


def lyapunov(about: Any, found: Found) -> list[Block]:
  (record,) = found.values()
  potential = record.history.metrics["potential"]
  gammas = np.array([point["gamma"] for point in record.points])
  rounds = record.history.rounds
  lines = {
    f"γ = {gamma:g}": potential[gammas == gamma] for gamma in np.unique(gammas)
  }
  # Of what is left, so that late steps count as early ones.
  growth = (potential[:, 1:] / potential[:, :-1]).max(axis=1)
  of_lemma = tuple((1 + 1e-6 - growth[gammas == 1]).tolist())

  return [
    Picture(
      "potential",
      lambda path: _draw_lines(
        {"": lines}, rounds, path, "Step", "Potential, a part of the first"
      ),
      "The potential over steps",
    ),
    Table(
      ["γ", "problems", "with a step in which the potential grew"],
      [
        [
          f"{gamma:g}",
          str(int(np.sum(gammas == gamma))),
          str(int(np.sum(growth[gammas == gamma] > 1 + 1e-6))),
        ]
        for gamma in np.unique(gammas)
      ],
    ),
    Claim(
      "With γ = 1 the potential never grows",
      [Quantity("1 less the largest ratio of two steps", of_lemma, "", True)],
    ),
  ]
