"""Regularizers by name, as the command line offers them.

Each applies to every kernel by itself and not to biases, as in the experiments
of Yuan et al., "Federated Composite Optimization", ICML 2021.
"""

import functools
from collections.abc import Callable

from fedjax_opt.prox.constraints import l1_ball, l2_ball, non_negative
from fedjax_opt.prox.penalties import group_lasso, l1, nuclear, squared_l2
from fedjax_opt.prox.regularizer import Regularizer, kernels
from fedjax_opt.registry import Hyperparameter, RegularizerChoice, register

_STRENGTH = Hyperparameter(
  "strength",
  0.01,
  "factor of the regularizer",
  "[0, inf)",
  label="regularization strength",
)
# The radii of the paper's FEMNIST experiments.
_L1_RADIUS = Hyperparameter("radius", 1000.0, "radius of the ball", "(0, inf)")
_L2_RADIUS = _L1_RADIUS._replace(default=10.0)


_constraint = functools.partial(RegularizerChoice, is_finite=False)


def _on_kernels(
  factory: Callable[..., Regularizer],
) -> Callable[..., Regularizer]:
  return lambda **arguments: kernels(factory(**arguments))


REGULARIZERS: dict[str, RegularizerChoice] = {
  "l1": RegularizerChoice(
    _on_kernels(l1), "strength ||w||_1", (_STRENGTH,), label="L1 norm"
  ),
  "squared_l2": RegularizerChoice(
    _on_kernels(squared_l2),
    "strength ||w||^2",
    (_STRENGTH,),
    label="squared L2 norm",
  ),
  "nuclear": RegularizerChoice(
    _on_kernels(nuclear),
    "strength times the nuclear norm",
    (_STRENGTH,),
    label="nuclear norm",
  ),
  "group_lasso": RegularizerChoice(
    _on_kernels(group_lasso), "strength times the norms of rows", (_STRENGTH,)
  ),
  "l1_ball": _constraint(
    _on_kernels(l1_ball),
    "||w||_1 <= radius",
    (_L1_RADIUS,),
    label="L1 ball",
  ),
  "l2_ball": _constraint(
    _on_kernels(l2_ball),
    "||w|| <= radius",
    (_L2_RADIUS,),
    label="L2 ball",
  ),
  "non_negative": _constraint(
    _on_kernels(non_negative), "w >= 0", label="non-negative"
  ),
}
register(REGULARIZERS)
