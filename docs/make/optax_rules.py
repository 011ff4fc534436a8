"""Writes optax_rules.md: which of optax's rules work, and as what.

  python docs/make/optax_rules.py

Every public factory of `optax` and `optax.contrib` that gives a gradient
transformation is tried on least squares: as the rule of a client, whose local
steps offer the arguments of `engine.traced.worker.extras_of`, and as the rule
of a server, which has a pseudo-gradient and its parameters alone.
"""

import functools
import importlib.metadata
import inspect
import pathlib
import re
import textwrap
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from optax import contrib

from fedjax_opt.engine.traced.worker import extras_of

TABLE = pathlib.Path(__file__).parents[1] / "optax_rules.md"
_STEPS = 4
_MODULES = (("optax", optax), ("optax.contrib", contrib))

# Give transformations too, but say so by no annotation.
_UNANNOTATED = {
  "optax": ("MultiSteps", "monitor", "scale_by_factored_rms"),
  "optax.contrib": ("dog", "dowg", "hutchinson_estimator_diag_hessian"),
}
_SGD = lambda: optax.sgd(0.1)
_everywhere = lambda params: jax.tree.map(lambda leaf: True, params)
_always = lambda step, *_, **__: jnp.array(True)
# What stands for an argument that has no default.
_ARGUMENTS = {
  "learning_rate": 0.01,
  "base_optimizer": _SGD(),
  "inner": _SGD(),
  "optimizer": _SGD(),
  "adv_optimizer": optax.sgd(0.05),
  "fast_optimizer": _SGD(),
  "tx": _SGD(),
  "opt": _SGD(),
  "inner_factory": optax.sgd,
  "clipping": 0.1,
  "threshold": 1.0,
  "max_delta": 1.0,
  "max_norm": 1.0,
  "l2_norm_clip": 1.0,
  "noise_multiplier": 0.1,
  "seed": 0,
  "key": jax.random.key(0),
  "eta": 0.01,
  "gamma": 0.55,
  "decay": 0.9,
  "step_size": -0.1,
  "step_size_fn": lambda count: -0.1,
  "sync_period": 2,
  "slow_step_size": 0.5,
  "max_consecutive_errors": 3,
  "max_backtracking_steps": 10,
  "max_linesearch_steps": 10,
  "should_transform_fn": _always,
  "mask": _everywhere,
  "freeze_mask": lambda params: jax.tree.map(lambda leaf: False, params),
  "transforms": {"all": _SGD()},
  "param_labels": lambda params: jax.tree.map(lambda leaf: "all", params),
  "measure_name": "norm",
  "measure": lambda updates, *_, **__: optax.tree.norm(updates),
  "measures": {"norm": lambda updates, *_, **__: optax.tree.norm(updates)},
  "every_k_schedule": 2,
}
# Factories that need other arguments.
_CALLS: dict[str, Callable[[], Any]] = {
  "optax.chain": lambda: optax.chain(optax.clip(1.0), _SGD()),
  "optax.named_chain": lambda: optax.named_chain(("sgd", _SGD())),
  "optax.inject_hyperparams": lambda: optax.inject_hyperparams(optax.sgd)(0.1),
  "optax.inject_stateful_hyperparams": lambda: (
    optax.inject_stateful_hyperparams(optax.sgd)(0.1)
  ),
  "optax.MultiSteps": lambda: optax.MultiSteps(
    _SGD(), 2
  ).gradient_transformation(),
  "optax.stateless": lambda: optax.stateless(lambda u, p: u),
  "optax.stateless_with_tree_map": lambda: optax.stateless_with_tree_map(
    lambda u, p: u
  ),
  "optax.freeze": lambda: optax.freeze(False),
  "optax.lookahead": lambda: optax.lookahead(_SGD(), 2, 0.5),
  "optax.contrib.scale_by_muon": lambda: optax.masked(
    contrib.scale_by_muon(
      weight_dimension_numbers=functools.partial(
        jax.tree.map, lambda leaf: contrib.MuonDimensionNumbers()
      )
    ),
    lambda params: jax.tree.map(lambda leaf: leaf.ndim == 2, params),
  ),
}
# Other forms of a factory, which have rows of their own.
_FORMS = {
  "optax.contrib.sam": {
    ", opaque_mode=True": lambda: contrib.sam(
      _SGD(), optax.sgd(0.05), opaque_mode=True
    )
  }
}
# What JAX and optax say -> what it means here.
_MEANINGS = (
  (r"missing \d+ required keyword-only arguments?: (.*)", r"needs \1"),
  (r"(\w+) must be provided (?:to|when) .*", r"needs `\1`"),
  (r".*has no attribute 'fast'", "needs `LookaheadParams`, two models in one"),
  (
    r"scan body function carry input and carry output must have the same.*",
    "its state changes its structure from one step to the next",
  ),
  (
    r"pytree structure error.*",
    "what it gives has another structure than the parameters",
  ),
  (
    r".*expects `grads` to have a batch dimension.*",
    "needs gradients of each example",
  ),
)


class Row(NamedTuple):
  """What became of one factory; None where it works, else why not."""

  name: str
  client: str | None
  server: str | None


def factories() -> dict[str, Callable[[], Any]]:
  """{full name: () -> transformation}, all that the table has."""
  makers = {}
  for module_name, module in _MODULES:
    for name in sorted(dir(module), key=str.lower):
      full_name = f"{module_name}.{name}"
      factory = getattr(module, name)
      if name.startswith("_") or not _is_factory(module_name, name, factory):
        continue
      makers[full_name] = _CALLS.get(
        full_name, functools.partial(_call, factory)
      )
      for form, make in _FORMS.get(full_name, {}).items():
        makers[full_name + form] = make
  return makers


