"""Axis letters and the types that everything else is written in.

Every shape comment uses these letters:

  M clients in the population · C clients in a round's cohort · K local steps ·
  B examples in a batch · R rounds · S grid points (hyperparameters x seeds) ·
  N pooled examples · A arrivals of a server step on a schedule
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.typing import ArrayLike

from fedjax_opt.checks import errors, fields, functions
from fedjax_opt.checks.fields import Params as Params
from fedjax_opt.checks.fields import Rate as Rate
from fedjax_opt.checks.fields import State as State

Batch = dict[str, jax.Array]  # Each value is [B, ...].

# (params, batch, rng) -> [B]. One loss per example, so that padding, weights
# and per-client metrics are exact.
LossFn = Annotated[Callable[[Params, Batch, jax.Array], jax.Array], fields.LOSS]

# (params, batch, rng) -> [B, d]. The features before a model's last layer.
FeaturesFn = Annotated[
  Callable[[Params, Batch, jax.Array], jax.Array],
  fields.function(functions.FEATURES_TAKES),
]

# How a client moves: any optax transformation, or a function from the round
# (an int32 scalar) to one, for rates that change over rounds. A client starts
# each round with a fresh state of its rule.
ClientRule = Annotated[
  optax.GradientTransformation
  | Callable[[jax.Array], optax.GradientTransformation],
  fields.CLIENT_RULE,
]

# The version of the random streams. Add 1 whenever the same options and seed
# would give other cohorts, batches or clients; runs of another version are not
# resumed.
#   2: samplers draw few of more than 4,096 clients without shuffling all of
#      them (uniform, cyclic, poisson), as `random_k` does of entries; cyclic
#      draws other cohorts of few clients too.
STREAMS = 2


VERSION = "0.1.0"  # Of the package.


def run_key(seed: ArrayLike) -> jax.Array:
  """The random key from which a run with this seed draws.

  Its kind is fixed, whatever `jax_default_prng_impl` is: with other kinds
  vectorized clients would draw other numbers than one after the other.
  """
  return jax.random.key(seed, impl="threefry2x32")


def round_key(key: jax.Array, round: ArrayLike) -> jax.Array:
  """The random key of a round, from which all of the round is drawn.

  Args:
    key: [] random key of the run.
    round: [] int, from 0.
  """
  return jax.random.fold_in(key, round)


# (params, data, test) -> {name: scalar}, inside the compiled program; `data`
# is a `ClientData`, `test` a batch of all test examples or None. It is called
# with `validation=`, a batch too, if a run was given validation examples.
EvaluateFn = Annotated[
  Callable[..., dict[str, jax.Array]], fields.function(functions.EVALUATE_TAKES)
]

# The mean losses over examples, by the examples. A point of which one is not
# finite has diverged.
LOSSES = ("train_loss", "validation_loss", "test_loss")


def _params_of(state: State) -> Params:
  return state.params


# The functions of an algorithm: what each takes and returns.
FUNCTIONS = {
  "init": "(params) -> state",
  "round": "(state, cohort) -> (state, reply)",
  "params": "(state) -> params",
  "penalty": "(params) -> scalar",
  "init_client": "(params) -> tree",
  "client_params": "(state, kept) -> params",
  "personalize": "(worker, params) -> params",
  "sends": "(params) -> [part, ...]",
  "broadcast": "(state) -> tree",
}


@fields.checked(
  **{name: fields.function(takes) for name, takes in FUNCTIONS.items()}
)
class Algorithm(NamedTuple):
  """A federated algorithm: a few pure functions.

  Attributes:
    init: `params -> state`, the server's state before round 0.
    round: `(state, cohort) -> (state, replies)`, one communication round. The
      state keeps its structure and its types; floats of another type are cast.
      `cohort` is a `Cohort`; the algorithm sees clients only through its verbs.
      `replies` is what the verbs returned: one `Reply`, or a tuple of all of
      them. From the replies the engine takes the cost of the round, the new
      states of the clients, and whether the round is lost.
    params: `state -> params`, the model that is evaluated. Default: the field
      `params` of the state.
    penalty: `params -> scalar`, a regularizer that the objective has beside the
      clients' losses. If given, `regularized_train_loss` is measured too, and
      the same for validation and test examples.
    init_client: `params -> tree`, the state that ONE client keeps between
      rounds, as it is before its first round; a pytree of arrays without random
      keys. None if clients keep nothing. A client reads its state as
      `worker.state`, and returns the new one in `ClientOutput`.
    client_params: `(state, client_state) -> params`, the model that ONE client
      uses itself, given the server's state and the client's state; for
      `evaluate_clients`. None if all clients use the server's model.
    personalize: `(worker, params) -> params`, how ONE client changes this model
      on its training examples before it uses the model; for `evaluate_clients`.
      None if it does not.
    sends: None if the algorithm takes no upload, see `fedjax_opt.transforms`.
      Else `params -> [part, ...]`, what clients send in a round of one phase:
      for each part of the message a tree with the shapes of a difference of
      models (or a gradient), or None for a part that is not a difference. A
      single part is the message itself; several parts are a tuple. Uploads and
      faults change these differences, and `max_update_norm` limits them
      together.
    broadcast: `state -> tree`, what the server sends to clients, for rounds of
      one phase, a `mean` or `each`, in which clients need nothing else from the
      server. Clients may then start from any version of it, as on asynchronous
      schedules. None if clients need the present version.
    has_secret_noise: whether a round draws from `cohort.secret_key`. No seed
      determines this key, and a run does not write it; see
      `privacy.with_privacy`.
    averages_statistics: whether a model may have running statistics of
      normalization. The server's statistics must become the mean of the
      clients', and nothing else may change them (see `running_statistics`). If
      False, such a model is refused.
    may_be_clipped: whether a long update may be shortened, as
      `max_update_action='clip'` does. False if the server keeps the mean of
      what clients keep: one shortened update would part the two for good, and
      move the point to which the algorithm converges. Clipping is then refused.
    costs_differ: whether a hyperparameter decides what is sent, as the
      probability of `prox_skip` does. A setting of a grid that has diverged is
      then computed on, because no other setting has its costs.
  """

  init: Callable[[Params], State]
  round: Callable[[State, Any], tuple[State, Any]]
  params: Callable[[State], Params] = _params_of
  penalty: Callable[[Params], jax.Array] | None = None
  init_client: Callable[[Params], Any] | None = None
  client_params: Callable[[State, Any], Params] | None = None
  personalize: Callable[[Any, Params], Params] | None = None
  sends: Callable[[Params], Sequence[Params | None]] | None = None
  broadcast: Callable[[State], Any] | None = None
  has_secret_noise: bool = False
  averages_statistics: bool = False
  may_be_clipped: bool = True
  costs_differ: bool = False


class ClientOutput(NamedTuple):
  """What one client returns, if it returns more than its message.

  Attributes:
    message: what the client sends to the server, any pytree of arrays.
    state: the client's new state, of the structure of `Algorithm.init_client`;
      None if it does not change. Every phase reads the state from before the
      round. If several return a state, that of the last of them is kept.
    weight: [] float, the client's weight in the mean; None for the weight of
      the option `weighting`, which a sampler may have scaled. A client with a
      negative weight is left out.
    bytes_up: [] int, the bytes that the client sends, or [8], a counter as
      `arrays.counters` makes it; None for the size of `message`. If they depend
      on a hyperparameter, see `Algorithm.costs_differ`.
    metrics: {name: scalar}, recorded for each client and round in float32 or
      wider, also for clients that drop out. Each phase must use its own names.
  """

  message: Any
  state: Any = None
  weight: ArrayLike | None = None
  bytes_up: ArrayLike | None = None
  metrics: Mapping[str, jax.Array] = {}


def client_output(
  one_client: Callable[..., Any], worker: Any, broadcast: Any
) -> ClientOutput:
  """What one client returns, as a `ClientOutput`.

  Raises:
    TypeError: naming what is of a wrong type.
    ValueError: if it fails, or naming what is of a wrong shape.
  """
  output = errors.call_user(
    "one_client", functions.ONE_CLIENT_TAKES, one_client, worker, broadcast
  )
  if output is None:
    raise TypeError(
      "one_client: returned None; must return its message, or a ClientOutput"
    )
  if not isinstance(output, ClientOutput):
    output = ClientOutput(output)
  for name in ("message", "state"):
    functions.check_arrays(f"ClientOutput.{name}", getattr(output, name))
  for name in ("weight", "bytes_up"):
    value = getattr(output, name)
    # A count of bytes may be one of `counters`.
    is_counter = name == "bytes_up" and np.shape(value) == (8,)
    is_scalar = not np.shape(value) or is_counter
    if value is not None and not (functions.has_real_type(value) and is_scalar):
      raise TypeError(
        f"ClientOutput.{name}: is {functions.form_of(value)}; must be a "
        "scalar number"
      )
  count = output.bytes_up
  if count is not None and not jnp.issubdtype(
    jnp.result_type(count), jnp.integer
  ):
    raise TypeError(
      f"ClientOutput.bytes_up: is {functions.form_of(count)}; must be a whole "
      "number"
    )
  if isinstance(count, int | np.integer) and count < 0:
    raise ValueError(f"ClientOutput.bytes_up={count}: must not be negative")
  functions.checked_scalars("ClientOutput.metrics", output.metrics)
  return output


@fields.checked()
def grad_fn_of(
  mean_loss: Callable[[Params], jax.Array], params: Params
) -> Callable[[Params], Params]:
  """The gradient of one batch's loss as a function of the point.

  Rules such as Δ-SGD and SARAH need the gradient of the current batch at
  another point. Under `optax.masked` a rule sees, and passes, a tree in which
  some leaves are hidden. These leaves are filled in from `params`.

  Args:
    mean_loss: `params -> scalar`, the loss of this batch.
    params: the current point, a full tree.

  Returns:
    `point -> gradient`, both of the structure of `point`. Pass it to a rule as
    `rule.update(grads, state, params, value=value, grad_fn=...)`.
  """

  def grad_fn(point: Params) -> Params:
    hidden = lambda leaf: isinstance(leaf, optax.MaskedNode)
    fill = lambda leaf, full: full if hidden(leaf) else leaf
    keep = lambda leaf, grad: leaf if hidden(leaf) else grad
    full_point = jax.tree.map(fill, point, params, is_leaf=hidden)
    grads = jax.grad(mean_loss)(full_point)
    return jax.tree.map(keep, point, grads, is_leaf=hidden)

  return grad_fn
