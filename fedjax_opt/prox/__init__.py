"""Regularizers: a value and a proximal operator in one object.

A composite objective is `F(w) + psi(w)`; `psi` is a `Regularizer`:

  >>> psi = prox.kernels(prox.l1(0.1) + prox.squared_l2(0.01))
  >>> psi.value(params)  # a scalar
  >>> psi.prox(params, step)  # argmin_w step * psi(w) + ||w - params||^2 / 2

regularizer.py has the object, its sums and its restriction to some leaves.
`REGULARIZERS` names some for the command line, where each applies to every
kernel by itself and not to biases, as in the experiments of Yuan et al.,
"Federated Composite Optimization", ICML 2021.
"""

from collections.abc import Callable
from typing import Any

from fedjax_opt.prox.constraints import (
  TOLERANCE,
  box,
  l1_ball,
  l2_ball,
  non_negative,
  simplex,
)
from fedjax_opt.prox.penalties import (
  elastic_net,
  group_lasso,
  l1,
  nuclear,
  squared_l2,
  total_variation_1d,
)
from fedjax_opt.prox.regularizer import (
  Regularizer,
  each_leaf,
  kernels,
  on_leaves,
  zero,
)
from fedjax_opt.prox.singular_values import soft_threshold_singular_values
from fedjax_opt.registry import RegularizerChoice, arguments, register

__all__ = [
  "TOLERANCE",
  "Regularizer",
  "box",
  "each_leaf",
  "elastic_net",
  "group_lasso",
  "kernels",
  "l1",
  "l1_ball",
  "l2_ball",
  "non_negative",
  "nuclear",
  "on_leaves",
  "simplex",
  "soft_threshold_singular_values",
  "squared_l2",
  "total_variation_1d",
  "zero",
]

_LABELS = {"strength": "regularization strength"}


def _on_kernels(
  factory: Callable[..., Regularizer],
  help: str,
  default: float | None = None,
  **others: Any,
) -> RegularizerChoice:
  """A regularizer of each kernel, with the default of its number."""
  make = lambda **arguments: kernels(factory(**arguments))
  hyperparameters = tuple(
    each._replace(default=default, label=_LABELS.get(each.name))
    for each in arguments(factory, "strength", "radius")
  )
  return RegularizerChoice(make, help, hyperparameters, **others)


REGULARIZERS: dict[str, RegularizerChoice] = {
  "l1": _on_kernels(l1, "strength ||w||_1", 0.01, label="L1 norm"),
  "squared_l2": _on_kernels(
    squared_l2, "strength ||w||^2", 0.01, label="squared L2 norm"
  ),
  "nuclear": _on_kernels(
    nuclear, "strength times the nuclear norm", 0.01, label="nuclear norm"
  ),
  "group_lasso": _on_kernels(
    group_lasso, "strength times the norms of rows", 0.01
  ),
  # The radii of the paper's FEMNIST experiments.
  "l1_ball": _on_kernels(
    l1_ball, "||w||_1 <= radius", 1000.0, is_finite=False, label="L1 ball"
  ),
  "l2_ball": _on_kernels(
    l2_ball, "||w|| <= radius", 10.0, is_finite=False, label="L2 ball"
  ),
  "non_negative": _on_kernels(
    non_negative, "w >= 0", is_finite=False, label="non-negative"
  ),
}
register(REGULARIZERS)