def _is_factory(module_name, name, factory):
  if name in _UNANNOTATED[module_name]:
    return True
  if isinstance(factory, type) or not callable(factory):
    return False
  try:
    result = inspect.signature(factory).return_annotation
  except (TypeError, ValueError):
    return False
  return "GradientTransformation" in str(result)


def _call(factory):
  names = [
    name
    for name, parameter in inspect.signature(factory).parameters.items()
    if parameter.default is parameter.empty
    and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
  ]
  return factory(**{name: _ARGUMENTS[name] for name in names})


def try_rule(name: str, make: Callable[[], Any]) -> Row:
  """Tries one factory, at a client and at the server."""
  places = (_client_update, _server_update)
  return Row(name, *(_why_not(make, update) for update in places))


def _why_not(make, update):
  """None if it works, else why not, in one line."""
  try:
    program = jax.jit(lambda x: _steps(make(), x, update)).lower(_PARAMS)
    # It runs once.
    options = {"xla_backend_optimization_level": 0}
    params = program.compile(compiler_options=options)(_PARAMS)
  except Exception as error:
    return _in_short(error)
  if all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(params)):
    return None
  return "the parameters are not finite"


def _in_short(error):
  text = " ".join(str(error).split())
  for pattern, meaning in _MEANINGS:
    match = re.search(pattern, text)
    if match:
      return match.expand(meaning).replace("'", "`")
  text = text.split(". ")[0].rstrip(".").replace("|", "/")
  return textwrap.shorten(text, 100, placeholder=" ...")


_rng = np.random.default_rng(0)
_BATCHES = {  # [K, B, ...]
  "x": _rng.normal(size=(_STEPS, 8, 4)).astype(np.float32),
  "y": _rng.normal(size=(_STEPS, 8, 3)).astype(np.float32),
}
_PARAMS = {
  "kernel": _rng.normal(size=(4, 3)).astype(np.float32),
  "bias": np.zeros(3, np.float32),
}


def _loss(params, batch):
  error = batch["x"] @ params["kernel"] + params["bias"] - batch["y"]
  return jnp.mean(jnp.square(error))


def _client_update(rule, state, params, batch):
  """What a client's local step does with a batch."""
  rule = optax.with_extra_args_support(rule)
  mean_loss = lambda params: _loss(params, batch)
  value, grads = jax.value_and_grad(mean_loss)(params)
  # What the engine's own local steps offer.
  extras, _ = extras_of(rule, mean_loss, params, value, grads)
  return rule.update(grads, state, params, **extras)


def _server_update(rule, state, params, batch):
  """What the server does with a pseudo-gradient."""
  delta = optax.tree.scale(0.1, jax.grad(_loss)(params, batch))
  return rule.update(delta, state, params)


def _steps(rule, params, update):
  def step(carry, batch):
    params, state = carry
    updates, state = update(rule, state, params, batch)
    return (optax.apply_updates(params, updates), state), None

  return jax.lax.scan(step, (params, rule.init(params)), _BATCHES)[0][0]


def line(row: Row) -> str:
  """The line of a rule that does not work in both places."""
  name, client, server = row
  reasons = []
  if client is not None:
    reasons.append(client if client == server else f"client: {client}")
  if server is not None and server != client:
    reasons.append(f"server: {server}")
  word = lambda reason: "yes" if reason is None else "no"
  why = "; ".join(reasons)
  return f"| `{name}` | {word(client)} | {word(server)} | {why} |"


def works(row: Row) -> bool:
  """At a client and at the server."""
  return row.client is None and row.server is None


def head() -> str:
  """What is above the rules."""
  version = importlib.metadata.version("optax")
  return f"""\
# Rules of optax {version} at clients and at the server

`python docs/make/optax_rules.py` makes this page. It tries every function of
optax that returns a transformation, as the [rule](how_to/own_rule.md) of
clients and of the server. A rule *works* if several steps run in one compiled
program, and the parameters stay finite. A rule that works need not find a
minimum by itself: those that only scale, such as `scale_by_rms`, are meant for
a chain.

At clients, `add_noise` and `noisy_sgd` give each client the same noise in each
round, because the state of a client's rule is new in each round.

A client offers its rule [more than the
gradient](how_to/own_rule.md#more-than-the-gradient): `value`, `grad`,
`value_fn`, `grad_fn` and `obj_fn`. The server offers only its parameters and a
pseudo-gradient, the mean difference of the clients with its sign changed.

The gradients that a line search takes of `value_fn`, in `lbfgs` too, are not
counted in the costs of a run.

"""


def page(rows: Sequence[Row]) -> str:
  """The page in Markdown."""
  parts = [f"{head()}## Rules that work in both places\n"]
  for module, _ in _MODULES:
    of_module = [
      f"`{row.name.removeprefix(module)[1:]}`"
      for row in rows
      if works(row) and row.name.rpartition(".")[0] == module
    ]
    text = f"From `{module}`: {', '.join(of_module)}."
    parts.append(textwrap.fill(text, 80, break_long_words=False) + "\n")
  parts.append("## Rules that work at clients only, or nowhere\n")
  lines = [line(row) for row in rows if not works(row)]
  header = "| factory | client | server | why not |\n|---|---|---|---|"
  return "\n".join(parts) + "\n".join(["", header, *lines, ""])


def main() -> None:
  TABLE.write_text(
    page([try_rule(name, make) for name, make in factories().items()])
  )


if __name__ == "__main__":
  main()
