"""Figure 2, the curse of primal averaging, on LASSO.

The paper's figure is a drawing: sparse clients, server averaging, dense server.
Here it is measured: how dense are the models that clients arrive at, their
plain mean, and the server's model, which FedMiD thresholds once more and
FedDualAvg makes from the mean of dual points.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

import fedjax_opt as fo
from experiments.artefacts import metric_panels
from experiments.artefacts.artefact import Entries, Records
from experiments.artefacts.blocks import Block, Claim, Picture, Table
from experiments.artefacts.declared_claims import lead
from experiments.artefacts.values import value, with_interval
from experiments.stored.records import Record
from experiments.tasks import composite
from fedjax_opt import prox
from fedjax_opt.results.history import History
from fedjax_opt.rules import proximal
from fedjax_opt.study.plots import frame, panels


def densities(
  method: str,
  variant: str,
  client_lr: float,
  server_lr: float,
  strengths: Sequence[float],
  seeds: Sequence[int],
  rounds: int,
) -> tuple[History, list[dict[str, Any]]]:
  """The share of coefficients that are not exactly 0, over rounds of LASSO.

  Args:
    method: 'fed_mid' or 'fed_dual_avg'.
    variant: 'I' to 'IV'.
    client_lr: rate of the clients.
    server_lr: rate of the server.
    strengths: strengths of the l1 norm.
    seeds: the runs' seeds.
    rounds: R.

  Returns:
    The metrics 'clients', the mean density of the models that the clients of a
    round arrive at; 'average', the density of the plain mean of these models;
    'server', the density of the server's model after the round; and the points.
  """
  task = composite.lasso(variant, eval_every=10)

  def make(strength):
    psi = prox.kernels(prox.l1(strength))
    algorithm, local = _METHODS[method]
    return _watched(
      algorithm(task.loss_fn, psi, client_lr, server_lr),
      local(task.loss_fn, psi, client_lr),
    )

  grid = {"strength": list(strengths)}
  result = fo.sweep(
    make,
    grid,
    task.init,
    task.clients,
    rounds=rounds,
    seeds=list(seeds),
    cohort_size=10,
    batch_size=10,
    evaluate=lambda params, data, test: dict(params),
    eval_every=10,
  )
  # Clients have no solution before the first round.
  late = result.history.take(rounds=slice(1, None))
  history = History(late.rounds, {kind: late.metrics[kind] for kind in _KINDS})
  return history, fo.grid_points(grid, list(seeds))


def _mirror(loss_fn, psi, rate) -> Callable:
  def local(worker, state):
    rule = proximal.mirror_step(rate, psi)
    return worker.descend(loss_fn, rule, state.params)

  return local


def _dual(loss_fn, psi, rate) -> Callable:
  def local(worker, state):
    start = proximal.DualAveragingState(state.dual, state.elapsed)
    params = psi.prox(state.dual, state.elapsed)
    rule = proximal.dual_averaging(rate, psi)
    return worker.descend_from(loss_fn, rule, params, start)[0]

  return local


# The algorithm, and what its clients do.
_METHODS = {
  "fed_mid": (fo.fed_mid, _mirror),
  "fed_dual_avg": (fo.fed_dual_avg, _dual),
}


def _watched(algorithm: fo.Algorithm, local: Callable) -> fo.Algorithm:
  """The algorithm, which also keeps the density of its clients' solutions.

  Args:
    algorithm: the algorithm to measure.
    local: `(worker, state) -> params`, the model that a client arrives at.
  """

  def init(params):
    return algorithm.init(params), (jnp.zeros([]), jnp.zeros([]))

  def round(state, cohort):
    # With batches of its own: a phase belongs to one verb.
    sent = cohort.each(local, broadcast=state[0], phase=1)
    kernels = sent.value["kernel"]  # [C, d, 1]
    pair = jnp.mean(jax.vmap(_density)(kernels)), _density(kernels.mean(axis=0))
    inner, reply = algorithm.round(state[0], cohort)
    return (inner, pair), (sent, reply)

  def params(state):
    clients, average = state[1]
    server = _density(algorithm.params(state[0])["kernel"])
    return {"server": server, "clients": clients, "average": average}

  return fo.Algorithm(init, round, params)


def _density(kernel) -> jax.Array:
  return jnp.mean(kernel != 0, dtype=jnp.float32)


# What is shown.

_NAMES = ("FedMiD", "FedMiD, smaller rate", "FedDualAvg")
_VARIANTS = ("I", "II", "III", "IV")
_KINDS = ("clients", "average", "server")
_ROUNDS = (10, 50, 100)
# A log scale of the zeros tells densities near 100 % apart. One of 1,024
# coefficients is the least share.
_LEAST = 1e-3
_ZEROS = (0, 0.001, 0.01, 0.1, 1)
_DENSITIES = ("100 %", "99.9 %", "99 %", "90 %", "0")


def blocks(entries: Entries, records: Records) -> list[Block]:
  """Densities as a table and a picture, and claims about them."""
  del entries
  in_order = sorted(records, key=lambda key: _NAMES.index(key[0]))
  records = {key: records[key] for key in in_order}
  last = min(record.history.rounds[-1] for record in records.values())
  rounds = [r for r in _ROUNDS if r <= last] or [last]
  strengths = sorted(
    {p["strength"] for r in records.values() for p in r.points}
  )
  rows, lines, claims = [], {}, []
  for strength in strengths:
    at_strength = {k: r.where(strength=strength) for k, r in records.items()}
    for (name, variant), record in at_strength.items():
      densities = [
        with_interval(value(f"{kind} at {r}").compute(record), "density")
        for r in rounds
        for kind in _KINDS
      ]
      rows.append([variant, f"{strength:g}", name, *densities])
    for variant in _VARIANTS:
      if panel := {k[0]: r for k, r in at_strength.items() if k[1] == variant}:
        title = f"{variant}, λ = {strength:g}"
        lines[title] = _by_kind(panel)
    claims += _claims(at_strength, f"(λ = {strength:g})", rounds)
  heads = [f"{kind} at {r}" for r in rounds for kind in _KINDS]
  table = Table(
    ["data set", "λ", "algorithm", *heads],
    rows,
    "Density (the truth has 0.5 on I and IV, 0.0625 on II, 0.0078 on III)",
  )
  lines = dict(sorted(lines.items()))
  middle = f"λ = {strengths[len(strengths) // 2]:g}"
  brief = {
    k.removesuffix(f", {middle}"): row
    for k, row in lines.items()
    if k.endswith(middle)
  }
  alt = "Density of clients' models, of their mean and of the server's model"
  pictures = [
    Picture("densities", functools.partial(_draw, lines), alt),
    Picture(
      "brief", functools.partial(_draw, brief, middle), f"{alt}, {middle}"
    ),
  ]
  return [table, *pictures, *claims]


def _draw(rows: dict[str, dict[str, Record]], shared: str = "") -> Any:
  """Draws densities, on a log scale of the zeros with a place for 0.

  Args:
    rows: title of a row -> its records.
    shared: what all rows have, for the legend.
  """
  figure = metric_panels.draw_metrics(rows, [*_NAMES], _KINDS)
  legend = figure.legends.pop()
  title = legend.get_title().get_text()
  handles = legend.legend_handles[: len(_KINDS)]
  for lines in (handles, *(axes.lines for axes in figure.axes)):
    # Where two coincide, the wide line is seen below, and the others above.
    clients, average, server = lines[:3]
    clients.set(linewidth=3, zorder=2.9)
    average.set(linestyle="--", zorder=3.1)
    server.set(linestyle=(0, (1, 1.5)), linewidth=1.8)
  word = "Density, data set" if shared else "Density,"
  for axes in figure.axes:
    # Nothing is outside of these axes.
    for mark in (*axes.lines[len(_KINDS) :], *axes.texts):
      mark.remove()
    for line in axes.lines:
      line.set_ydata(1 - line.get_ydata())
    for band in axes.collections:
      for path in band.get_paths():
        path.vertices[:, 1] = 1 - path.vertices[:, 1]
    axes.set_yscale("symlog", linthresh=_LEAST, linscale=0.5)
    axes.set(ylim=(1.2, -_LEAST / 5), yticks=_ZEROS, yticklabels=_DENSITIES)
    axes.minorticks_off()
    # All have one quantity: methods name columns, and conditions rows.
    place, method = axes.get_subplotspec(), axes.get_ylabel()
    axes.set_ylabel(f"{word} {axes.get_title()}" * place.is_first_col())
    name = method.replace(", ", ",\n")  # Narrow on phones.
    axes.title.set_text(name * place.is_first_row())
  title = f"{shared}: {title}" if shared else title
  entries = dict(zip(_KINDS, handles, strict=True))
  with frame.in_style():
    panels.add_legend(figure, entries, figure.get_figwidth(), title)
  return figure


def _by_kind(of_methods: dict[str, Record]) -> dict[str, Record]:
  """Records of clients, average and server, whose metrics are the methods."""
  first = next(iter(of_methods.values()))
  metrics = {
    kind: {m: record.history.metrics[kind] for m, record in of_methods.items()}
    for kind in _KINDS
  }
  return {kind: first.with_metrics(metrics[kind]) for kind in _KINDS}


def _claims(records: Records, where: str, rounds: Sequence[int]) -> list[Claim]:
  primal = [name for name in _NAMES if name.startswith("FedMiD")]
  # Each of the three as a cell of its own, with one metric.
  parts = {
    (*key, kind): record.with_metrics({"density": record.history.metrics[kind]})
    for key, record in records.items()
    for kind in _KINDS
  }

  def claim(text: str, pairs: Sequence[tuple[str, str, str, str]], why=""):
    """The claim that the first is denser, for (name, kind, name, kind)."""
    quantities = []
    for name, kind, other_name, other_kind in pairs:
      for variant in _VARIANTS:
        for r in rounds:
          keys = (name, variant, kind), (other_name, variant, other_kind)
          excess = lead(parts, *keys, value(f"density at {r}"), 1)
          quantities.append(excess._replace(name=f"{variant}, {excess.name}"))
    return Claim(f"{text} {where}", quantities, of=text, uncounted=why)

  within = lambda names, first, second: [(n, first, n, second) for n in names]
  return [
    claim(
      "The mean of FedMiD's clients is denser than they are",
      within(primal, "average", "clients"),
      "a mean is zero only where all clients are",
    ),
    claim(
      "FedMiD's server is denser than its clients",
      within(primal, "server", "clients"),
    ),
    claim(
      "FedDualAvg's server is sparser than the mean of its clients' models",
      within(["FedDualAvg"], "average", "server"),
    ),
    claim(
      "FedMiD's server is denser than FedDualAvg's",
      [(name, "server", "FedDualAvg", "server") for name in primal],
    ),
  ]
