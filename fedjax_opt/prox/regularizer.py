"""The regularizer object: scaling, sums and restriction to some leaves."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from fedjax_opt.arrays.trees import at_least_float32
from fedjax_opt.base import Params
from fedjax_opt.checks import fields
from fedjax_opt.checks.values import check_in_interval

# Outer kind -> inner kinds with which its proximal operator composes: the prox
# of `inner + outer` is `outer.prox(inner.prox(z))`. The reasons:
#   l1, box, non_negative after total_variation_1d: each is the same convex
#     function of every entry, so its prox keeps the order of the entries, and
#     the subdifferential of the total variation depends on that order alone.
#   box, non_negative after l1: on the real line, the prox of a convex function
#     plus an interval constraint is the prox of the function, clipped.
#   group_lasso, l2_ball: functions of norms, after terms that are positively
#     homogeneous (Yu, "On Decomposing the Proximal Map", 2013, Theorem 4).
# A chain of several terms is valid if every pair of them is listed. Terms are
# applied in the order of this table.
_COMES_AFTER = {
  "total_variation_1d": set(),
  "nuclear": set(),
  "l1": {"total_variation_1d"},
  "box": {"total_variation_1d", "l1"},
  "non_negative": {"total_variation_1d", "l1"},
  "group_lasso": {"l1", "non_negative"},
  "l2_ball": {
    "total_variation_1d",
    "nuclear",
    "l1",
    "non_negative",
    "group_lasso",
  },
}


@fields.checked(kind=fields.NAME)
@dataclasses.dataclass(frozen=True)
class Regularizer:
  r"""A convex function psi of a tree, with its proximal operator.

  .. math::

    \text{prox}(z, \tau) = \arg\min_w \tau \psi(w) + \tfrac{1}{2} \|w - z\|^2

  `scale * psi` and `psi_1 + psi_2` are regularizers too. The prox of a sum is
  known for: `squared_l2` with anything; `total_variation_1d`, then `l1`, then
  `box` or `non_negative`; `l1` and `non_negative`, then `group_lasso`; and
  `l2_ball` with `total_variation_1d`, `nuclear`, `l1`, `non_negative` and
  `group_lasso`. Each other sum is a ValueError. To regularize some leaves only,
  restrict the sum, not its terms: `kernels(l1(0.1) + squared_l2(0.1))`.

  Attributes:
    kind: name of the factory; decides for which sums the prox is known.
    value: `tree -> scalar`, psi; infinite where a constraint is violated.
    prox: `(tree, step) -> tree`, which keeps structure and dtypes. `step` is
      non-negative; with step 0 a constraint still projects.
    terms: the terms of a sum; empty if it is no sum.
    is_finite: whether psi is finite everywhere, which a constraint is not.
  """

  kind: str
  value: Callable[[Params], jax.Array]
  prox: Callable[[Params, ArrayLike], Params]
  terms: tuple["Regularizer", ...] = ()
  is_finite: bool = True

  def __post_init__(self):
    # Half precision is widened in between, and a strength that is an array may
    # be wider than the leaves.
    value, prox = self.value, self.prox

    def keep_dtypes(tree, step):
      tree = jax.tree.map(jnp.asarray, tree)
      cast = lambda new, old: new.astype(old.dtype)
      return jax.tree.map(cast, prox(_widened(tree), step), tree)

    object.__setattr__(self, "value", lambda tree: value(_widened(tree)))
    object.__setattr__(self, "prox", keep_dtypes)

  def __rmul__(self, scale: ArrayLike) -> "Regularizer":
    check_in_interval("scale", scale, "[0, inf)")
    if self.terms:
      return _sum(tuple(scale * term for term in self.terms))

    def value(tree):
      unscaled = self.value(tree)
      # 0 times a constraint is the constraint, as in its prox with step 0.
      return jnp.where(jnp.isinf(unscaled), unscaled, scale * unscaled)

    prox = lambda tree, step: self.prox(tree, scale * step)
    return Regularizer(self.kind, value, prox, is_finite=self.is_finite)

  # With a NumPy scalar on the left, NumPy then leaves the product to __rmul__.
  __array_ufunc__ = None
  __mul__ = __rmul__

  def __add__(self, other: "Regularizer") -> "Regularizer":
    if not isinstance(other, Regularizer):
      return NotImplemented
    parts = lambda psi: psi.terms or (psi,)
    return _sum((*parts(self), *parts(other)))


fields.KINDS[Regularizer] = fields.instance_of(
  Regularizer,
  "a regularizer of fedjax_opt.prox, such as prox.kernels(prox.l1(0.1)), or "
  "prox.zero() for none",
  ValueError,
)


def _widened(tree):
  return jax.tree.map(lambda leaf: at_least_float32(jnp.asarray(leaf)), tree)


def zero() -> Regularizer:
  """No regularizer: value 0, and the prox is the identity.

  Returns:
    The regularizer.
  """
  return Regularizer("zero", lambda tree: jnp.zeros([]), lambda tree, _: tree)


def _sum(terms: tuple[Regularizer, ...]) -> Regularizer:
  """The sum of terms that are no sums."""
  terms = tuple(term for term in terms if term.kind != "zero") or (zero(),)
  if len(terms) == 1:
    return terms[0]
  squares = [term for term in terms if term.kind == "squared_l2"]
  other_terms = [term for term in terms if term.kind != "squared_l2"]
  if len(other_terms) > 1:
    other_terms = _in_order(other_terms)

  def value(tree):
    return sum(term.value(tree) for term in terms)

  def prox(tree, step):
    # By completing the square, the prox of f + mu ||.||^2 at z with a step is
    # that of f at z / (1 + 2 mu step) with the step / (1 + 2 mu step).
    for square in squares:
      shrink = square.prox(jnp.ones([]), step)
      tree, step = square.prox(tree, step), step * shrink
    for term in other_terms:
      tree = term.prox(tree, step)
    return tree

  is_finite = all(term.is_finite for term in terms)
  return Regularizer("sum", value, prox, terms, is_finite)


def _in_order(terms: list[Regularizer]) -> list[Regularizer]:
  """Sorts terms so that their proximal operators compose.

  Raises:
    ValueError: if the prox of the sum is not known.
  """
  order = [*_COMES_AFTER, *(term.kind for term in terms)]
  ordered = sorted(terms, key=lambda term: order.index(term.kind))
  for i, inner in enumerate(ordered):
    for outer in ordered[i + 1 :]:
      if inner.kind not in _COMES_AFTER.get(outer.kind, ()):
        pairs = "; ".join(
          f"{kind} with {', '.join(sorted(kinds))}"
          for kind, kinds in _COMES_AFTER.items()
          if kinds
        )
        raise ValueError(
          f"{inner.kind} + {outer.kind}: the prox of this sum is not known; "
          f"known are squared_l2 with anything; {pairs}; on some leaves only, "
          "restrict the sum: kernels(a + b)"
        )
  return ordered


@fields.checked()
def on_leaves(
  psi: Regularizer, where: Callable[[tuple, jax.Array], bool]
) -> Regularizer:
  """Restricts a regularizer to some leaves.

  The value does not depend on the other leaves, and the prox does not change
  them. The selected leaves are regularized jointly, as one tree: `l2_ball`
  bounds the norm of all of them together. To regularize each by itself, give
  `each_leaf(psi)`.

  Args:
    psi: the regularizer.
    where: `(path, leaf) -> bool`, whether the leaf is selected; `path` is a
      tuple of strings, such as `("hidden", "kernel")`.

  Returns:
    The regularizer of the full tree.

  Raises:
    ValueError: from `value` and `prox`, if no leaf is selected.
  """

  def select(tree):
    with_paths, treedef = jax.tree_util.tree_flatten_with_path(tree)
    paths = [path_names(path) for path, _ in with_paths]
    leaves = [leaf for _, leaf in with_paths]
    indices = [i for i, leaf in enumerate(leaves) if where(paths[i], leaf)]
    if not indices:
      raise ValueError(
        f"{psi.kind}: no leaf is selected; the leaves are "
        + ", ".join("/".join(path) or "the array itself" for path in paths)
      )
    return leaves, indices, treedef

  def value(tree):
    leaves, indices, _ = select(tree)
    return psi.value([leaves[i] for i in indices])

  def prox(tree, step):
    leaves, indices, treedef = select(tree)
    new_leaves = psi.prox([leaves[i] for i in indices], step)
    for i, leaf in zip(indices, new_leaves, strict=True):
      leaves[i] = leaf
    return treedef.unflatten(leaves)

  kind = f"on_leaves({psi.kind})"
  return Regularizer(kind, value, prox, is_finite=psi.is_finite)


@fields.checked()
def each_leaf(psi: Regularizer) -> Regularizer:
  """Applies a regularizer to each leaf by itself and sums the values.

  This changes the regularizers that couple leaves: `l1_ball`, `l2_ball` and
  `simplex`. All others are sums over leaves already.
  """

  def value(tree):
    return sum(psi.value(leaf) for leaf in jax.tree.leaves(tree))

  def prox(tree, step):
    return jax.tree.map(lambda leaf: psi.prox(leaf, step), tree)

  kind = f"each_leaf({psi.kind})"
  return Regularizer(kind, value, prox, is_finite=psi.is_finite)


@fields.checked()
def kernels(psi: Regularizer) -> Regularizer:
  """Applies a regularizer to each leaf named "kernel" by itself.

  Other leaves, such as biases, are not regularized. Yuan et al., "Federated
  Composite Optimization", ICML 2021, do so in all experiments.
  """
  is_kernel = lambda path, leaf: bool(path) and path[-1] == "kernel"
  return on_leaves(each_leaf(psi), is_kernel)


def path_names(path: tuple[Any, ...]) -> tuple[str, ...]:
  """A path of `jax.tree_util` as strings: keys, names and indices."""
  return tuple(jax.tree_util.keystr((key,), simple=True) for key in path)
