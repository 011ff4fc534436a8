"""Synthetic problems whose solution or heterogeneity is known exactly.

`lasso` and `low_rank` are linear regressions with sparse and with low-rank true
coefficients: Yuan, Zaheer and Reddi, "Federated Composite Optimization", ICML
2021, appendices A.2 and A.3.

`heterogeneous` is a non-convex problem with known heterogeneity of first and
second order. It meets the assumptions of Murata and Suzuki, "Bias-Variance
Reduced Local SGD for Less Heterogeneous Federated Learning", ICML 2021, section
2.
"""

import math
from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from fedjax_opt.base import Batch
from fedjax_opt.checks import memory
from fedjax_opt.checks.fields import (
  Count,
  NonNegativeFloat,
  Seed,
  checked,
  integer,
  one_of,
  plain_number,
)
from fedjax_opt.data.clients import ClientData


class Variant(NamedTuple):
  """The sizes of one of the paper's four variants.

  Attributes:
    num_nonzero: number of coefficients that are 1 in `lasso`; the others are 0.
    rank: rank of the coefficients in `low_rank`.
    num_clients: M.
    examples_per_client: training examples of a client.
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


_Variant = Annotated[str, one_of(*VARIANTS)]


class Problem(NamedTuple):
  """A regression problem: its data and the true coefficients.

  Attributes:
    data: the clients; x is [N, d] or [N, d, d] and y [N], both float32.
    validation: {'x', 'y'}, further examples of the same clients, equally many
      of each.
    test: {'x', 'y'}, as many again.
    w_real: [d] or [d, d] float32, the true coefficients.
    b_real: [] float32, the true intercept.
  """

  data: ClientData
  validation: dict[str, np.ndarray]
  test: dict[str, np.ndarray]
  w_real: np.ndarray
  b_real: np.ndarray


@checked()
def lasso(
  variant: _Variant = "I",
  seed: Seed = 0,
  *,
  dim: Count = 1024,
  num_nonzero: int | None = None,
  num_clients: Count | None = None,
  examples_per_client: Count | None = None,
  validation_per_client: Count | None = None,
) -> Problem:
  r"""Sparse regression: the first coefficients are 1, the others 0.

  .. math::

    x = \mu_m + \delta, \quad y = \langle w, x \rangle + b + \varepsilon

  where :math:`b`, :math:`\varepsilon`, every entry of :math:`\delta`, and every
  entry of client m's mean :math:`\mu_m` are standard normal.

  With the same seed, variants of the same size differ in w and y alone.

  Args:
    variant: a key of `VARIANTS`, for the sizes that are not given below.
    seed: of all draws.
    dim: d, number of coefficients.
    num_nonzero: coefficients that are 1.
    num_clients: M.
    examples_per_client: training examples of a client.
    validation_per_client: by default an eighth of `examples_per_client`, in
      total 1,024 for each variant. The paper does not give it.

  Returns:
    The problem, with x [N, d].

  Raises:
    ValueError: if the variant is unknown or a size is out of range.
    TypeError: if a size or the seed is no whole number.

  Source: appendix A.2.1, eq. A.2 to A.4.
  """
  given_sizes = (num_clients, examples_per_client, validation_per_client)
  sizes = _sizes(variant, *given_sizes, dim, width=dim)
  ones = _ones(variant, "num_nonzero", num_nonzero, dim)
  return _draw(ones, *sizes, seed)


@checked()
def low_rank(
  variant: _Variant = "I",
  seed: Seed = 0,
  *,
  dim: Count = 32,
  rank: int | None = None,
  num_clients: Count | None = None,
  examples_per_client: Count | None = None,
  validation_per_client: Count | None = None,
) -> Problem:
  r"""Regression on matrices, with coefficients of low rank.

  As `lasso`, but :math:`\mu_m`, :math:`\delta` and :math:`w` are matrices, and
  :math:`w = \mathrm{diag}(1, \ldots, 1, 0, \ldots, 0)`.

  Args:
    variant: a key of `VARIANTS`, for the sizes that are not given below.
    seed: of all draws.
    dim: d, rows and columns of a matrix.
    rank: rank of the coefficients.
    num_clients: M.
    examples_per_client: training examples of a client.
    validation_per_client: as in `lasso`.

  Returns:
    The problem, with x [N, d, d].

  Raises:
    ValueError: if the variant is unknown or a size is out of range.
    TypeError: if a size or the seed is no whole number.

  Source: appendix A.3.1, eq. A.6 to A.8.
  """
  given_sizes = (num_clients, examples_per_client, validation_per_client)
  sizes = _sizes(variant, *given_sizes, dim, width=dim**2)
  ones = _ones(variant, "rank", rank, dim)
  return _draw(np.diag(ones), *sizes, seed)


def _sizes(
  variant: str,
  num_clients: int | None,
  examples_per_client: int | None,
  validation_per_client: int | None,
  dim: int,
  width: int,
) -> tuple[int, int, int]:
  """Clients, and training and validation examples of each client.

  Raises:
    ValueError: if examples of `width` numbers each cannot be in memory.
  """
  number = num_clients or VARIANTS[variant].num_clients
  of_each = examples_per_client or VARIANTS[variant].examples_per_client
  memory.check_memory(
    f"num_clients={number} of examples_per_client={of_each} and dim={dim} take",
    4 * number * (of_each + 2 * (validation_per_client or of_each)) * width,
  )
  return number, of_each, validation_per_client or max(1, of_each // 8)


def _ones(variant: str, name: str, number: int | None, dim: int) -> np.ndarray:
  """[d] float32, first as many ones as are given, or else the variant has."""
  number = getattr(VARIANTS[variant], name) if number is None else number
  if number > dim:
    raise ValueError(f"{name}={number}: must be at most dim={dim}")
  return (np.arange(dim) < number).astype(np.float32)


def _draw(
  w_real: np.ndarray,
  num_clients: int,
  num_train: int,
  num_validation: int,
  seed: int,
) -> Problem:
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
    validation=examples(num_validation),
    test=examples(num_validation),
    w_real=w_real,
    b_real=b_real,
  )


# The non-convex problem.


class Heterogeneous(NamedTuple):
  r"""A smooth non-convex problem, as `heterogeneous` makes it.

  Example i of client p has the loss

  .. math::

    \ell(x; z_{pi}) = \sum_j a_j \Bigl( \frac{(x_j^2 - 1)^2}{2 (x_j^2 + 1)}
      - \tau_{pij} \frac{2 x_j^2}{x_j^2 + 1} \Bigr)
      + \frac{\zeta}{2} \sum_j s_{pj} x_j^2 + \langle b_p + \xi_{pi}, x \rangle.

  The first term is a double well in each coordinate. The other quantities are
  a random sign times a constant: :math:`\pm 1/2` in :math:`s_{pj}`,
  ``gradient_spread`` :math:`/ \sqrt d` in :math:`b_{pj}`, ``noise`` :math:`/
  \sqrt d` in :math:`\xi_{pij}`, ``curvature_noise`` in :math:`\tau_{pij}`. As
  many signs are + as -, for s and b over the clients, and for :math:`\xi` and
  :math:`\tau` over the examples of a client. (If the number is odd, one sign is
  0.) So the mean of these quantities is exactly 0, and:

  * The objective :math:`f(x) = \sum_j a_j (x_j^2 - 1)^2 / (2 (x_j^2 + 1))` is
    the same for every :math:`\zeta`. Its minima, of value 0, are the
    :math:`2^d` corners :math:`x_j = \pm 1`. It has a maximum at 0, and saddle
    points at all other points with :math:`x_j \in \{-1, 0, 1\}`. The
    eigenvalues of its Hessian are between -3 and 2 times the :math:`a_j`, which
    go from 1 to 1 / ``condition``, evenly on a log scale.
  * :math:`\nabla^2 f_p(x) - \nabla^2 f_q(x) = \zeta\, \mathrm{diag}(s_p -
    s_q)` at every x. Its 2-norm is at most :math:`\zeta`, and is
    :math:`\zeta` for some pair of clients.
  * :math:`\nabla f_p(x) - \nabla f(x) = b_p + \zeta s_p x`. The norm of
    :math:`b_p` is ``gradient_spread`` (at most, if P is odd) for every
    :math:`\zeta`. If :math:`\zeta > 2 a_j`, some :math:`f_p` are not bounded
    below; f always is.
  * :math:`\ell(\cdot; z)` is L-smooth with L = 3 + 4 ``curvature_noise`` +
    :math:`\zeta / 2`.
  * The gradient of an example has the standard deviation ``noise`` where
    :math:`x_j \in \{0, \pm \infty\}`, and at most ``noise`` +
    1.3 ``curvature_noise`` :math:`\|a\|` elsewhere. The part from :math:`\xi`
    is the same at all x, so it cancels in the difference of an example's
    gradients at two points. The part from :math:`\tau` does not.

  Attributes:
    data: the clients. Each example has 'tilt' (b + xi), 'curvature' (s) and
      'bump' (tau), all [N, d] float32.
    zeta: second-order heterogeneity. The data do not depend on it, so
      `problem._replace(zeta=...)` is the problem at another value, which may be
      traced.
    scales: the a_j. [d] float32.
    curvature_noise: the largest absolute value of tau.
  """

  data: ClientData
  zeta: ArrayLike
  scales: np.ndarray
  curvature_noise: float

  @property
  def smoothness(self) -> ArrayLike:
    """L, an upper bound of the 2-norm of an example's Hessian."""
    bumps = 4 * self.curvature_noise
    return (3 + bumps) * self.scales.max() + self.zeta / 2

  def loss_fn(
    self, params: jax.Array, batch: Batch, rng: jax.Array | None = None
  ) -> jax.Array:
    """The loss of each example, [B].

    Args:
      params: x, [d].
      batch: examples of `data`.
      rng: not used.
    """
    del rng
    square = jnp.square(params)
    bumps = self.scales * batch["bump"] * 2 * square / (square + 1)
    return (
      self.objective(params)
      - jnp.sum(bumps, axis=-1)
      + self.zeta / 2 * jnp.sum(batch["curvature"] * square, axis=-1)
      + jnp.sum(batch["tilt"] * params, axis=-1)
    )

  def objective(self, params: jax.Array) -> jax.Array:
    """f(x), the mean loss over all examples of all clients, in closed form."""
    square = jnp.square(params)
    wells = jnp.square(square - 1) / (2 * (square + 1))
    return jnp.sum(self.scales * wells)


