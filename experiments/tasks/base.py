"""What a task is: all that an algorithm and its evaluation need."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import numpy as np

from fedjax_opt.base import EvaluateFn, FeaturesFn, LossFn, Params
from fedjax_opt.data.clients import ClientData
from fedjax_opt.evaluation import PerExampleFn
from fedjax_opt.metrics import Criterion

# By what settings can be chosen, whatever the task.
LARGER_IS_BETTER = {"accuracy": True, "loss": False}


class Task(NamedTuple):
  """Data, model, loss and metrics.

  Attributes:
    train: pooled training examples, {"x": [N, ...], "y": [N]}.
    test: pooled test examples, or None.
    init: random key -> initial model.
    loss_fn: `(params, batch, rng) -> [B]`.
    per_example: `(params, batch) -> {name: [B]}`, metrics of each example.
    evaluate: metrics of a model.
    criteria: how settings are compared, by what they are chosen on:
      'validation', 'test', 'train', and 'truth' where it is known.
    num_classes: labels are below it; None if "y" is no label.
    features_fn: `(params, batch, rng) -> [B, d]`, or None if there are none.
    validation: pooled validation examples, if the task draws them; else
      `experiments.validation` holds them out.
    clients: the population, if it comes with the data; then `train` is unused.
    panels: metrics to draw; None for the usual ones.
  """

  train: dict[str, np.ndarray]
  test: dict[str, np.ndarray] | None
  init: Callable[[jax.Array], Params]
  loss_fn: LossFn
  per_example: PerExampleFn
  evaluate: EvaluateFn
  criteria: Mapping[str, Criterion]
  num_classes: int | None = None
  features_fn: FeaturesFn | None = None
  validation: dict[str, np.ndarray] | None = None
  clients: ClientData | None = None
  panels: tuple[str, ...] | None = None
