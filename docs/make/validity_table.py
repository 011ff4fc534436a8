"""Writes validity_table.md: which standard check each method passes.

  PYTHONPATH=. python docs/make/validity_table.py

For every algorithm of the registry: where its plain loop is; the setting at
which it is FedAvg, if there is one, which is run; and how far from the optimum
it ends on strongly convex quadratics whose clients have different minima, with
exact gradients.
"""

import functools
import pathlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

import fedjax_opt as fo
from fedjax_opt.algorithms import ALGORITHMS

TABLE = pathlib.Path(__file__).parents[1] / "validity_table.md"
CLIENTS, EXAMPLES, D, STEPS = 5, 6, 3, 4
FEW = 2  # clients of a cohort that is a part
RATE = 0.2
ROUNDS = 800
# A part of the first distance up to the one is the optimum, from the other on
# it is not.
REACHED, STALLED = 1e-8, 1e-5
EQUAL = 1e-6  # to FedAvg, as a part of what that has moved


class Reduction(NamedTuple):
  """A setting at which a method is FedAvg.

  Attributes:
    text: what it is.
    make: `() -> Algorithm`.
    settings: of both runs.
    rounds: for so many it is FedAvg.
  """

  text: str
  make: Callable[[], fo.Algorithm]
  settings: Mapping[str, Any] = {}
  rounds: int = 3


class Method(NamedTuple):
  """How a method is checked.

  Attributes:
    make: `() -> Algorithm`, as it is run on the quadratics; None if the
      clients' models, not the server's, are what counts.
    loop: the file of tests/ that has it against its loop.
    fed_avg: where it is FedAvg; None if nowhere, or a word.
  """

  make: Callable[[], fo.Algorithm] | None
  loop: str
  fed_avg: Reduction | str | None = None


class Row(NamedTuple):
  """What was found of a method; distances are parts of the first one."""

  name: str
  all_clients: float | None  # None if it is not run
  few_clients: float | None  # None if its cohort is not sampled


# The problem.


def problem() -> tuple[fo.ClientData, dict[str, np.ndarray], np.ndarray]:
  """The clients, x_0, and the optimum of all; one batch each, float64."""
  rng = np.random.default_rng(3)
  x = rng.normal(size=(CLIENTS, EXAMPLES, D)) * [0.6, 1.0, 1.4]
  minima = rng.normal(size=(CLIENTS, D))
  y = np.einsum("cnd,cd->cn", x, minima) + rng.normal(size=x.shape[:2])
  x, y = x.reshape(-1, D), y.ravel()
  optimum = np.linalg.lstsq(x, y)[0]
  rows = np.arange(CLIENTS * EXAMPLES).reshape(CLIENTS, EXAMPLES)
  data = fo.ClientData.from_partition({"x": x, "y": y}, list(rows))
  return data, {"w": np.full(D, 3.0)}, optimum


def loss_fn(params: Any, batch: Any, rng: Any) -> jax.Array:
  """[B]."""
  return (batch["x"] @ params["w"] - batch["y"]) ** 2 / 2


def features_fn(params: Any, batch: Any, rng: Any) -> jax.Array:
  """[B, d], for MOON."""
  return batch["x"] * params["w"]


def run(
  algorithm: fo.Algorithm,
  rounds: int,
  from_optimum: bool = False,
  **settings: Any,
) -> fo.Result:
  """A run that measures the distance to the optimum, of the first one."""
  data, params, optimum = problem()
  first_distance = np.linalg.norm(params["w"] - optimum)
  params = {"w": optimum} if from_optimum else params

  def evaluate(params, data, test):
    return {"distance": jnp.linalg.norm(params["w"] - optimum) / first_distance}

  defaults = {
    "batch_size": EXAMPLES,
    "local_steps": STEPS,
    "cohort_size": CLIENTS,
    "eval_every": rounds,
  }
  return fo.simulate(
    algorithm,
    params,
    data,
    rounds=rounds,
    evaluate=evaluate,
    **defaults | settings,
  )


