"""Metrics of the models that clients use themselves, while a run goes on.

`client_evaluation.evaluate_clients` measures one model, client by client; here
it is one number for each point of a grid, so that settings can be chosen by it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedjax_opt.arrays import trees
from fedjax_opt.base import Algorithm, Params, run_key
from fedjax_opt.checks.errors import reworded_errors
from fedjax_opt.data.clients import ClientData
from fedjax_opt.engine import client_evaluation, inputs
from fedjax_opt.evaluation import PerExampleFn
from fedjax_opt.results.result import Report
from fedjax_opt.transforms.upload import own_part

# Parts of each client's examples; the second, of those that the first leaves.
TEST_FRACTION, VALIDATION_FRACTION = 0.2, 0.1


class ExampleParts(NamedTuple):
  """The parts of each client's examples.

  Attributes:
    train: what the clients train on; None for clients that never train.
    test: held-out examples on which models are measured, or None.
    validation: held-out examples on which settings are chosen, or None.
  """

  train: ClientData | None
  test: ClientData | None = None
  validation: ClientData | None = None

  @classmethod
  def of(
    cls, data: ClientData, seed: int, *fractions: tuple[str, float | None]
  ) -> "ExampleParts":
    """Holds out parts of each client's examples, each part from the rest.

    Args:
      data: the clients.
      seed: the seed of the draws.
      *fractions: pairs (name in an error, fraction) for `test`, then for
        `validation`; the fraction is None or 0 for no such part.

    Raises:
      ValueError: if the clients have too few examples.
    """
    parts: list[ClientData | None] = []
    for name, fraction in fractions:
      parts.append(None)
      if fraction:
        with reworded_errors(fraction=name):
          data, parts[-1] = data.split(fraction, seed)
    return cls(data, *parts)


def hold_out(data: ClientData, seed: int) -> ExampleParts:
  """A fifth of each client's examples for test, a tenth of the rest to choose.

  Raises:
    TypeError: if the clients are on disk.
    ValueError: if they have too few examples.
  """
  if not isinstance(data, ClientData):
    raise TypeError(
      "own_models: clients' own examples are held out in memory; data must be "
      "a ClientData, or a function that returns one"
    )
  with reworded_errors("own_models"):
    shares = (TEST_FRACTION, VALIDATION_FRACTION)
    return ExampleParts.of(
      data, seed, *(("fraction", share) for share in shares)
    )


def metric_names(
  per_example: PerExampleFn,
  params: Params | Callable[[jax.Array], Params],
  data: ClientData,
  parts: Sequence[str],
) -> list[str]:
  """The metrics that `OwnModels` has of these parts; computes nothing."""
  if inputs.is_function_of_key(params):
    params = jax.eval_shape(params, run_key(0))
  batch = trees.take(data.examples, slice(1))
  metrics = jax.eval_shape(per_example, params, batch)
  return [f"client_{part}_{name}" for part in parts for name in metrics]


class OwnModels:
  """Measures each client's own model on its own held-out examples.

  Clients whose algorithm gives them none use the server's.
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
    """Compiles nothing yet.

    Args:
      make: `(**hyperparameters) -> Algorithm`.
      points: S, of the grid; each has a seed.
      per_example: `(params, batch) -> {name: [B]}`.
      parts: seed -> the clients' examples, all of the same pool.
      measured: the parts on which models are measured, such as 'test'.
      **options: see `client_evaluation.STEP_OPTIONS`.
    """
    seeds = list(parts)
    data_per_seed = lambda part: inputs.data_of_seeds(
      lambda seed: getattr(parts[seed], part), seeds
    )
    data = data_per_seed("train")
    held_out = {part: data_per_seed(part) for part in measured}
    first_clients = parts[seeds[0]].train
    self._config = client_evaluation.config_of(first_clients, None, options)
    self._make, self._per_example = make, per_example
    names = [name for name in points[0] if name != "seed"]
    column = lambda name: np.array([point[name] for point in points])
    self._points = (
      {name: column(name) for name in names},
      np.array([point["seed"] for point in points], np.uint32),
      np.array([seeds.index(point["seed"]) for point in points], np.int32),
    )
    lists = lambda clients: (clients.indices, clients.sizes)
    is_same = np.ndim(data.sizes) == 1  # One for all seeds.
    self._pick = (lambda tree, i: tree) if is_same else trees.take
    self._data = jax.device_put(
      (data.examples, lists(data), {n: lists(p) for n, p in held_out.items()})
    )
    self._measure = jax.jit(self._of_points)

  def measure(self, report: Report) -> dict[str, np.ndarray]:
    """`client_<part>_<metric>`, means over all held-out examples. Each [S].

    Args:
      report: what `on_evaluation` receives; it is read within that call.
    """
    models = (report.params, report.state, own_part(report.client_state))
    if not report.is_grid:
      models = jax.tree.map(lambda leaf: leaf[None], models)
    return jax.device_get(
      self._measure(models, np.int32(report.round), self._points, self._data)
    )

  def _of_points(self, models, round, points, data):
    measure = lambda point: self._of_point(*point, round, data)
    return lax.map(measure, (models, *points))

  def _of_point(self, models, hyperparameters, seed, index, round, data):
    """The metrics of one point."""
    (_, server, _), (examples, train, parts) = models, data
    algorithm = self._make(**hyperparameters)
    clients_of = lambda lists: ClientData(examples, *self._pick(lists, index))
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
      one_client, self._config, models, seed, round, clients_of(train)
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
