"""Measures what two pages show: `python docs/make/messages_study.py [NAME...]`.

Writes NAME.csv and NAME.png: messages_bytes, accuracy against the bytes that a
client has sent; messages_faults, accuracy against the share of faulty clients;
privacy, accuracy against epsilon. The rate of each method is chosen on
validation examples; accuracies are those on the test examples. With --plot the
pictures are drawn from the tables that are there.
"""

import csv
import pathlib
import sys
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax

import fedjax_opt as fo
from fedjax_opt import plots, transforms
from fedjax_opt.study.plots import panels
from fedjax_opt.transforms import aggregators, faults

FOLDER = pathlib.Path(__file__).parents[1]
CLIENTS, COHORT, ALPHA, ROUNDS = 50, 10, 0.3, 100
RATES = {"learning_rate": [0.03, 0.1, 0.3, 1.0]}
SEEDS = [0, 1, 2, 3, 4]
WHOLE = "all, 32 bits"
COMPRESSORS = {
  "top-k, 2 %": transforms.top_k(0.02),
  "random-k, 2 %": transforms.random_k(0.02),
  "sign": transforms.sign(),
  "1 level": transforms.quantize(1),
  "15 levels": transforms.quantize(15),
}
AGGREGATORS = {
  "mean": aggregators.mean(),
  "median": aggregators.median(),
  "trimmed mean, 0.3": aggregators.trimmed_mean(0.3),
  "multi-Krum, f = 3": aggregators.multi_krum(3),
}
FRACTIONS = [0.0, 0.1, 0.2, 0.3]
FAULTS = {"flipped": faults.flip, "noisy": faults.noise}
STRENGTH = {"flipped": 5.0, "noisy": 10.0}
# Of privacy: more clients, of which more or fewer are expected in a round.
MANY, DELTA = 200, 1e-3
EXPECTED = [20, 40]
PRIVATE = {
  "noise_multiplier": [0.0, 0.5, 1.0, 2.0, 4.0],
  "max_norm": [0.3, 1.0],
}

# Of pictures: the factors of a panel's usual size, its width in inches, and
# what is above the legends.
SCALE = (1.2, 1.0)
WIDTH = 2.8 * SCALE[0]
_SAID = f"Mean over {len(SEEDS)} seeds"
_BARS = f"Mean and standard deviation over {len(SEEDS)} seeds"

_POOL, _TEST = fo.datasets.embedded.digits()
_TRAIN, _VALIDATION = fo.data.hold_out(_POOL, fraction=0.1)
_PARAMS = {"w": jnp.zeros((64, 10)), "b": jnp.zeros(10)}


def _clients(seed, number=CLIENTS):
  rows = fo.partition.dirichlet(
    _TRAIN["y"], num_clients=number, alpha=ALPHA, seed=seed
  )
  return fo.ClientData.from_partition(_TRAIN, rows, keep_pool=True)


def _logits(params, batch):
  return batch["x"].reshape(-1, 64) / 16 @ params["w"] + params["b"]


def _loss_fn(params, batch, rng):
  del rng
  cross_entropy = optax.softmax_cross_entropy_with_integer_labels
  return cross_entropy(_logits(params, batch), batch["y"])


def _per_example(params, batch):
  right = _logits(params, batch).argmax(-1) == batch["y"]
  return {"loss": _loss_fn(params, batch, None), "accuracy": right * 1.0}


def _best(make, grid, by, **settings):
  """The best rate of each setting of the others, by validation accuracy.

  Args:
    make: `(learning_rate, **others) -> Algorithm`.
    grid: of the others.
    by: `(others) -> key`, the settings among which the rate is chosen.
    **settings: of the run.

  Yields:
    The values of the others, the rate, the rounds, and the test accuracy,
    [seeds, evaluated rounds], NaN of points that diverged.
  """
  grid = {**grid, **RATES}
  defaults = {"clients": _clients, "cohort_size": COHORT, "batch_size": 16}
  defaults |= {"eval_every": 5}
  if "local_steps" not in settings:
    defaults["local_epochs"] = 1
  settings = defaults | settings
  result = fo.sweep(
    make,
    grid,
    _PARAMS,
    settings.pop("clients"),
    rounds=ROUNDS,
    seeds=SEEDS,
    validation=_VALIDATION,
    test=_TEST,
    evaluate=fo.evaluation.federated(_per_example),
    **settings,
  )
  points = fo.grid_points(grid, SEEDS)
  metrics = result.history.metrics
  best = {}
  for s in range(0, len(points), len(SEEDS)):
    rows = slice(s, s + len(SEEDS))
    mean_accuracy = np.mean(metrics["validation_accuracy"][rows, -1])
    score = -1.0 if np.isnan(mean_accuracy) else mean_accuracy
    key = by(points[s])
    if key not in best or score > best[key][0]:
      rate = points[s]["learning_rate"]
      best[key] = score, rate, np.asarray(metrics["test_accuracy"][rows])
  rounds = [int(round) for round in result.history.rounds]
  for key, (_, rate, accuracy) in best.items():
    yield key, rate, rounds, accuracy