def distances(algorithm: fo.Algorithm, rounds: int, **settings) -> np.ndarray:
  """To the optimum, before the first round and after those evaluated."""
  result = run(algorithm, rounds, **settings)
  return result.history.metrics["distance"][0]


# The methods.

_SGD = optax.sgd(RATE)
_LOOPS = "algorithms/test_loops.py"
_VARIANCE = "algorithms/test_variance_reduction.py"
_CLOCK = "algorithms/test_asynchronous.py"
_CENTRAL = "algorithms/test_centralized.py"
_ZERO = fo.prox.l1(0.0)  # A regularizer that leaves the loss.


def maker(name: str, *given: Any, **others: Any) -> Callable[[], fo.Algorithm]:
  """A method of the registry on the quadratics; see its factory."""
  return functools.partial(ALGORITHMS[name].factory, loss_fn, *given, **others)


def _method(
  name: str,
  *args: Any,
  at: str | None = None,
  off: Mapping[str, Any] = {},
  loop: str = _LOOPS,
  rounds: int = 3,
  local_steps: int = STEPS,
  **named: Any,
) -> Method:
  """A method, which is FedAvg if some of its arguments are others.

  Args:
    name: of the registry.
    *args: of the factory, behind the loss.
    at: where it is FedAvg; None if nowhere.
    off: its arguments there.
    loop: see `Method`.
    rounds: see `Reduction`.
    local_steps: of the two runs that must be equal.
    **named: of the factory.
  """
  make, reduction = maker(name, *args, **named), None
  if at is not None:
    settings = {"local_steps": local_steps}
    reduction = Reduction(
      at, maker(name, *args, **named | off), settings, rounds
    )
  return Method(make, loop, reduction)


def _momenta(name: str) -> Method:
  """Ten times smaller steps, of which momenta make ten times longer ones."""
  zeros = {p.name: 0.0 for p in ALGORITHMS[name].hyperparameters}
  reduction = Reduction(f"{', '.join(zeros)} 0", maker(name, RATE, **zeros))
  return Method(maker(name, RATE / 10), _LOOPS, reduction)


