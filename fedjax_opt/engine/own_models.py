"""Metrics of the models that clients use themselves, while a run goes on.

`client_evaluation.evaluate_clients` measures one model, client by client; here
it is one number for each point of a grid, so that settings can be chosen by it.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedjax_opt.arrays import trees
from fedjax_opt.base import Algorithm, Params, run_key
from fedjax_opt.data.clients import ClientData
from fedjax_opt.data.example_parts import ExampleParts
from fedjax_opt.engine import client_evaluation, inputs
from fedjax_opt.evaluation import PerExampleFn
from fedjax_opt.results.result import Report
from fedjax_opt.transforms.upload import own_part


class OwnModels:
  """Measures each client's own model on its own held-out examples.

  Clients whose algorithm gives them none use the server's. A call with a report
  measures; `names` are the names of what it returns.
  """

  def __init__(
    self,
    make: Callable[..., Algorithm],
    points: Sequence[Mapping[str, Any]],
    per_example: PerExampleFn,
    parts: Mapping[int, ExampleParts],
    measured: Sequence[str],
    **options: Any,
  ):
    """Computes nothing yet.

    Args:
      make: `(**hyperparameters) -> Algorithm`.
      points: S, of the grid; each has a seed.
      per_example: `(params, batch) -> {name: [B]}`.
      parts: seed -> the clients' examples, all of the same pool.
      measured: the parts on which models are measured, such as 'test'.
      **options: see `client_evaluation.STEP_OPTIONS`.
    """
    self._make, self._points, self._per_example = make, points, per_example
    self._parts, self._measured = parts, measured
    self._first_clients = next(iter(parts.values())).train
    self._options = options

  def names(self, params: Params | Callable[[jax.Array], Params]) -> list[str]:
    """`client_<part>_<metric>`, of an initial model, or what makes one."""
    if inputs.is_function_of_key(params):
      params = jax.eval_shape(params, run_key(0))
    batch = trees.take(self._first_clients.examples, slice(1))
    metrics = jax.eval_shape(self._per_example, params, batch)
    return [
      f"client_{part}_{name}" for part in self._measured for name in metrics
    ]

  def __call__(self, report: Report) -> dict[str, np.ndarray]:
    """The means over all held-out examples, by name. Each [S].

    Args:
      report: what `on_evaluation` receives; it is read within that call.
    """
    models = (report.params, report.state, own_part(report.client_state))
    if not report.is_grid:
      models = jax.tree.map(lambda leaf: leaf[None], models)
    measure, arguments = self._program
    return jax.device_get(measure(models, np.int32(report.round), *arguments))

  @functools.cached_property
  def _program(self):
    """`(models, round, points, data) -> metrics`, with its points and data."""
    seeds = list(self._parts)
    of_seeds = lambda part: inputs.data_of_seeds(
      lambda seed: getattr(self._parts[seed], part), seeds
    )
    lists = lambda clients: (clients.indices, clients.sizes)
    train = of_seeds("train")
    held_out = {part: lists(of_seeds(part)) for part in self._measured}
    column = lambda name: np.array([point[name] for point in self._points])
    names = [name for name in self._points[0] if name != "seed"]
    points = (
      {name: column(name) for name in names},
      column("seed").astype(np.uint32),
      np.array([seeds.index(seed) for seed in column("seed")], np.int32),
    )
    data = jax.device_put((train.examples, lists(train), held_out))
    clients = self._first_clients
    config = client_evaluation.config_of(clients, None, self._options)

    def measure(models, round, points, data):
      of_point = lambda point: self._of_point(config, *point, round, data)
      return lax.map(of_point, (models, *points))

    return jax.jit(measure), (points, data)

  def _of_point(self, config, models, numbers, seed, index, round, data):
    """The metrics of one point, whose hyperparameters are these numbers."""
    (_, server, _), (examples, train, parts) = models, data
    algorithm = self._make(**numbers)
    is_same = train[1].ndim == 1  # One for all seeds.
    pick = (lambda tree, i: tree) if is_same else trees.take
    clients_of = lambda lists: ClientData(examples, *pick(lists, index))
    held_out = {name: clients_of(lists) for name, lists in parts.items()}

    def one_client(worker, received):
      model = client_evaluation.own_model(algorithm, server, worker, received)
      return {
        name: client_evaluation.client_means(
          self._per_example, model, clients, worker.client
        )
        for name, clients in held_out.items()
      }

    metrics = client_evaluation.over_clients(
      one_client, config, models, seed, round, clients_of(train)
    )
    return {
      f"client_{part}_{name}": _over_examples(values, held_out[part].sizes)
      for part, of_part in metrics.items()
      for name, values in of_part.items()
    }


def _over_examples(means, sizes):
  """The mean over all examples, from the mean over each client's, [M]."""
  sums = jnp.where(sizes > 0, means * sizes, 0)
  return jnp.sum(sums) / jnp.sum(sizes)
