"""What the paper claims of sparse and low-rank least squares, as numbers.

"Perfect" is an F1 that is shown as 1.000. How fast an algorithm is, is the mean
of F1 over all evaluated rounds.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from experiments.artefacts import views
from experiments.artefacts.base import Found, Key
from experiments.artefacts.claims import Claim, Quantity
from experiments.fco import grids
from experiments.fco.grids import ALGORITHMS, Condition

Claims = Callable[[Found, Condition], Sequence[Claim]]

OURS, OSP = OF_BOTH = ("FedDualAvg", "FedDualAvg-OSP")
PRIMAL = ("FedMiD", "FedMiD-OSP")
OTHERS = (*PRIMAL, OSP)
_PERFECT, _ALMOST = 0.9995, 0.99
_DATA_SETS = ("data set I", "this data set")
_SPEED = grids.mean_over_rounds("f1")
# Of the paper: the best rates on LASSO I.
BEST = {
  method: (0.01, 1.0) if method == OURS else (0.001, 0.3)
  for method in ALGORITHMS
}
_FACTOR = 2.0  # Rates of the grids are a factor of about three apart.


def _perfect_within(found: Found, key: Key, rounds: int) -> Quantity:
  until = grids.rounds_until("f1", lambda f1: f1 >= _PERFECT)
  name = f"{key[0]}, rounds to perfect F1 less than {rounds} by"
  return grids.below(found, name, key, until, rounds, "rounds")


def _fastest(found: Found) -> Claim:
  return Claim(
    "FedDualAvg is fastest",
    [
      views.lead(
        found, f"F1 over all rounds, over {o}", (OURS,), (o,), _SPEED,
        unit="", scale=1,
      )
      for o in OTHERS
    ],
  )  # fmt: skip


def lasso_one(found: Found, condition: Condition) -> list[Claim]:
  """Figure 3."""
  return [
    _ratios(found, condition),
    _fastest(found),
    Claim(
      "FedDualAvg-OSP is competitive: faster than FedMiD and FedMiD-OSP",
      [
        views.lead(
          found, f"F1 over all rounds, over {o}", (OSP,), (o,), _SPEED,
          unit="", scale=1,
        )
        for o in PRIMAL
      ],
    ),
    Claim(
      "FedMiD is the least sparse",
      [
        views.lead(
          found, f"last density, FedMiD over {o}", ("FedMiD",), (o,),
          views.final("density"), unit="", scale=1,
        )
        for o in ALGORITHMS
        if o != "FedMiD"
      ],
    ),
  ]  # fmt: skip


def _ratios(found: Found, condition: Condition) -> Claim:
  """That the best rates are as far apart as the paper's."""
  quantities = [
    _ratio(found, condition, rate, other, ours / others)
    for rate, ours, others in zip(
      grids.RATES, BEST[OURS], BEST[OTHERS[0]], strict=True
    )
    for other in OTHERS
  ]
  return Claim(
    "FedDualAvg has the best rates 0.01, 1, the others 0.001, 0.3: ten times "
    "the client rate and 3.3 times the server rate, within a factor of two",
    quantities,
  )


def _ratio(
  found: Found, condition: Condition, rate: str, other: str, ratio: float
) -> Quantity:
  """How far a ratio of rates is from the paper's; each seed chooses its own."""
  kind = rate.split("_")[0]
  name = f"{kind} rate over that of {other}"
  if (OURS,) not in found or (other,) not in found:
    return Quantity(name, ())
  both = found[OURS,].arrays, found[other,].arrays
  chosen = [
    [grids.choose(means, condition, seed) for means in both]
    for seed in grids.seeds_of(both[0])
  ]
  ours = [
    np.nan if None in pair else pair[0][rate] / pair[1][rate] for pair in chosen
  ]
  shown = ", ".join(f"{each:.3g}" for each in ours)
  off = [max(each / ratio, ratio / each) for each in ours]
  name = f"{name}, by seed {shown}; factor to {ratio:.3g} below {_FACTOR:g} by"
  return Quantity(name, tuple(_FACTOR - each for each in off))


def lasso_sparse(found: Found, condition: Condition) -> list[Claim]:
  """Figures 6 and 7."""
  del condition
  until = grids.rounds_until("f1", lambda f1: f1 >= _PERFECT)
  return [
    Claim(
      "FedDualAvg has perfect F1 in less than 100 rounds",
      [_perfect_within(found, (OURS,), 100)],
    ),
    _fastest(found),
    Claim(
      "FedDualAvg-OSP is more competitive than on I",
      [_gap_less_than_on_one(found)],
    ),
    Claim(
      "FedMiD and FedMiD-OSP remain slow: no perfect F1 in 100 rounds",
      [
        views.above(
          f"{o}, rounds to perfect F1 more than 100 by",
          values,
          None if values is None else np.full_like(values, 100),
          "rounds",
          sides=(o, "the limit"),
        )
        for o in PRIMAL
        for values in [views.values(found, (o,), until)]
      ],
    ),
  ]


