"""Clients' own results: how good a model is on each client's held-out examples.

`evaluate_clients` measures, for every client, up to three models: the global
model; the global model after some local steps of the client; and the client's
own model, if the algorithm's clients keep models. The same `Cohort` as in
training maps the work of a client over the population, a chunk at a time.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedjax_opt import contract, evaluation
from fedjax_opt.arrays import trees
from fedjax_opt.base import (
  Algorithm,
  ClientRule,
  LossFn,
  Params,
  State,
  run_key,
)
from fedjax_opt.checks import fields, functions
from fedjax_opt.checks.values import brief, check_count
from fedjax_opt.data import lists
from fedjax_opt.data.clients import ClientData
from fedjax_opt.engine import compilation, inputs
from fedjax_opt.engine.config import Config
from fedjax_opt.engine.run_options import check_option_names
from fedjax_opt.engine.traced.cohort import Cohort
from fedjax_opt.engine.traced.mapping import RoundData
from fedjax_opt.evaluation import PerExampleFn
from fedjax_opt.results.client_metrics import ClientMetrics
from fedjax_opt.results.result import Report, Result
from fedjax_opt.transforms.upload import own_part

_MODEL_KINDS = ("global", "personalized", "personal")
# The options of local steps, and of how they are computed.
STEP_OPTIONS = (
  "batch_size",
  "replacement",
  "drop_remainder",
  "precision",
  "client_map",
  "client_chunk",
)
# The most clients that have a model at the same time, and the most examples of
# a client that are computed at once.
_CLIENTS_AT_ONCE = 64
_EXAMPLES_AT_ONCE = 128


@fields.checked(
  seed=inputs.SEED, algorithm=contract.ALGORITHM, model=fields.ANYTHING
)
def evaluate_clients(
  model: Result | Report | Params,
  per_example: PerExampleFn,
  held_out: ClientData,
  *,
  train: ClientData | None = None,
  loss_fn: LossFn | None = None,
  client: ClientRule | None = None,
  local_steps: int | None = None,
  algorithm: Algorithm | None = None,
  point: int | None = None,
  seed: int = 0,
  **options: Any,
) -> ClientMetrics:
  """Measures models on each client's held-out examples.

  >>> train, held_out = data.split(0.2)
  >>> result = simulate(algorithm, params, train, rounds=100)
  >>> found = evaluate_clients(
  ...   result, per_example, held_out, train=train,
  ...   loss_fn=loss_fn, client=optax.sgd(0.1), local_steps=5)
  >>> found.deciles("global"), found.worst_decile("personalized")

  There are three kinds of models. 'global' is the model that a run evaluates.
  'personalized', if `local_steps` is given, is this model after so many steps
  on the client's training examples. 'personal', if `algorithm` has
  `client_params` or `personalize`, is the client's own model. A client without
  training examples takes no steps.

  Args:
    model: what `simulate` or `sweep` returned, a `Report` of `on_evaluation`,
      or parameters.
    per_example: `(params, batch) -> {name: [B]}`.
    held_out: the clients' held-out examples.
    train: their training examples, of the same clients, none of them held out;
      or `held_out` itself, to measure on training examples.
    loss_fn: `(params, batch, rng) -> [B]`, the loss of the steps; without the
      terms that an algorithm such as FedProx adds.
    client: the rule of the steps, an optax transformation or a function from
      the round to one.
    local_steps: how many steps personalize a model; 0 leaves the global one.
    algorithm: the algorithm of the run, for clients' own models.
    point: the index of the grid point; None for a single run.
    seed: the seed of the batches. With the seed of a run, a client takes the
      steps that it would take in the next round of this run.
    **options: how clients step, see `RunOptions`: batch_size, replacement,
      drop_remainder, precision, client_map, client_chunk.

  Returns:
    The metrics. At most 64 clients, or `client_chunk`, have a model at the same
    time.

  Raises:
    ValueError: naming the invalid argument, before anything is compiled.
    TypeError: naming the argument of a wrong type, likewise.
  """
  _check_parts(held_out, train)
  _check_steps(local_steps, loss_fn, client, train)
  if train is not held_out:  # Else training examples are to be measured.
    inputs.check_not_trained("held_out", held_out, train)
  check_option_names(options, STEP_OPTIONS)
  params, server, rows, round = _states_of(model, point)
  rows = own_part(rows)
  has_own = _has_own(algorithm, rows, train)
  if has_own and rows is not None:
    num_clients = len(jax.tree.leaves(rows)[0])
    check_count("held_out", held_out.sizes, num_clients, "clients of the run")
  params = inputs.checked_params(params, False, "model")
  config = None
  if local_steps is not None or has_own:
    data = held_out if train is None else train
    config = config_of(data, local_steps, options, params)
  own_algorithm = algorithm if has_own else None
  program = _program(
    config, per_example, loss_fn, client, local_steps, own_algorithm
  )
  models = (params, server, rows) if has_own else (params, None, None)
  args = jax.device_put((models, np.uint32(seed), np.int32(round)))
  args = (*args, *_on_device(train, held_out))
  lowered = jax.jit(program, keep_unused=True).lower(*args)
  compiler = compilation.large_options()
  metrics = jax.device_get(compilation.compiled(lowered, args, compiler)(*args))
  return ClientMetrics(
    {
      kind: {n: v.astype(float) for n, v in metrics[kind].items()}
      for kind in _MODEL_KINDS
      if kind in metrics
    },
    np.asarray(held_out.sizes),
    None if train is None else np.asarray(train.sizes),
  )


# The measurement, traced.


def _program(
  config: Config | None,
  per_example: PerExampleFn,
  loss_fn: LossFn | None,
  rule: ClientRule | None,
  local_steps: int | None,
  algorithm: Algorithm | None,
) -> Callable[..., dict[str, dict[str, jax.Array]]]:
  """`(models, seed, round, train, held_out) -> {kind: {name: [M]}}`."""

  def clients(models, seed, round, train, held_out):
    params, server, _ = models
    if config is None:
      return {"global": evaluation.per_client(per_example)(params, held_out)}

    def one_client(worker, received):
      models = {"global": received}
      if local_steps == 0:
        models["personalized"] = received
      elif local_steps is not None:
        models["personalized"] = worker.descend(loss_fn, rule, received)
      if algorithm is not None:
        models["personal"] = own_model(algorithm, server, worker, received)
      return {
        kind: client_means(per_example, model, held_out, worker.client)
        for kind, model in models.items()
      }

    return over_clients(one_client, config, models, seed, round, train)

  return clients


def over_clients(one_client, config, models, seed, round, train):
  """What `(worker, model) -> value` returns for every client, [M, ...].

  Args:
    one_client: the function.
    config: how clients work, see `config_of`.
    models: the model that each gets, and the states of server and clients.
    seed: the seed of the batches.
    round: the round in which clients work.
    train: their training examples.
  """
  params, _, rows = models
  numbers = jnp.arange(config.num_clients, dtype=jnp.int32)
  arrays = (train.examples, train.sizes, train.indices)
  data = RoundData(*arrays, clients=numbers, client_state=rows)
  cohort = Cohort(config, run_key(seed), round, data)
  return cohort.each(one_client, broadcast=params).value


def own_model(
  algorithm: Algorithm, server: State, worker: Any, params: Params
) -> Params:
  """The model that one client uses itself; the server's if it has no other."""
  if algorithm.client_params is not None:
    params = contract.call_function(
      "client_params", algorithm, server, worker.state
    )
  if algorithm.personalize is not None:
    params = contract.call_function("personalize", algorithm, worker, params)
  return params


