"""Measures what two pages show: `python docs/messages_study.py [NAME ...]`.

Writes NAME.csv and NAME.png: messages_bytes, accuracy against the bytes that a
client has sent; messages_faults, accuracy against the share of faulty clients;
privacy, accuracy against epsilon. The rate of each method is chosen on
validation examples; accuracies are those on the test examples. With --plot the
pictures are drawn from the tables that are there.
"""

import pathlib
import sys

import jax.numpy as jnp
import matplotlib
import numpy as np
import optax
import pandas
from matplotlib import figure

import fedjax_opt as fo
from fedjax_opt import transforms
from fedjax_opt.transforms import aggregators, faults

FOLDER = pathlib.Path(__file__).parent
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
  defaults["eval_every"] = 5
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
  found = {}
  for s in range(0, len(points), len(SEEDS)):
    own = slice(s, s + len(SEEDS))
    chosen_by = np.mean(metrics["validation_accuracy"][own, -1])
    score = -1.0 if np.isnan(chosen_by) else chosen_by
    key = by(points[s])
    if key not in found or score > found[key][0]:
      rate = points[s]["learning_rate"]
      found[key] = score, rate, np.asarray(metrics["test_accuracy"][own])
  rounds = [int(round) for round in result.history.rounds]
  for key, (_, rate, accuracy) in found.items():
    yield key, rate, rounds, accuracy


def measure_bytes() -> list[dict]:
  """One row for each compressor and evaluation."""
  uploads, rows = {WHOLE: transforms.Upload(optax.identity())}, []
  for label, upload in COMPRESSORS.items():
    uploads[label] = upload
    uploads[f"{label}, feedback"] = transforms.error_feedback(upload)
  for label, upload in uploads.items():
    make = lambda learning_rate: fo.fed_avg(_loss_fn, optax.sgd(learning_rate))
    only = lambda point: ()
    for _, rate, rounds, accuracy in _best(make, {}, only, upload=upload):
      for round, values in zip(rounds, accuracy.T, strict=True):
        # A client takes part in C of M rounds.
        sent = round * upload.num_bytes(_PARAMS) * COHORT / CLIENTS / 1000
        rows.append(
          {
            "method": label,
            "learning_rate": rate,
            "round": round,
            "kilobytes": sent,
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
    inner = fo.fed_avg(_loss_fn, optax.sgd(learning_rate))
    return fo.privacy.with_privacy(inner, **mechanism)

  for expected in EXPECTED:
    found = _best(
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
    for noise, rate, _, accuracy in found:
      about = (noise, ROUNDS, MANY, expected, DELTA)
      epsilon = fo.privacy.epsilon(*about, places=2 * expected)
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


def _panels(number, width):
  """A figure with panels side by side, which share their accuracies."""
  fig = figure.Figure((width, 3.8))
  panels = fig.subplots(1, number, sharey=True, squeeze=False)[0]
  for ax in panels:
    ax.grid(alpha=0.3)
  panels[0].set_ylabel("test accuracy")
  return fig, panels


def _plot(ax, rows, x, **look):
  """Accuracies with their deviations over the seeds."""
  ax.errorbar(
    rows[x], rows["accuracy"], rows["deviation"], marker="o", capsize=2, **look
  )


def draw_bytes(rows: pandas.DataFrame) -> figure.Figure:
  """Accuracy against bytes, without feedback and with it."""
  fig, axes = _panels(2, 9)
  titles = ("without error feedback", "with error feedback")
  for ax, title, suffix in zip(axes, titles, ("", ", feedback"), strict=True):
    labels = {label: label + suffix for label in COMPRESSORS}
    for label, name in {WHOLE: WHOLE, **labels}.items():
      own = rows[rows["method"] == name][1:]  # Nothing was sent before round 0.
      color = "black" if name == WHOLE else None
      ax.plot(own["kilobytes"], own["accuracy"], label=label, color=color)
    ax.set(xscale="log", xlabel="kB sent by a client", title=title)
  axes[1].legend(fontsize=8)
  return fig


def draw_faults(rows: pandas.DataFrame) -> figure.Figure:
  """Accuracy against the share of faulty clients, one panel a fault."""
  fig, axes = _panels(2, 9)
  for ax, kind in zip(axes, FAULTS, strict=True):
    for label in AGGREGATORS:
      is_own = (rows["fault"] == kind) & (rows["aggregator"] == label)
      _plot(ax, rows[is_own], "fraction", label=label)
    ax.set(xlabel="share of faulty clients", title=f"{kind} differences")
  axes[0].set(ylim=(0, 1))
  axes[0].legend(fontsize=8)
  return fig


def draw_privacy(rows: pandas.DataFrame) -> figure.Figure:
  """Accuracy against epsilon, with a line for each expected number."""
  fig, (ax,) = _panels(1, 6)
  for i, expected in enumerate(EXPECTED):
    own = rows[rows["expected"] == expected]
    label = f"{expected} of {MANY} clients expected"
    # Without noise epsilon is infinite.
    _plot(ax, own[1:], "epsilon", label=label, color=f"C{i}")
    ax.axhline(own["accuracy"].iloc[0], color=f"C{i}", ls=":", lw=1)
  ax.set(xscale="log", xlabel=f"epsilon (delta {DELTA:g})", ylim=(0.7, 1))
  ax.plot([], [], "k:", label="clipped, without noise")
  ax.legend(fontsize=8, loc="lower right")
  return fig


STUDIES = {
  "messages_bytes": (measure_bytes, draw_bytes),
  "messages_faults": (measure_faults, draw_faults),
  "privacy": (measure_privacy, draw_privacy),
}


def main() -> None:
  """Measures, unless --plot is given, and draws."""
  given = [name for name in sys.argv[1:] if name != "--plot"]
  matplotlib.use("agg")
  for name in given or STUDIES:
    measure, draw = STUDIES[name]
    table = FOLDER / f"{name}.csv"
    if "--plot" not in sys.argv:
      frame = pandas.DataFrame(measure())
      frame.to_csv(table, index=False, float_format="%.5g", lineterminator="\n")
    fig = draw(pandas.read_csv(table))
    fig.tight_layout()
    fig.savefig(FOLDER / f"{name}.png", dpi=120)


if __name__ == "__main__":
  main()