def _gap_less_than_on_one(found: Found) -> Quantity:
  """How much less FedDualAvg-OSP is behind FedDualAvg than on I."""
  gap = lambda *on: _difference(
    views.values(found, (OURS, *on), _SPEED),
    views.values(found, (OSP, *on), _SPEED),
  )
  name = "lead of FedDualAvg in F1 over all rounds, on I less here"
  return views.above(name, gap("I"), gap(), sides=_DATA_SETS)


def _difference(a, b):
  return None if a is None or b is None else a - b


def lasso_many(found: Found, condition: Condition) -> list[Claim]:
  """Figure 8."""
  del condition
  progress = lambda record: (
    (record.final("f1") - record.history.values("f1")[:, 0])
    / (1 - record.history.values("f1")[:, 0])
  )
  last = views.values(found, (OSP,), views.final("f1"))
  limit = None if last is None else np.full_like(last, _ALMOST)
  slower = views.above(
    "F1 over all rounds, on I less here",
    views.values(found, (OSP, "I"), _SPEED),
    views.values(found, (OSP,), _SPEED),
    sides=_DATA_SETS,
  )
  return [
    Claim(
      "FedDualAvg has perfect F1 in less than 200 rounds",
      [_perfect_within(found, (OURS,), 200)],
    ),
    _fastest(found),
    Claim(
      "FedDualAvg-OSP has almost perfect F1, 0.99, after 500 rounds",
      [views.above("last F1 less 0.99", last, limit, sides=(OSP, "it"))],
    ),
    Claim("FedDualAvg-OSP is slower than on I", [slower]),
    Claim(
      "FedMiD and FedMiD-OSP make very limited progress in 500 rounds: less "
      "than half of the way to F1 = 1",
      [
        grids.below(found, f"{o}, share of the way, one half less", (o,),
                    progress, 0.5)
        for o in PRIMAL
      ],
    ),
  ]  # fmt: skip


def low_rank(rank: int, rounds: int) -> Claims:
  """Figures 4 and 9 to 11.

  Args:
    rank: the true one.
    rounds: in how many FedDualAvg finds it.
  """
  until = grids.rounds_until("rank", lambda found: found == rank)

  def claims(found: Found, condition: Condition) -> list[Claim]:
    del condition
    name = f"rounds to the exact rank less than {rounds} by"
    lead = lambda name, one, other, value: views.lead(
      found, name, (one,), (other,), value, unit="", scale=1
    )
    loss = grids.at("regularized_train_loss", rounds)
    return [
      Claim(
        f"FedDualAvg finds the exact rank in less than {rounds} rounds",
        [grids.below(found, name, (OURS,), until, rounds, "rounds")],
      ),
      Claim(
        "FedMiD and FedMiD-OSP converge slower in loss and rank",
        [
          *(lead(f"rounds to the exact rank, {o}", o, OURS, until)
            for o in PRIMAL),
          *(lead(f"loss at round {rounds}, {o}", o, OURS, loss)
            for o in PRIMAL),
        ],
      ),
      Claim(
        "FedDualAvg-OSP ends at a low rank, at most the true one, but is "
        "less accurate",
        [
          grids.below(found, "last rank at most the true one, by", (OSP,),
                      views.final("rank"), rank + 0.5),
          lead("last error, FedDualAvg-OSP over FedDualAvg", OSP, OURS,
               views.final("recovery_error")),
        ],
      ),
    ]  # fmt: skip

  return claims


def paper_rates(found: Found) -> list[Claim]:
  """That algorithms converge at the rates which the paper found best."""
  return [
    Claim(
      "The best rates: all algorithms can run at them",
      [
        Quantity(
          f"{method} at {client:g}, {server:g} (-1 if it diverged)",
          _finished_at(found, method, client, server),
        )
        for method, (client, server) in BEST.items()
      ],
    )
  ]


def _finished_at(
  found: Found, method: str, client: float, server: float
) -> tuple[float, ...]:
  """1 for each seed that finished, -1 for each that diverged."""
  if (method,) not in found:
    return ()
  record = found[method,]
  wanted: Mapping[str, float] = {"client_lr": client, "server_lr": server}
  rows = [
    row
    for row, point in enumerate(record.points)
    if all(point[name] == value for name, value in wanted.items())
  ]
  last = record.final("f1")[rows]
  return tuple(1.0 if np.isfinite(value) else -1.0 for value in last)
