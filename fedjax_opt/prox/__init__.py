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

from fedjax_opt.prox.constraints import TOLERANCE as TOLERANCE
from fedjax_opt.prox.constraints import box as box
from fedjax_opt.prox.constraints import l1_ball as l1_ball
from fedjax_opt.prox.constraints import l2_ball as l2_ball
from fedjax_opt.prox.constraints import non_negative as non_negative
from fedjax_opt.prox.constraints import simplex as simplex
from fedjax_opt.prox.penalties import elastic_net as elastic_net
from fedjax_opt.prox.penalties import group_lasso as group_lasso
from fedjax_opt.prox.penalties import l1 as l1
from fedjax_opt.prox.penalties import nuclear as nuclear
from fedjax_opt.prox.penalties import squared_l2 as squared_l2
from fedjax_opt.prox.penalties import total_variation_1d as total_variation_1d
from fedjax_opt.prox.regularizer import Regularizer as Regularizer
from fedjax_opt.prox.regularizer import each_leaf as each_leaf
from fedjax_opt.prox.regularizer import kernels as kernels
from fedjax_opt.prox.regularizer import on_leaves as on_leaves
from fedjax_opt.prox.regularizer import zero as zero
from fedjax_opt.prox.singular_values import (
  soft_threshold_singular_values as soft_threshold_singular_values,
)
from fedjax_opt.registry import RegularizerEntry, from_factory, register


def _on_kernels(
  factory: Callable[..., Regularizer],
  help: str,
  default: float | None = None,
  **options: Any,
) -> RegularizerEntry:
  """A regularizer of each kernel, with the default of its number."""
  make = lambda **arguments: kernels(factory(**arguments))
  strength = {"default": default, "label": "regularization strength"}
  hyperparameters = from_factory(factory, strength=strength, radius=default)
  return RegularizerEntry(make, help, hyperparameters, **options)


REGULARIZERS: dict[str, RegularizerEntry] = {
  "l1": _on_kernels(l1, "strength times the L1 norm", 0.01, label="L1 norm"),
  "squared_l2": _on_kernels(
    squared_l2,
    "strength times the squared L2 norm",
    0.01,
    label="squared L2 norm",
  ),
  "nuclear": _on_kernels(
    nuclear, "strength times the nuclear norm", 0.01, label="nuclear norm"
  ),
  "group_lasso": _on_kernels(
    group_lasso, "strength times the norms of rows", 0.01
  ),
  # The radii of the paper's FEMNIST experiments.
  "l1_ball": _on_kernels(
    l1_ball, "L1 norm at most radius", 1000.0, is_finite=False, label="L1 ball"
  ),
  "l2_ball": _on_kernels(
    l2_ball, "L2 norm at most radius", 10.0, is_finite=False, label="L2 ball"
  ),
  "non_negative": _on_kernels(
    non_negative, "no negative entry", is_finite=False, label="non-negative"
  ),
}
register(REGULARIZERS)
