"""Writes validity_table.md: which standard check each method passes.

  PYTHONPATH=. python docs/validity_table.py

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

TABLE = pathlib.Path(__file__).parent / "validity_table.md"
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
  first = np.linalg.norm(params["w"] - optimum)
  params = {"w": optimum} if from_optimum else params

  def evaluate(params, data, test):
    return {"distance": jnp.linalg.norm(params["w"] - optimum) / first}

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
_LOOPS, _VARIANCE = "test_loops.py", "test_variance_reduction.py"
_CLOCK = "test_asynchronous.py"
_ONE_STEP = {"local_steps": 1}


def _with_server(rule: optax.GradientTransformation) -> Callable:
  return functools.partial(fo.fed_avg, loss_fn, _SGD, rule)


def _of(name: str, *arguments: Any, **others: Any) -> Callable:
  factory = ALGORITHMS[name].factory
  return functools.partial(factory, loss_fn, *arguments, **others)


def _composite(name: str) -> Method:
  """With a regularizer that is 0, which leaves the loss."""
  make = _of(name, fo.prox.l1(0.0), RATE)
  return Method(make, _LOOPS, Reduction("regularizer 0", make))


def _momenta(name: str) -> Method:
  """Ten times smaller steps, of which momenta make ten times longer ones."""
  has = {p.name: 0.0 for p in ALGORITHMS[name].hyperparameters}
  text = ", ".join(has) + " 0"
  off = Reduction(text, _of(name, RATE, **has))
  return Method(_of(name, RATE / 10), _LOOPS, off)


def _moon(mu: float) -> Callable:
  return functools.partial(fo.moon, loss_fn, features_fn, _SGD, mu=mu)


METHODS: dict[str, Method] = {
  "fed_avg": Method(_of("fed_avg", _SGD), _LOOPS, "it is"),
  "fed_prox": Method(
    _of("fed_prox", _SGD, mu=0.5),
    _LOOPS,
    Reduction("mu 0", _of("fed_prox", _SGD, mu=0.0)),
  ),
  "moon": Method(_moon(0.5), _LOOPS, Reduction("mu 0", _moon(0.0))),
  "fed_avg_m": Method(
    _with_server(optax.sgd(1.0, 0.9)),
    _LOOPS,
    Reduction("server momentum 0", _with_server(optax.sgd(1.0, 0.0))),
  ),
  "fed_adam": Method(_with_server(optax.adam(0.01)), _LOOPS),
  "fed_yogi": Method(_with_server(optax.yogi(0.01)), _LOOPS),
  "fed_adagrad": Method(_with_server(optax.adagrad(0.1)), _LOOPS),
  **{
    name: _composite(name)
    for name, choice in ALGORITHMS.items()
    if choice.takes_regularizer and not choice.is_exact
  },
  "centralized": Method(
    _of("centralized", fo.prox.l1(0.0), RATE),
    "test_centralized.py",
    Reduction(
      "regularizer 0, one local step",
      _of("centralized", fo.prox.l1(0.0), RATE),
      _ONE_STEP,
    ),
  ),
  "local": Method(_of("local", fo.prox.l1(0.0), RATE), "test_centralized.py"),
  "scaffold": Method(
    _of("scaffold", RATE),
    _LOOPS,
    Reduction("its first round", _of("scaffold", RATE), rounds=1),
  ),
  "local_sgd": Method(
    _of("local_sgd", RATE),
    _LOOPS,
    Reduction("always", _of("local_sgd", RATE)),
  ),
  "minibatch_sgd": Method(
    _of("minibatch_sgd", RATE),
    _LOOPS,
    Reduction("one local step", _of("minibatch_sgd", RATE), _ONE_STEP),
  ),
  "minibatch_sarah": Method(_of("minibatch_sarah", RATE), _VARIANCE),
  "bvr_l_sgd": Method(_of("bvr_l_sgd", RATE), _VARIANCE),
  **{
    name: _momenta(name)
    for name, choice in ALGORITHMS.items()
    if {"mu_s", "mu_l"} & {p.name for p in choice.hyperparameters}
  },
  "fed_dyn": Method(
    _of("fed_dyn", _SGD, alpha=0.5),
    _LOOPS,
    Reduction("alpha 0", _of("fed_dyn", _SGD, alpha=0.0)),
  ),
  "fed_nova": Method(
    _of("fed_nova", RATE),
    _LOOPS,
    Reduction("equally many steps", _of("fed_nova", RATE)),
  ),
  "fed_cm": Method(
    _of("fed_cm", RATE),
    _LOOPS,
    Reduction("alpha 1", _of("fed_cm", RATE, alpha=1.0)),
  ),
  "fed_exp": Method(_of("fed_exp", _SGD), _LOOPS),
  "mime_lite": Method(
    _of("mime_lite", RATE),
    _LOOPS,
    Reduction("beta 0", _of("mime_lite", RATE, beta=0.0)),
  ),
  "prox_skip": Method(
    _of("prox_skip", RATE, p=0.4),
    _LOOPS,
    Reduction("p 1, one local step", _of("prox_skip", RATE, p=1.0), _ONE_STEP),
  ),
  "fed_sam": Method(
    _of("fed_sam", _SGD),
    _LOOPS,
    Reduction("rho 0", _of("fed_sam", _SGD, rho=0.0)),
  ),
  "mo_fed_sam": Method(
    _of("mo_fed_sam", RATE),
    _LOOPS,
    Reduction("rho 0, beta 1", _of("mo_fed_sam", RATE, rho=0.0, beta=1.0)),
  ),
  "fed_speed": Method(_of("fed_speed", RATE, lam=2.0), _LOOPS),
  "fed_acg": Method(
    _of("fed_acg", optax.sgd(RATE / 10)),
    _LOOPS,
    Reduction("lam, beta 0", _of("fed_acg", _SGD, lam=0.0, beta=0.0)),
  ),
  "fed_gamma": Method(
    _of("fed_gamma", RATE),
    _LOOPS,
    Reduction("rho 0, first round", _of("fed_gamma", RATE, rho=0.0), rounds=1),
  ),
  "fed_lesam": Method(
    _of("fed_lesam", _SGD),
    _LOOPS,
    Reduction("rho 0", _of("fed_lesam", _SGD, rho=0.0)),
  ),
  "fed_dc": Method(_of("fed_dc", RATE, alpha=0.1), _LOOPS),
  "fed_smoo": Method(
    _of("fed_smoo", RATE, lam=0.5),
    _LOOPS,
    Reduction("lam, rho 0", _of("fed_smoo", RATE, lam=0.0, rho=0.0)),
  ),
  "fed_adamw": Method(_of("fed_adamw", 0.01), _LOOPS),
  "fed_ex_lora": Method(None, "test_lora.py"),
  "fed_lada": Method(
    _of("fed_lada", 0.01),
    _LOOPS,
    Reduction(
      "alpha 1, b1 0, large eps",
      _of("fed_lada", 64 * RATE, alpha=1.0, b1=0.0, eps=64.0),
    ),
  ),
  "diloco": Method(
    _of("diloco", _SGD),
    _LOOPS,
    Reduction(
      "sgd inside, sgd of rate 1 outside", _of("diloco", _SGD, optax.sgd(1.0))
    ),
  ),
  "ditto": Method(
    _of("ditto", _SGD),
    _LOOPS,
    Reduction("always, its server's model", _of("ditto", _SGD)),
  ),
  "p_fed_me": Method(
    _of("p_fed_me", 1.0, lam=1.0, inner_learning_rate=RATE),
    _LOOPS,
    Reduction(
      "one inner step, eta lam 1",
      _of("p_fed_me", 1.0, lam=1.0, inner_learning_rate=RATE, inner_steps=1),
    ),
  ),
  "per_fed_avg": Method(
    None,
    _LOOPS,
    Reduction(
      "alpha 0, one batch",
      _of("per_fed_avg", RATE, inner_learning_rate=0.0, own_batches=False),
    ),
  ),
  "fed_per": Method(None, _LOOPS),
  "fed_rep": Method(None, _LOOPS),
  "fed_bn": Method(None, "test_running_statistics.py"),
  # Without a schedule nothing is stale.
  "fed_buff": Method(
    _of("fed_buff", _SGD), _CLOCK, Reduction("always", _of("fed_buff", _SGD))
  ),
  "fed_async": Method(
    _of("fed_async", _SGD),
    _CLOCK,
    Reduction("alpha 1, mu 0", _of("fed_async", _SGD, alpha=1.0, mu=0.0)),
  ),
  "ca2fl": Method(
    _of("ca2fl", _SGD),
    _CLOCK,
    Reduction("its first round", _of("ca2fl", _SGD), rounds=1),
  ),
  "fadas": Method(_of("fadas", _SGD), _CLOCK),
}
# Settings of these that are rows of their own.
FORMS: dict[str, Method] = {
  "fed_gamma, rho 0": Method(_of("fed_gamma", RATE, rho=0.0), _LOOPS),
  "fed_smoo, rho 0": Method(_of("fed_smoo", RATE, lam=0.5, rho=0.0), _LOOPS),
  "fed_speed, rho 0": Method(_of("fed_speed", RATE, lam=2.0, rho=0.0), _LOOPS),
  "fed_speed, rho 0, all_duals": Method(
    _of("fed_speed", RATE, lam=2.0, rho=0.0, all_duals=True), _LOOPS
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
  moved = np.linalg.norm(expected - start)
  return float(np.linalg.norm(actual - expected) / moved)


def try_method(name: str) -> Row:
  """Where a method ends on the quadratics."""
  if ROWS[name].make is None:
    return Row(name, None, None)
  algorithm = ROWS[name].make()
  choice = ALGORITHMS.get(name)
  whole = distances(algorithm, ROUNDS)[-1]
  few = None
  if choice is None or choice.cohort == "sampled":
    few = float(distances(algorithm, ROUNDS, cohort_size=FEW)[-1])
  return Row(name, float(whole), few)


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
  shown = ", ".join([f"`{name}`", *form])
  at = method.fed_avg
  at = at.text if isinstance(at, Reduction) else at or "–"
  loop = f"[yes](../tests/{method.loop})"
  ends = " | ".join(map(verdict, row[1:]))
  return f"| {shown} | {loop} | {at} | {ends} |"


def head() -> str:
  """What is above the rows."""
  return f"""\
# Which check each method passes

Made by `python docs/validity_table.py`, which runs all of it in float64.

- **Its loop**: the linked test compares the method with a plain loop written
  from its box. Both agree to 1e-10, with unequal clients and, where the method
  takes them, partial cohorts.
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
FedSpeed with `all_duals` is FedDyn too. If clients keep a part of the model, no
model has all parts, so no model can be at the optimum. The model of
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
      off = off_fed_avg(reduction)
      assert off <= EQUAL, (name, off)
  TABLE.write_text(head() + "".join(f"{line}\n" for line in lines))


if __name__ == "__main__":
  main()
