"""Fills the table of where_programs_differ.md: what another form changes.

  PYTHONPATH=. python docs/make/differences.py

Each pair of forms runs on the quadratics of validity_table.py, with some of the
clients in a round, or with clients of three speeds. The table has where each
ends.
"""

import importlib
import pathlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from unittest import mock

import jax
import marks
import optax
import validity_table as table
from validity_table import RATE, maker

import fedjax_opt as fo

PAGE = pathlib.Path(__file__).parents[1] / "where_programs_differ.md"
ROUNDS = 200
_SGD, _ADAM_RATE = optax.sgd(RATE), 0.01
Make = Callable[[], fo.Algorithm]


class Pair(NamedTuple):
  """A method in two forms.

  Attributes:
    method: its name.
    what: what differs.
    paper: the form of the paper.
    program: that of programs.
    settings: of both runs: who takes part, and when.
    is_ours: whether the default here is the form of programs.
  """

  method: str
  what: str
  paper: Make
  program: Make
  settings: Mapping[str, Any] = {"cohort_size": table.FEW}
  is_ours: bool = False


def _dyn_of_cohort() -> fo.Algorithm:
  """FedDyn whose h divides by the clients of the cohort."""
  module = importlib.import_module("fedjax_opt.algorithms.fed_dyn")
  corrected = module.corrected
  with_all = lambda x, h, delta, share, alpha: corrected(
    x, h, delta, 1.0, alpha
  )
  algorithm = fo.fed_dyn(table.loss_fn, _SGD, alpha=0.5)

  def round(state, cohort):
    with mock.patch.object(module, "corrected", with_all):
      return algorithm.round(state, cohort)

  return algorithm._replace(round=round)


_server = lambda rule: maker("fed_avg", _SGD, rule)
# Clients of three speeds. In a round they take 4, 2 or 1 steps until the
# deadline; or the server takes a step after each arrival.
_SYSTEM = fo.systems.sample(
  table.CLIENTS, [fo.systems.constant(seconds) for seconds in (1.0, 2.0, 4.0)]
)
_DURATIONS = _SYSTEM.durations(table.STEPS)
_scheduled = lambda schedule: {"schedule": schedule, "cohort_size": None}
_UNEQUAL = _scheduled(
  fo.schedules.synchronous(
    _DURATIONS, ROUNDS, table.CLIENTS, deadline=table.STEPS, partial=True
  )
)
_ONE_BY_ONE = _scheduled(
  fo.schedules.buffered(_DURATIONS, ROUNDS, table.CLIENTS)
)
PAIRS = (
  Pair(
    "fed_dyn",
    "h divides by the cohort",
    maker("fed_dyn", _SGD, alpha=0.5),
    _dyn_of_cohort,
  ),
  Pair(
    "fed_speed",
    "duals of all clients; in both columns `rho` is 0",
    maker("fed_speed", RATE, lam=2.0, rho=0.0),
    maker("fed_speed", RATE, lam=2.0, rho=0.0, all_duals=True),
  ),
  Pair(
    "fed_speed",
    "a perturbation of the length `rho`",
    maker("fed_speed", RATE, lam=2.0, normalized=False),
    maker("fed_speed", RATE, lam=2.0),
    is_ours=True,
  ),
  Pair(
    "fed_acg",
    "no proximal term, `beta` 0.1 in the paper's form",
    maker("fed_acg", optax.sgd(RATE / 10), beta=0.1),
    maker("fed_acg", optax.sgd(RATE / 10), beta=0.0),
  ),
  Pair(
    "fed_lesam",
    "the server's last step",
    maker("fed_lesam", _SGD),
    maker("fed_lesam", _SGD, last_step=True),
  ),
  Pair(
    "fed_exp",
    "`eps` 0.1 times the number of clients",
    maker("fed_exp", _SGD, eps=0.1),
    maker("fed_exp", _SGD, eps=0.1 * table.CLIENTS),
  ),
  Pair(
    "fed_adam",
    "moments corrected for their start at 0",
    _server(fo.rules.fedopt_adam(_ADAM_RATE, b2=0.999)),
    _server(optax.adam(_ADAM_RATE, eps=1e-3)),
    is_ours=True,
  ),
  Pair(
    "fed_adamw",
    "the second moment whole",
    maker("fed_adamw", _ADAM_RATE),
    maker("fed_adamw", _ADAM_RATE, whole_moments=True),
  ),
  Pair(
    "fed_adamw",
    "the first moment corrected for all steps",
    maker("fed_adamw", _ADAM_RATE),
    maker("fed_adamw", _ADAM_RATE, shared_count=True),
  ),
  Pair(
    "fed_lada",
    "Adam's second moment",
    maker("fed_lada", _ADAM_RATE),
    maker("fed_lada", _ADAM_RATE, amsgrad=False),
  ),
  Pair(
    "fed_nova",
    "differences times numbers of steps, here 1, 2 or 4",
    maker("fed_nova", RATE / 10),
    # The number by which each was divided cancels.
    maker("fed_avg", optax.sgd(RATE / 10)),
    _UNEQUAL,
  ),
  Pair(
    "fed_async",
    "s(τ) divided by s(1), clients of three speeds",
    maker("fed_async", _SGD, mu=0.0),
    maker("fed_async", _SGD, mu=0.0, alpha=0.6 * 2**0.5),
    _ONE_BY_ONE,
  ),
)


def line(pair: Pair) -> str:
  """A row of the table, with the default's number bold; runs both forms."""
  ends = [
    table.distances(make(), ROUNDS, **pair.settings)[-1]
    for make in (pair.paper, pair.program)
  ]
  cells = [f"{end:.1e}".replace("e-0", "e-") for end in ends]
  cells[pair.is_ours] = f"**{cells[pair.is_ours]}**"
  return f"| `{pair.method}` | {pair.what} | {' | '.join(cells)} |\n"


def main() -> None:
  jax.config.update("jax_enable_x64", True)
  rows = []
  for pair in PAIRS:
    rows.append(line(pair))
    print(rows[-1], end="", flush=True)
  head = (
    "| method | the program's form | paper | program |\n|:--|:--|--:|--:|\n"
  )
  text = marks.filled(PAGE.read_text(), "effects", head + "".join(rows))
  PAGE.write_text(text)


if __name__ == "__main__":
  main()
