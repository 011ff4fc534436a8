"""A linear classifier of twelve examples."""

import numpy as np
import optax

from fedjax_opt import ClientData, evaluation, fed_avg

N = 12
X = np.linspace(-1, 1, 3 * N, dtype=np.float32).reshape(N, 3)
Y = (np.arange(N) % 2).astype(np.int32)
OWNERS = np.arange(N) % 4
DATA = ClientData.from_client_ids({"x": X, "y": Y}, OWNERS)
TEST = {"x": X, "y": Y}
PARAMS = {"w": np.zeros((3, 2), np.float32)}
SGD = optax.sgd(0.1)


def logits_of(params, batch):
  return batch["x"] @ params["w"]


def loss_fn(params, batch, rng):
  return optax.softmax_cross_entropy_with_integer_labels(
    logits_of(params, batch), batch["y"]
  )


def per_example(params, batch):
  return {
    "loss": loss_fn(params, batch, None),
    "accuracy": logits_of(params, batch).argmax(1) == batch["y"],
  }


evaluate = evaluation.federated(per_example)
ALGORITHM = fed_avg(loss_fn, SGD)
DEFAULTS = {"algorithm": ALGORITHM, "params": PARAMS, "data": DATA}
DEFAULTS |= {"rounds": 2, "batch_size": 2}