METHODS: dict[str, Method] = {
  "fed_avg": Method(maker("fed_avg", _SGD), _LOOPS, "it is"),
  "fed_prox": _method("fed_prox", _SGD, mu=0.5, at="mu 0", off={"mu": 0.0}),
  "moon": _method(
    "moon", features_fn, _SGD, mu=0.5, at="mu 0", off={"mu": 0.0}
  ),
  "fed_avg_m": _method(
    "fed_avg_m",
    _SGD,
    server=optax.sgd(1.0, 0.9),
    at="server momentum 0",
    off={"server": optax.sgd(1.0, 0.0)},
  ),
  "fed_adam": _method("fed_adam", _SGD, optax.adam(0.01)),
  "fed_yogi": _method("fed_yogi", _SGD, optax.yogi(0.01)),
  "fed_adagrad": _method("fed_adagrad", _SGD, optax.adagrad(0.1)),
  **{
    name: _method(name, _ZERO, RATE, at="regularizer 0")
    for name, entry in ALGORITHMS.items()
    if entry.takes("psi") and not entry.is_exact
  },
  "centralized": _method(
    "centralized",
    _ZERO,
    RATE,
    at="regularizer 0, one local step",
    local_steps=1,
    loop=_CENTRAL,
  ),
  "local": _method("local", _ZERO, RATE, loop=_CENTRAL),
  "scaffold": _method("scaffold", RATE, at="its first round", rounds=1),
  "local_sgd": _method("local_sgd", RATE, at="always"),
  "minibatch_sgd": _method(
    "minibatch_sgd", RATE, at="one local step", local_steps=1
  ),
  "minibatch_sarah": _method("minibatch_sarah", RATE, loop=_VARIANCE),
  "bvr_l_sgd": _method("bvr_l_sgd", RATE, loop=_VARIANCE),
  **{
    name: _momenta(name)
    for name, entry in ALGORITHMS.items()
    if {"mu_s", "mu_l"} & {p.name for p in entry.hyperparameters}
  },
  "fed_dyn": _method(
    "fed_dyn", _SGD, alpha=0.5, at="alpha 0", off={"alpha": 0.0}
  ),
  "fed_nova": _method("fed_nova", RATE, at="equally many steps"),
  "fed_cm": _method("fed_cm", RATE, at="alpha 1", off={"alpha": 1.0}),
  "fed_exp": _method("fed_exp", _SGD),
  "mime_lite": _method("mime_lite", RATE, at="beta 0", off={"beta": 0.0}),
  "prox_skip": _method(
    "prox_skip",
    RATE,
    p=0.4,
    at="p 1, one local step",
    off={"p": 1.0},
    local_steps=1,
  ),
  "fed_sam": _method("fed_sam", _SGD, at="rho 0", off={"rho": 0.0}),
  "mo_fed_sam": _method(
    "mo_fed_sam", RATE, at="rho 0, beta 1", off={"rho": 0.0, "beta": 1.0}
  ),
  "fed_speed": _method("fed_speed", RATE, lam=2.0),
  "fed_acg": Method(
    maker("fed_acg", optax.sgd(RATE / 10)),
    _LOOPS,
    Reduction("lam, beta 0", maker("fed_acg", _SGD, lam=0.0, beta=0.0)),
  ),
  "fed_gamma": _method(
    "fed_gamma", RATE, at="rho 0, first round", off={"rho": 0.0}, rounds=1
  ),
  "fed_lesam": _method("fed_lesam", _SGD, at="rho 0", off={"rho": 0.0}),
  "fed_dc": _method("fed_dc", RATE, alpha=0.1),
  "fed_smoo": _method(
    "fed_smoo", RATE, lam=0.5, at="lam, rho 0", off={"lam": 0.0, "rho": 0.0}
  ),
  "fed_adamw": _method("fed_adamw", 0.01),
  "fed_ex_lora": Method(None, "test_lora.py"),
  "fed_lada": Method(
    maker("fed_lada", 0.01),
    _LOOPS,
    Reduction(
      "alpha 1, b1 0, large eps",
      maker("fed_lada", 64 * RATE, alpha=1.0, b1=0.0, eps=64.0),
    ),
  ),
  "diloco": _method(
    "diloco",
    _SGD,
    at="sgd inside, sgd of rate 1 outside",
    off={"server": optax.sgd(1.0)},
  ),
  "ditto": _method("ditto", _SGD, at="always, its server's model"),
  "p_fed_me": _method(
    "p_fed_me",
    1.0,
    lam=1.0,
    inner_learning_rate=RATE,
    at="one inner step, eta lam 1",
    off={"inner_steps": 1},
  ),
  "per_fed_avg": Method(
    None,
    _LOOPS,
    Reduction(
      "alpha 0, one batch",
      maker("per_fed_avg", RATE, inner_learning_rate=0.0, own_batches=False),
    ),
  ),
  "fed_per": Method(None, _LOOPS),
  "fed_rep": Method(None, _LOOPS),
  "fed_bn": Method(None, "arrays/test_running_statistics.py"),
  # Without a schedule nothing is stale.
  "fed_buff": _method("fed_buff", _SGD, at="always", loop=_CLOCK),
  "fed_async": _method(
    "fed_async",
    _SGD,
    at="alpha 1, mu 0",
    off={"alpha": 1.0, "mu": 0.0},
    loop=_CLOCK,
  ),
  "ca2fl": _method("ca2fl", _SGD, at="its first round", rounds=1, loop=_CLOCK),
  "fadas": _method("fadas", _SGD, loop=_CLOCK),
}
# Settings of these that are rows of their own.
FORMS: dict[str, Method] = {
  "fed_gamma, rho 0": _method("fed_gamma", RATE, rho=0.0),
  "fed_smoo, rho 0": _method("fed_smoo", RATE, lam=0.5, rho=0.0),
  "fed_speed, rho 0": _method("fed_speed", RATE, lam=2.0, rho=0.0),
  "fed_speed, rho 0, all_duals": _method(
    "fed_speed", RATE, lam=2.0, rho=0.0, all_duals=True
  ),
}
ROWS = METHODS | FORMS


# The checks.


@functools.cache
def _fed_avg(**settings):
  return run(fo.fed_avg(loss_fn, _SGD), **settings).params["w"]


