"""Transforms of the clients' messages: `Upload`, and `with_upload`.

An upload transform is an optax transformation. `with_upload` puts it between
what a client returns and what the cohort averages. The algorithm does not know
of it, and neither does the engine, but for what a client keeps.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedjax_opt import contract, optimizers
from fedjax_opt.arrays import norms, running_statistics, trees
from fedjax_opt.base import Algorithm
from fedjax_opt.checks import errors, fields, functions
from fedjax_opt.transforms import messages

# Folded into the key of a client, as no algorithm folds it.
_UPLOAD = 0x5E4D


# `Upload` is defined below.
_CONTRACTION = fields.Field(
  lambda name, value: fields.KINDS[Upload].check(name, value), optional=True
)


@fields.checked(contraction=_CONTRACTION)
class Upload(NamedTuple):
  """How clients send a difference.

  Attributes:
    rule: an optax transformation of the difference, whose `update` gets `key`,
      a random key of this client and round, as a keyword argument. Its state,
      if it has any, is kept by the client from round to round; its `init` gets
      a tree of the shapes of a difference.
    num_bytes: `difference -> int`, the bytes that are sent, given the
      difference or its shapes.
    contraction: the transform that `error_feedback` takes instead, if this one
      may increase the norm of a difference; None for this one.
  """

  rule: optax.GradientTransformation
  num_bytes: Callable[[Any], int] = trees.num_bytes
  contraction: "Upload | None" = None


fields.KINDS[Upload] = fields.instance_of(
  Upload,
  "one of fedjax_opt.transforms, such as transforms.top_k(0.01), or an optax "
  "transformation",
)


class Kept(NamedTuple):
  """A client's state, for an algorithm with an upload that has a state.

  Attributes:
    own: the client's state of the algorithm itself; None if there is none.
    upload: the state of the rule for each part of the message; () for a part
      that is no difference.
  """

  own: Any
  upload: tuple[Any, ...]


def own_part(kept: Any) -> Any:
  """What the algorithm itself keeps, with or without an upload."""
  return kept.own if isinstance(kept, Kept) else kept


@fields.checked(algorithm=contract.ALGORITHM)
def with_upload(
  algorithm: Algorithm, upload: Upload | optax.GradientTransformation
) -> Algorithm:
  """An algorithm whose clients send a transform of their differences.

  The server takes the transformed difference as the difference. If a message
  has several differences, as in SCAFFOLD, each is transformed by itself. Other
  parts are sent unchanged, and so are the running statistics of batch
  normalization, which are no weights. If a client drops out, or its difference
  is not finite, its state of the transform does not change.

  >>> sent = fo.transforms.error_feedback(fo.transforms.top_k(0.01))
  >>> algorithm = fo.transforms.with_upload(
  ...   fo.fed_avg(loss_fn, optax.sgd(0.1)), sent
  ... )

  Args:
    algorithm: one that says what it `sends`.
    upload: of `fedjax_opt.transforms`, or any optax transformation, whose
      result counts as sent in full.

  Returns:
    The algorithm. `simulate(..., upload=upload)` makes the same one.

  Raises:
    ValueError: if the algorithm sends no difference, or in several phases.
    TypeError: if an argument is of a wrong type.
  """
  upload = as_upload(upload)
  messages.check_sends("upload", algorithm)
  rule = optax.with_extra_args_support(upload.rule)
  keeps = _has_state(rule)

  def init_client(params):
    init_inner = algorithm.init_client
    differences = running_statistics.weights(list(algorithm.sends(params)))
    return Kept(init_inner and init_inner(params), _starts(rule, differences))

  def round(state, cohort):
    shapes = messages.shapes_of_differences(algorithm, state)

    def rewrite(worker, run):
      client_state = worker.state if keeps else None
      output = run(_Lent(worker, _own=client_state.own) if keeps else worker)
      if output.bytes_up is not None:
        raise ValueError(
          "upload: the algorithm counts what it sends itself "
          "(ClientOutput.bytes_up), which a transform would change; leave "
          "upload out"
        )
      message = output.message
      parts = messages.differences_of("upload", message, shapes)
      states = client_state.upload if keeps else _starts(rule, parts)
      sent, states = _transformed(rule, parts, states, worker.key)
      new = output.state
      if keeps:
        new = Kept(client_state.own if new is None else new, states)
      num_bytes = sum(upload.num_bytes(p) for p in parts if p is not None)
      others = trees.num_bytes(message) - trees.num_bytes(parts)
      return output._replace(
        message=messages.with_differences(message, sent),
        state=new,
        bytes_up=num_bytes + others,
      )

    return messages.intercepted("upload", algorithm, state, cohort, rewrite)

  def client_params(state, client_state):
    return algorithm.client_params(state, own_part(client_state))

  return algorithm._replace(
    round=round,
    init_client=init_client if keeps else algorithm.init_client,
    broadcast=None if keeps else algorithm.broadcast,
    client_params=algorithm.client_params and client_params,
  )


def as_upload(upload: Any) -> Upload:
  """The upload, made of a transformation if it is one.

  Raises:
    TypeError: if it is neither.
  """
  if isinstance(upload, optax.GradientTransformation):
    return Upload(upload)
  fields.KINDS[Upload].check("upload", upload)
  return upload


def _has_state(rule: optax.GradientTransformation) -> bool:
  """Whether clients keep a state; one that only a model tells counts as one."""
  try:
    state = jax.eval_shape(rule.init, jax.ShapeDtypeStruct((1,), float))
  except Exception:
    return True
  return bool(jax.tree.leaves(state))


def _starts(rule, differences) -> tuple[Any, ...]:
  """The state of the rule for each part before its first difference."""
  return tuple(
    () if part is None else optimizers.init("upload", rule, part)
    for part in differences
  )


def _transformed(rule, differences, states, key):
  """What is sent of each difference, and the states of the rule."""
  key = jax.random.fold_in(key, _UPLOAD)
  sent, new_states = [], []
  for i, (part, state) in enumerate(zip(differences, states, strict=True)):
    if part is not None:
      is_finite = norms.all_finite(part)
      own_key = jax.random.fold_in(key, i)
      with errors.in_one_line("upload: its update failed"):
        # It has no parameters to be given.
        part, state = rule.update(part, state, None, key=own_key)
      # A transform may hide what is not finite; such a client is left out.
      keep = lambda leaf, is_finite=is_finite: jnp.where(
        is_finite, leaf, jnp.nan
      )
      part = jax.tree.map(keep, part)
    sent.append(part)
    new_states.append(state)
  return sent, tuple(new_states)


class _Lent(messages.View):
  """A worker that shows the algorithm its own part of what the client keeps."""

  @property
  def state(self) -> Any:
    """See `Worker.state`."""
    return functions.checked_state(self._own)