def client_means(
  per_example: PerExampleFn, params: Params, data: ClientData, client: jax.Array
) -> dict[str, jax.Array]:
  """{name: []}, of one client's model on its examples; NaN if it has none."""
  rows = lists.rows_of(data.indices, data.sizes, client[None])[0]
  size = data.sizes.at[client].get(mode="clip")
  at_once = min(_EXAMPLES_AT_ONCE, len(rows))
  rows = jnp.pad(rows, (0, -len(rows) % at_once))
  rows = lists.fill_padding(rows, jnp.arange(len(rows)) < size)

  def sums(i):
    batch_rows = lax.dynamic_slice_in_dim(rows, i * at_once, at_once)
    metrics = functions.checked_per_example(
      per_example, params, trees.take(data.examples, batch_rows)
    )
    is_own = i * at_once + jnp.arange(at_once) < size
    total = lambda values: jnp.sum(jnp.where(is_own, values, 0), dtype=float)
    return {name: total(values) for name, values in metrics.items()}

  zeros = trees.zeros_of(jax.eval_shape(sums, 0))
  add = lambda i, total: jax.tree.map(jnp.add, total, sums(i))
  total = lax.fori_loop(0, -(-size // at_once), add, zeros)
  number = jnp.where(size > 0, size, jnp.nan)
  return {name: value / number for name, value in total.items()}


# Checks of the arguments.


def _check_parts(held_out: ClientData, train: ClientData | None) -> None:
  """Checks that both have as many clients."""
  if train is not None and train.num_clients != held_out.num_clients:
    raise ValueError(
      f"train: has {train.num_clients} clients and held_out "
      f"{held_out.num_clients}; must be parts of the same clients, as "
      "data.split(0.2) gives them"
    )


def _check_steps(local_steps, loss_fn, client, train):
  """Checks that personalized models have all that they need."""
  needed = {"train": train, "loss_fn": loss_fn, "client": client}
  if local_steps is None:
    for name in ("loss_fn", "client"):
      if needed[name] is not None:
        raise ValueError(
          f"{name}: belongs to personalized models; give local_steps= as well"
        )
    return
  for name, value in needed.items():
    if value is None:
      raise ValueError(
        f"{name}: must be given with local_steps={local_steps}, which "
        "personalizes models"
      )


def _states_of(model: Any, point: int | None) -> tuple[Params, Any, Any, int]:
  """The model, the states of server and clients, and the rounds done."""
  states, rounds, is_grid = (model, None, None), 0, False
  if isinstance(model, Result | Report):
    states = (model.params, model.state, model.client_state)
    rounds = model.rounds if isinstance(model, Result) else model.round
    is_grid = model.is_grid
  if not is_grid:
    if point is not None:
      raise ValueError(
        f"point={brief(point)}: belongs to a result of sweep; this is one model"
      )
    return *states, rounds
  num_points = len(jax.tree.leaves(model.params)[0])
  if point is None and num_points > 1:
    raise ValueError(
      f"point: the result is of a grid of {num_points} points; give the index "
      "of one"
    )
  point = 0 if point is None else point
  if point >= num_points:
    raise ValueError(f"point={point}: must be from 0 to {num_points - 1}")
  return *trees.take(states, point), rounds


def _has_own(algorithm: Algorithm | None, rows: Any, train: Any) -> bool:
  """Whether clients have models of their own."""
  if algorithm is None:
    return False
  if algorithm.client_params is not None and rows is None:
    raise ValueError(
      "algorithm: clients' own models are in the state of a run; give its "
      "result as the model, not parameters"
    )
  if algorithm.personalize is not None and train is None:
    raise ValueError(
      "train: clients make their own models on their training examples; give "
      "them"
    )
  return bool(algorithm.client_params or algorithm.personalize)


def config_of(
  data: ClientData,
  local_steps: int | None,
  options: Mapping[str, Any],
  params: Params | None = None,
) -> Config:
  """The options of the clients' work, on one device."""
  if not local_steps:  # No batches are used.
    options = {**options, "batch_size": 1}
  options = {**options, "local_steps": local_steps or 1, "client_devices": 1}
  config = Config.create(data, options, params)
  if options.get("client_chunk") is None:
    chunk = min(config.client_chunk, _CLIENTS_AT_ONCE)
    config = dataclasses.replace(config, client_chunk=chunk)
  return config


def _on_device(
  train: ClientData | None, held_out: ClientData
) -> tuple[ClientData, ClientData]:
  """Both on the device; a pool of examples that they share is there once."""
  device_data = jax.device_put(held_out)
  if train is None:
    return device_data, device_data
  if train.examples is held_out.examples:
    train = dataclasses.replace(train, examples=device_data.examples)
  return jax.device_put(train), device_data
