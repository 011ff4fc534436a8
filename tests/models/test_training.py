"""The deep networks train: the loss falls, and one program is compiled.

Set FEDJAX_OPT_DATA_DIR to a TFDS folder to train on CIFAR-10's images; without
it, these are digits of the same shape.
"""

import os

import jax
import numpy as np
import pytest

from experiments.tasks import images as image_tasks
from fedjax_opt import ClientData, domo, models, simulate
from fedjax_opt.datasets import embedded, tfds

# As deep as they are, but narrow.
NETWORKS = {
  "vgg16": models.VGG(
    stages=((8, 8), (16, 16), (16,) * 3, (32,) * 3, (32,) * 3)
  ),
  "resnet56": models.ResNet((9, 9, 9), (8, 8, 16), projection=False),
}


def pool(count):
  folder = os.environ.get("FEDJAX_OPT_DATA_DIR")
  if folder is not None:
    examples = tfds.load("cifar10", "test", folder)
  else:
    digits, _ = embedded.digits()
    x = np.kron(digits["x"] * (255 // 16), np.ones((1, 4, 4, 3), np.uint8))
    examples = {"x": x.astype(np.uint8), "y": digits["y"]}
  return {name: values[:count] for name, values in examples.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_the_loss_falls_and_one_program_is_compiled(name):
  examples = pool(64)
  assert examples["x"].shape == (64, 32, 32, 3)
  task = image_tasks.classification(
    NETWORKS[name],
    image_tasks.DATASETS["cifar10"],
    examples,
    examples,
    augmentation="crop_flip",
  )
  params = task.init(jax.random.key(0))
  data = ClientData.from_partition(examples, [np.arange(24), np.arange(24, 64)])
  compiled = []

  def note(event, seconds, fun_name="", **_):
    if "backend_compile" in event and "rounds" in fun_name:
      compiled.append(event)

  jax.monitoring.register_event_duration_secs_listener(note)
  try:
    result = train(task, params, data)
  finally:
    jax.monitoring.unregister_event_duration_listener(note)
  losses = result.history.metrics["train_loss"][0]
  assert losses[-1] < losses[0]
  assert len(compiled) == 1


def train(task, params, data):
  return simulate(
    domo(task.loss_fn, 0.005),
    params,
    data,
    rounds=4,
    batch_size=16,
    local_steps=2,
    evaluate=lambda params, data, _: {
      "train_loss": task.loss_fn(params, data.examples, None).mean()
    },
    eval_every=2,
    client_map="scan",
  )
