"""Regularizers: a value and a proximal operator in one object.

A composite objective is `F(w) + psi(w)`; `psi` is a `Regularizer`:

  >>> psi = prox.kernels(prox.l1(0.1) + prox.squared_l2(0.01))
  >>> psi.value(params)  # a scalar
  >>> psi.prox(params, step)  # argmin_w step * psi(w) + ||w - params||^2 / 2

regularizer.py has the object, its sums and its restriction to some leaves.
"""

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
