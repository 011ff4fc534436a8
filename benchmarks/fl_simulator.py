"""This package's side of FL-Simulator's protocol; see fl_simulator_worker.py.

Model, initial weights, augmentation and steps are the same. SCAFFOLD and
FedSpeed take no rule that clips and decays after their corrections, so
`as_published` adds it.
"""

import itertools

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax import lax, random
from protocol_peers import CHANNELS

import fedjax_opt as fo
from experiments.tasks import images
from fedjax_opt.models import layers
from fedjax_opt.transforms import messages

DECAY, MAX_NORM = 0.001, 10.0
IMAGES = images.Images("CIFAR-10", 10, *CHANNELS)


class ResNet(fo.models.ResNet):
  """With the first layers of the network for ImageNet."""

  def setup(self):
    super().setup()
    stem = self.widths[0], (7, 7), (2, 2), [(3, 3)] * 2
    self.wide_stem = layers.Conv(*stem, use_bias=False)

  def features(self, x, *, train=False):
    x = nn.relu(self.stem_norm(self.wide_stem(x), train=train))
    for axis in (1, 2):  # Maxima over 3 x 3, of which none is below 0.
      x, size = jnp.moveaxis(x, axis, 0), x.shape[axis]
      x = jnp.pad(x, [(1, 1)] + [(0, 0)] * 3)
      x = jnp.maximum(jnp.maximum(x[:size:2], x[1 : size + 1 : 2]), x[2::2])
      x = jnp.moveaxis(x, 0, axis)
    for block in itertools.chain(*self.stages):
      x = block(x, train=train)
    return jnp.mean(x, axis=(1, 2))


MODEL = ResNet((2, 2, 2, 2), (64, 128, 256, 512), num_groups=2)


def torch_weights(params, key):
  """Draws a model's weights as torchvision does."""

  def draw(leaf, key):
    if leaf.ndim == 4:  # Of variance 2 / fan_out.
      deviation = (2 * leaf.shape[2] / leaf.size) ** 0.5
      return deviation * random.normal(key, leaf.shape)
    if 10 in leaf.shape:
      return random.uniform(key, leaf.shape, leaf.dtype, -1, 1) / 512**0.5
    return leaf

  return jax.tree.map(draw, params, optax.tree.split_key_like(key, params))


def augmented(key, image):
  """Half of the images mirrored, and half of them cropped."""
  of_flip, of_crop, of_place = random.split(key, 3)
  image = image - IMAGES.largest * jnp.array(IMAGES.mean)
  image = jnp.where(random.bernoulli(of_flip), image[:, ::-1], image)
  place = random.randint(of_place, (2,), 0, 9)
  place = jnp.where(random.bernoulli(of_crop), place, 4)
  image = jnp.pad(image, [(4, 4), (4, 4), (0, 0)])
  image = lax.dynamic_slice(image, (*place, 0), (32, 32, 3))
  return image + IMAGES.largest * jnp.array(IMAGES.mean)


def as_published(algorithm, rate, pull=0.0):
  """Clips a step's gradient, but for `pull` times the parameters, and decays.

  FL-Simulator adds this part with the decay, after all corrections.
  """
  rules = (
    optax.add_decayed_weights(rate * pull),
    optax.clip_by_global_norm(rate * MAX_NORM),
    optax.add_decayed_weights(-rate * (DECAY + pull)),
  )

  def rewrite(worker, run):
    descend = lambda loss_fn, rule, params: worker.descend(
      loss_fn, optax.chain(rule, *rules), params
    )
    return run(messages.View(worker, descend=descend))

  def round(state, cohort):
    return messages.intercepted("clip", algorithm, state, cohort, rewrite)

  return algorithm._replace(round=round)


def make(method, rate, pool, test):
  """The task, and the algorithm."""
  task = images.classification(MODEL, IMAGES, pool, test, measures_train=False)

  def loss(params, batch, rng):
    keys = random.split(rng, len(batch["x"]))
    x = jax.vmap(augmented)(keys, batch["x"])
    return task.loss_fn(params, batch | {"x": x}, None)

  algorithm, pull = {
    "FedAvg": (fo.fed_avg(loss, optax.sgd(rate)), 0.0),
    "SCAFFOLD": (fo.scaffold(loss, rate), 0.0),
    "FedSpeed": (fo.fed_speed(loss, rate, lam=10.0, all_duals=True), 0.1),
  }[method]
  init = lambda key: torch_weights(task.init(key), key)
  return task._replace(init=init), as_published(algorithm, rate, pull)
