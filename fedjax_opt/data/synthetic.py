"""Linear regressions whose true coefficients are known: sparse or low rank.

Source: Yuan, Zaheer and Reddi, "Federated Composite Optimization", ICML 2021,
appendices A.2 (sparse) and A.3 (low rank).
"""

from typing import NamedTuple

import numpy as np

from fedjax_opt.data.clients import ClientData
from fedjax_opt.hyperparameters import Hyperparameter, check_choice


class Variant(NamedTuple):
  """One of the paper's four sizes.

  Attributes:
    num_nonzero: coefficients that are 1 in `lasso`; the others are 0.
    rank: of the coefficients in `low_rank`.
    num_clients: M.
    examples_per_client: to train on.
  """

  num_nonzero: int
  rank: int
  num_clients: int
  examples_per_client: int


VARIANTS: dict[str, Variant] = {
  "I": Variant(512, 16, 64, 128),
  "II": Variant(64, 4, 64, 128),
  "III": Variant(8, 1, 64, 128),
  "IV": Variant(512, 16, 256, 32),
}

_LASSO_DIM = Hyperparameter("dim", 1024, "coefficients", "[1, inf)")
_LOW_RANK_DIM = Hyperparameter("dim", 32, "rows, and columns", "[1, inf)")
_NUM_CLIENTS = Hyperparameter("num_clients", 64, "clients", "[1, inf)")
_EXAMPLES = Hyperparameter("examples_per_client", 128, "examples", "[1, inf)")
_VALIDATION = Hyperparameter(
  "validation_per_client", 16, "examples", "[1, inf)"
)


class Problem(NamedTuple):
  """A regression, its clients, and the truth that they are drawn from.

  Attributes:
    data: the clients; x is [N, d] or [N, d, d] and y [N], both float32.
    validation: {'x', 'y'}, further draws from the same clients, as many from
      each.
    w_real: [d] or [d, d] float32, the true coefficients.
    b_real: [] float32, the true intercept.
  """

  data: ClientData
  validation: dict[str, np.ndarray]
  w_real: np.ndarray
  b_real: np.ndarray


def lasso(
  variant: str = "I",
  seed: int = 0,
  *,
  dim: int = 1024,
  num_nonzero: int | None = None,
  num_clients: int | None = None,
  examples_per_client: int | None = None,
  validation_per_client: int | None = None,
) -> Problem:
  r"""Sparse regression: the first coefficients are 1, the others 0.

  .. math::

    x = \mu_m + \delta, \quad y = \langle w, x \rangle + b + \varepsilon

  where :math:`b`, every entry of :math:`\delta` and of the client's own mean
  :math:`\mu_m`, and :math:`\varepsilon` are standard normal.

  For one seed, variants of the same size differ in nothing but w and so y.

  Args:
    variant: a key of `VARIANTS`; gives the sizes that are left out below.
    seed: of all draws.
    dim: d, number of coefficients.
    num_nonzero: coefficients that are 1.
    num_clients: M.
    examples_per_client: to train on.
    validation_per_client: by default an eighth of `examples_per_client`, which
      is 1,024 in total for each variant. The paper does not say.

  Returns:
    The problem, with x [N, d].

  Raises:
    ValueError: if the variant is unknown or a size is out of range.

  Source: appendix A.2.1, eq. A.2 to A.4.
  """
  sizes = _sizes(variant, num_clients, examples_per_client)
  if num_nonzero is not None:
    sizes = sizes._replace(num_nonzero=num_nonzero)
  _LASSO_DIM.check(dim)
  w_real = np.zeros(dim, np.float32)
  w_real[: _at_most_dim("num_nonzero", sizes.num_nonzero, dim)] = 1
  return _draw(w_real, sizes, validation_per_client, seed)


def low_rank(
  variant: str = "I",
  seed: int = 0,
  *,
  dim: int = 32,
  rank: int | None = None,
  num_clients: int | None = None,
  examples_per_client: int | None = None,
  validation_per_client: int | None = None,
) -> Problem:
  r"""Regression on matrices; the coefficients are the identity, cut short.

  As `lasso`, but :math:`\mu_m`, :math:`\delta` and :math:`w` are matrices, and
  :math:`w = \mathrm{diag}(1, \dots, 1, 0, \dots, 0)`.

  Args:
    variant: a key of `VARIANTS`; gives the sizes that are left out below.
    seed: of all draws.
    dim: d, rows and columns of a matrix.
    rank: of the coefficients.
    num_clients: M.
    examples_per_client: to train on.
    validation_per_client: as in `lasso`.

  Returns:
    The problem, with x [N, d, d].

  Raises:
    ValueError: if the variant is unknown or a size is out of range.

  Source: appendix A.3.1, eq. A.6 to A.8.
  """
  sizes = _sizes(variant, num_clients, examples_per_client)
  if rank is not None:
    sizes = sizes._replace(rank=rank)
  _LOW_RANK_DIM.check(dim)
  diagonal = np.arange(dim) < _at_most_dim("rank", sizes.rank, dim)
  w_real = np.diag(diagonal.astype(np.float32))
  return _draw(w_real, sizes, validation_per_client, seed)


def _sizes(
  variant: str, num_clients: int | None, examples_per_client: int | None
) -> Variant:
  check_choice("variant", variant, VARIANTS)
  sizes = VARIANTS[variant]
  if num_clients is not None:
    _NUM_CLIENTS.check(num_clients)
    sizes = sizes._replace(num_clients=num_clients)
  if examples_per_client is not None:
    _EXAMPLES.check(examples_per_client)
    sizes = sizes._replace(examples_per_client=examples_per_client)
  return sizes


def _at_most_dim(name: str, value: int, dim: int) -> int:
  if value % 1 or not 0 <= value <= dim:
    raise ValueError(
      f"{name}={value}: must be a whole number in [0, dim={dim}]"
    )
  return value


def _draw(
  w_real: np.ndarray,
  sizes: Variant,
  validation_per_client: int | None,
  seed: int,
) -> Problem:
  num_clients, num_train = sizes.num_clients, sizes.examples_per_client
  if validation_per_client is None:
    validation_per_client = max(1, num_train // 8)
  _VALIDATION.check(validation_per_client)

  rng = np.random.default_rng(seed)
  normal = lambda *shape: rng.standard_normal(shape, np.float32)
  b_real = normal()
  means = normal(num_clients, 1, *w_real.shape)

  def examples(per_client: int) -> dict[str, np.ndarray]:
    x = means + normal(num_clients, per_client, *w_real.shape)
    y = np.tensordot(x, w_real, w_real.ndim) + b_real
    y += normal(num_clients, per_client)
    return {"x": x.reshape(-1, *w_real.shape), "y": y.reshape(-1)}

  rows = np.arange(num_clients * num_train).reshape(num_clients, num_train)
  return Problem(
    data=ClientData.from_partition(examples(num_train), rows),
    validation=examples(validation_per_client),
    w_real=w_real,
    b_real=b_real,
  )