def off_fed_avg(reduction: Reduction) -> float:
  """How far a method ends from FedAvg, as a part of what that has moved."""
  settings = {"rounds": reduction.rounds, **reduction.settings}
  start = problem()[1]["w"]
  expected = _fed_avg(**settings)
  actual = run(reduction.make(), **settings).params["w"]
  distance = np.linalg.norm(expected - start)
  return float(np.linalg.norm(actual - expected) / distance)


def may_be_few(name: str) -> bool:
  """Whether a cohort of this row may be a part of the clients."""
  return ALGORITHMS[name.split(",")[0]].cohort == "sampled"


def try_method(name: str) -> Row:
  """Where a method ends on the quadratics."""
  if ROWS[name].make is None:
    return Row(name, None, None)
  algorithm = ROWS[name].make()
  all_clients, few_clients = distances(algorithm, ROUNDS)[-1], None
  if may_be_few(name):
    few_clients = float(distances(algorithm, ROUNDS, cohort_size=FEW)[-1])
  return Row(name, float(all_clients), few_clients)


def verdict(distance: float | None) -> str:
  """What the table says of a distance."""
  if distance is None:
    return "–"
  if distance <= REACHED:
    return "optimum"
  return f"{distance:.0e}".replace("e-0", "e-")


def line(row: Row) -> str:
  """Its line of the table."""
  method = ROWS[row.name]
  name, *form = row.name.split(", ", 1)
  label = ", ".join([f"`{name}`", *form])
  at = method.fed_avg
  at = at.text if isinstance(at, Reduction) else at or "–"
  loop = f"[yes](../tests/{method.loop})"
  ends = " | ".join(map(verdict, row[1:]))
  return f"| {label} | {loop} | {at} | {ends} |"


def head() -> str:
  """What is above the rows."""
  return f"""\
# Which check each method passes

Made by `python docs/make/validity_table.py`, which runs all of it in float64.

- **Its loop**: the linked test compares the method with a plain loop written
  from its paper's pseudocode. Both agree to 1e-10, with unequal clients and,
  where the method takes them, partial cohorts.
- **FedAvg at**: at this setting the method must equal FedAvg, and does, to
  {EQUAL:g}.
- **Quadratics**: {CLIENTS} clients have strongly convex quadratics with
  different minima, and take {STEPS} local steps along exact gradients. All
  clients take part in a round, or {FEW} of them. After {ROUNDS} rounds the
  method is at the common optimum (its distance is below {REACHED:g} of the
  initial one), or as far from it as the table says.

It is no fault to stop before the optimum. At the optimum the mean of the
gradients is 0, but the mean of several local steps is not, because clients
differ. So without a correction of this drift, the optimum is not a fixed point,
for any step size. Some methods reach the optimum only if all clients take part;
they have no memory of the clients outside of the cohort. The perturbations of
FedSpeed, FedGamma and FedSMOO have a fixed length, which moves each client's
minimum. Without perturbations FedGamma is SCAFFOLD, FedSMOO is FedDyn, and
FedSpeed with `all_duals` is FedDyn too. FedDC with alpha 0 is SCAFFOLD. If
clients keep a part of the model, no model has all parts, so no model can be at
the optimum. The model of
`per_fed_avg` is meant to take one more step. `fed_bn` is `fed_per` with other
leaves, and the linked test compares the two. `fed_ex_lora` needs models with
adapters.

| method | its loop | FedAvg at | quadratics, all clients | {FEW} of {CLIENTS} |
|:--|:--|:--|--:|--:|
"""


def main() -> None:
  jax.config.update("jax_enable_x64", True)
  order = [*ALGORITHMS, *FORMS]
  lines = []
  for name in order:
    lines.append(line(try_method(name)))
    print(lines[-1], flush=True)
    reduction = ROWS[name].fed_avg
    if isinstance(reduction, Reduction):
      gap = off_fed_avg(reduction)
      assert gap <= EQUAL, (name, gap)
  TABLE.write_text(head() + "".join(f"{line}\n" for line in lines))


if __name__ == "__main__":
  main()