def measure_bytes() -> list[dict]:
  """One row for each compressor and evaluation."""
  uploads, rows = {WHOLE: transforms.Upload(optax.identity())}, []
  for label, upload in COMPRESSORS.items():
    uploads[label] = upload
    uploads[f"{label}, feedback"] = transforms.error_feedback(upload)
  for label, upload in uploads.items():
    make = lambda learning_rate: fo.fed_avg(_loss_fn, optax.sgd(learning_rate))
    no_key = lambda point: ()
    for _, rate, rounds, accuracy in _best(make, {}, no_key, upload=upload):
      for round, values in zip(rounds, accuracy.T, strict=True):
        # A client takes part in C of M rounds.
        kilobytes = round * upload.num_bytes(_PARAMS) * COHORT / CLIENTS / 1000
        rows.append(
          {
            "method": label,
            "learning_rate": rate,
            "round": round,
            "kilobytes": kilobytes,
            **_statistics(values),
          }
        )
  return rows


def measure_faults() -> list[dict]:
  """One row for each fault, fraction and aggregator."""
  rows = []
  for kind, fault in FAULTS.items():
    for label, aggregator in AGGREGATORS.items():

      def make(learning_rate, fraction, fault=fault, kind=kind):
        algorithm = fo.fed_avg(_loss_fn, optax.sgd(learning_rate))
        return faults.with_fault(algorithm, fault(fraction, STRENGTH[kind]))

      for fraction, rate, _, accuracy in _best(
        make,
        {"fraction": FRACTIONS},
        lambda point: point["fraction"],
        weighting="uniform",
        aggregator=aggregator,
      ):
        rows.append(
          {
            "fault": kind,
            "fraction": fraction,
            "aggregator": label,
            "learning_rate": rate,
            **_statistics(accuracy[:, -1]),
          }
        )
  return rows


def measure_privacy() -> list[dict]:
  """One row for each expected number of clients and noise multiplier."""
  rows = []

  def make(learning_rate, **mechanism):
    algorithm = fo.fed_avg(_loss_fn, optax.sgd(learning_rate))
    return fo.privacy.with_privacy(algorithm, **mechanism)

  for expected in EXPECTED:
    results = _best(
      make,
      PRIVATE,
      lambda point: point["noise_multiplier"],
      clients=lambda seed: _clients(seed, MANY),
      sampler=fo.samplers.poisson(expected),
      cohort_size=2 * expected,
      batch_size=4,
      local_steps=4,
      weighting="uniform",
      eval_every=ROUNDS,
    )
    for noise, rate, _, accuracy in results:
      arguments = (noise, ROUNDS, MANY, expected, DELTA)
      epsilon = fo.privacy.epsilon(*arguments, places=2 * expected)
      rows.append(
        {
          "expected": expected,
          "noise_multiplier": noise,
          "epsilon": epsilon,
          "learning_rate": rate,
          **_statistics(accuracy[:, -1]),
        }
      )
  return rows


def _statistics(values):
  """The mean over seeds, and their standard deviation."""
  return {
    "accuracy": float(np.mean(values)),
    "deviation": float(np.std(values, ddof=1)),
  }


def _write(name, rows):
  names = list(dict.fromkeys(n for row in rows for n in row))
  with (FOLDER / f"{name}.csv").open("w", newline="") as file:
    writer = csv.DictWriter(file, names, lineterminator="\n")
    writer.writeheader()
    rounded = lambda v: f"{v:.5g}" if isinstance(v, float) else v
    writer.writerows({n: rounded(v) for n, v in row.items()} for row in rows)


