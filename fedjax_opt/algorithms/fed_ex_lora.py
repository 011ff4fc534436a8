"""FedEx-LoRA: the mean of adapters, with its error added to the base.

References:
  Singhal, Ponkshe and Vepakomma, "FedEx-LoRA: Exact Aggregation for Federated
  and Efficient Fine-Tuning of Large Language Models", ACL 2025.
"""

from collections.abc import Sequence

import optax

from fedjax_opt import lora, optimizers, trainable
from fedjax_opt.algorithms.fed_avg import FedAvgState, server_step
from fedjax_opt.arrays import trees
from fedjax_opt.base import Algorithm, ClientOutput, ClientRule, LossFn
from fedjax_opt.checks import fields


@fields.checked(paths=fields.ANYTHING)
def fed_ex_lora(
  loss_fn: LossFn,
  client: ClientRule,
  server: optax.GradientTransformation | None = None,
  *,
  paths: Sequence[str] = lora.ADAPTERS,
) -> Algorithm:
  r"""FedAvg of LoRA's adapters, aggregated exactly (Singhal et al., 2025).

  The mean of products is not the product of means. The difference goes into the
  frozen kernels, so that each layer becomes the mean of the clients' layers:

  .. math::

    \bar A = \sum_i w_i A_i, \quad \bar B = \sum_i w_i B_i, \qquad
    W \leftarrow W + \frac{\alpha}{r}
      \Bigl(\sum_i w_i A_i B_i - \bar A \bar B\Bigr)

  Args:
    loss_fn: `(params, batch, rng) -> [B]`, of a model with adapters, see
      `lora.on_adapted`.
    client: the rule of the local steps.
    server: the rule of the server, for the trained leaves; `optax.sgd(1.0)` if
      None, which is the mean. With another rule, :math:`\bar A \bar B` is the
      product of the adapters after its step.
    paths: of the trained leaves, see `trainable.mask`: the adapters, and
      perhaps a head.

  Returns:
    The algorithm, for a model of `lora.adapt`. A client sends the trained
    leaves. It receives these, and the change of each kernel: as factors of rank
    (C + 1) r, or whole if that is smaller. A `max_update_norm` limits the
    changes of the leaves and of the products together.

  Raises:
    ValueError: if a path matches no leaf, or the adapters are not trained.
    TypeError: if an argument is of a wrong type.

  References:
    Singhal et al., ACL 2025, FedEx-LoRA.
  """
  server = optax.sgd(1.0) if server is None else server
  paths = trainable.checked_paths("paths", paths)
  if missing := [name for name in lora.ADAPTERS if name not in paths]:
    raise ValueError(
      f"paths={list(paths)}: must have {' and '.join(missing)}; FFA-LoRA, "
      "which trains lora_b alone, is exact already: train_only(fed_avg)"
    )

  if "lora_scale" in paths:
    raise ValueError(
      f"paths={list(paths)}: lora_scale is a constant; leave it out"
    )

  def init(params):
    trained, _ = trainable.split_at(params, paths, "paths")
    return FedAvgState(params, optimizers.init("server", server, trained))

  def round(state, cohort):
    trained, frozen = trainable.split_at(state.params, paths, "paths")
    loss = trainable.closed_over(loss_fn, frozen, trainable.dtype_of(trained))

    def one_client(worker, received):
      local = worker.descend(loss, client, received)
      delta = optax.tree.sub(local, received)
      # Differences, whose mean may have weights that do not sum to 1.
      moved = optax.tree.sub(_products(local), _products(received))
      return ClientOutput((delta, moved), bytes_up=trees.num_bytes(delta))

    bytes_down = trees.num_bytes(trained)
    bytes_down += _bytes_of_change(trained, cohort.config.cohort_size)
    reply = cohort.mean(one_client, broadcast=trained, bytes_down=bytes_down)
    delta, moved = reply.value
    new_leaves, server_state = server_step(server, trained, state.server, delta)
    mean_products = optax.tree.add(_products(trained), moved)
    residual = optax.tree.sub(mean_products, _products(new_leaves))
    change = optax.tree.scale(frozen["lora_scale"], residual)
    params = trainable.merge(new_leaves, frozen)
    params |= {"base": lora.added(params["base"], change)}
    return FedAvgState(params, server_state), reply

  return Algorithm(init, round)


def _products(trained):
  """{layer: [in, out]}, A B."""
  a, b = (trained[part] for part in lora.ADAPTERS)
  return {layer: a[layer] @ b[layer] for layer in a}


def _bytes_of_change(trained, cohort_size):
  """Bytes of the kernels' change, whole or as factors of all of a cohort."""
  a, b = (trained[part] for part in lora.ADAPTERS)

  def of_layer(layer):
    (size_in, rank), (_, size_out) = a[layer].shape, b[layer].shape
    factors = (cohort_size + 1) * rank * (size_in + size_out)
    return min(size_in * size_out, factors) * a[layer].dtype.itemsize

  return sum(map(of_layer, a))