@checked(
  num_clients=integer(2),
  condition=plain_number("[1, inf)"),
  gradient_spread=plain_number("[0, inf)"),
  noise=plain_number("[0, inf)"),
  curvature_noise=plain_number("[0, inf)"),
)
def heterogeneous(
  zeta: NonNegativeFloat = 0.1,
  seed: Seed = 0,
  *,
  dim: Count = 10,
  num_clients: int = 10,
  examples_per_client: Count = 256,
  condition: float = 30.0,
  gradient_spread: float = 3.0,
  noise: float = 0.5,
  curvature_noise: float = 0.5,
) -> Heterogeneous:
  """A non-convex problem with given second-order heterogeneity.

  `Heterogeneous` has its loss and its known properties.

  Args:
    zeta: second-order heterogeneity; non-negative.
    seed: of the random signs.
    dim: d, number of coordinates.
    num_clients: P, at least 2.
    examples_per_client: n.
    condition: ratio of the largest to the smallest a_j, the condition number of
      the Hessian at a minimum.
    gradient_spread: first-order heterogeneity, the norm of b_p.
    noise: standard deviation of the gradient over the examples of a client.
    curvature_noise: relative size of the change of the wells by an example.

  Returns:
    The problem: its data and its loss.

  Raises:
    ValueError: if an argument is out of range.
    TypeError: if one is no number, or no whole one where it must be.

  References:
    Murata and Suzuki, ICML 2021, assumptions 1 (zeta), 2 (L) and 4 (noise).
  """
  shape = (num_clients, examples_per_client, dim)
  memory.check_memory(
    f"num_clients={num_clients} of examples_per_client={examples_per_client} "
    f"and dim={dim} take",
    8 * 3 * math.prod(map(int, shape)),
  )
  rng = np.random.default_rng(seed)
  client_shape = (num_clients, 1, dim)
  curvature = _signs(rng, client_shape, axis=0) / 2
  spread = _signs(rng, client_shape, axis=0) * gradient_spread
  tilt = spread + _signs(rng, shape, axis=1) * noise
  examples = {
    "tilt": tilt / np.sqrt(dim),
    "curvature": np.broadcast_to(curvature, shape),
    "bump": _signs(rng, shape, axis=1) * curvature_noise,
  }
  pool = {
    name: values.reshape(-1, dim).astype(np.float32)
    for name, values in examples.items()
  }
  rows = np.arange(len(pool["tilt"])).reshape(num_clients, -1)
  return Heterogeneous(
    data=ClientData.from_partition(pool, rows),
    zeta=zeta,
    scales=np.geomspace(1, 1 / condition, dim).astype(np.float32),
    curvature_noise=curvature_noise,
  )


def _signs(
  rng: np.random.Generator, shape: tuple[int, ...], axis: int
) -> np.ndarray:
  """+1 and -1 in random order, equally many along the axis."""
  length = shape[axis]
  signs = np.sign(2 * np.arange(length) - (length - 1))
  along = [1] * len(shape)
  along[axis] = length
  return rng.permuted(np.broadcast_to(signs.reshape(along), shape), axis=axis)