def _read(name):
  with (FOLDER / f"{name}.csv").open() as file:
    return list(csv.DictReader(file))


def _of(rows, **wanted):
  return [r for r in rows if all(r[n] == v for n, v in wanted.items())]


def _column(rows, name):
  return np.array([float(row[name]) for row in rows])


def draw_bytes() -> Any:
  """Error against bytes, without feedback and with it."""
  rows, entries = _read("messages_bytes"), {}
  titles = ("Without error feedback", "With error feedback")
  styles = plots.method_styles([*COMPRESSORS])
  with plots.figure(2, 1, SCALE) as (figure, axes):
    suffixes = ("", ", feedback")
    for ax, title, suffix in zip(axes[0], titles, suffixes, strict=True):
      labels = {label: label + suffix for label in COMPRESSORS}
      for label, name in {WHOLE: WHOLE, **labels}.items():
        points = _of(rows, method=name)[1:]  # Nothing was sent before round 0.
        style = (
          styles[label]._asdict() if label in styles else {"color": "black"}
        )
        (entries[label],) = ax.plot(
          _column(points, "kilobytes"),
          100 - 100 * _column(points, "accuracy"),
          **style,
          linewidth=1.3,
          markersize=4,
          markevery=3,
        )
      plots.log_scale(ax.xaxis)
      plots.log_scale(ax.yaxis)
      ax.set(xlabel="kB sent by a client", title=title, ylim=(3, 60))
    axes[0, 0].set_ylabel("Test error (%)")
    panels.add_legend(figure, entries, 2 * WIDTH, _SAID)
  return figure


def draw_faults() -> Any:
  """Accuracy against the share of clients that flip; noise changes little."""
  rows, entries = _read("messages_faults"), {}
  styles = plots.method_styles([*AGGREGATORS])
  with plots.figure(1, 1, SCALE) as (figure, axes):
    ax = axes[0, 0]
    for label in AGGREGATORS:
      points = _of(rows, fault="flipped", aggregator=label)
      share = 100 * _column(points, "fraction")
      entries[label] = _bars(ax, share, points, styles[label].color)
    ax.set(xlabel="Faulty clients (%)", title="Flipped differences")
    ax.set(ylabel="Test accuracy (%)", ylim=(0, 102))
    panels.add_legend(figure, entries, WIDTH, _BARS)
  return figure


def draw_privacy() -> Any:
  """Accuracy against epsilon, with a line for each expected number."""
  rows, entries = _read("privacy"), {}
  with plots.figure(1, 1, SCALE) as (figure, axes):
    ax = axes[0, 0]
    for expected, color in zip(EXPECTED, plots.COLORS, strict=False):
      none, *points = _of(rows, expected=str(expected))
      label = f"{expected} of {MANY} clients expected"
      # Without noise epsilon is infinite.
      entries[label] = _bars(ax, _column(points, "epsilon"), points, color)
      style = {"color": color, "linestyle": ":", "linewidth": 1}
      ax.axhline(100 * float(none["accuracy"]), **style)
    (entries["clipped, without noise"],) = ax.plot([], [], "k:", linewidth=1)
    plots.log_scale(ax.xaxis)
    ax.set(xlabel=f"Epsilon, for δ = {DELTA:g}", ylim=(70, 100))
    ax.set_ylabel("Test accuracy (%)")
    panels.add_legend(figure, entries, WIDTH, _BARS)
  return figure


def _bars(ax, x, rows, color) -> Any:
  """Means with bars of a standard deviation; returns the line."""
  line, *_ = ax.errorbar(
    x,
    100 * _column(rows, "accuracy"),
    100 * _column(rows, "deviation"),
    color=color,
    linewidth=1.3,
    marker="o",
    markersize=3.5,
    elinewidth=0.9,
    capsize=2,
  )
  return line


STUDIES = {
  "messages_bytes": (measure_bytes, draw_bytes),
  "messages_faults": (measure_faults, draw_faults),
  "privacy": (measure_privacy, draw_privacy),
}


def main() -> None:
  """Measures, unless --plot is given, and draws."""
  names = [name for name in sys.argv[1:] if name != "--plot"]
  for name in names or STUDIES:
    measure, draw = STUDIES[name]
    if "--plot" not in sys.argv:
      _write(name, measure())
    panels.save(draw(), FOLDER / f"{name}.png")


if __name__ == "__main__":
  main()
