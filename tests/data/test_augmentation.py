"""Crops and mirror images, and that they are part of a local step."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedjax_opt import ClientData, fed_avg, simulate
from fedjax_opt.data.augmentation import crop_and_flip

SIDE = 6


def images(count):
  """Each pixel has a value of its own, none is 0."""
  image = np.arange(1, SIDE * SIDE * 2 + 1, dtype=np.uint8)
  return np.repeat(image.reshape(1, SIDE, SIDE, 2), count, 0)


def all_that_may_come(image, padding):
  padded = np.pad(image, [(padding, padding)] * 2 + [(0, 0)])
  crops = {}
  for top in range(2 * padding + 1):
    for left in range(2 * padding + 1):
      crop = padded[top : top + SIDE, left : left + SIDE]
      crops[crop.tobytes()] = (top, left, False)
      crops[crop[:, ::-1].tobytes()] = (top, left, True)
  return crops


def test_every_crop_comes_and_comes_equally_often():
  x = images(4000)
  augment = jax.jit(crop_and_flip, static_argnums=2)
  images_out = np.asarray(augment(jax.random.key(0), x, 1))
  assert images_out.dtype == np.uint8
  crops = all_that_may_come(x[0], 1)
  positions = [crops[image.tobytes()] for image in images_out]
  counts = np.unique(positions, axis=0, return_counts=True)[1]
  assert len(counts) == 18  # 3 x 3 crops, twice
  # 222 of each on average; five standard deviations.
  assert abs(counts - 4000 / 18).max() < 5 * np.sqrt(4000 / 18)


def test_each_example_is_changed_anew_in_each_local_step():
  """Rates of 1 on a linear loss add up the images that were seen."""
  x = images(4)
  data = ClientData.from_partition(
    {"x": x, "y": np.zeros(4, int)}, [np.arange(2), np.arange(2, 4)]
  )

  def loss_fn(params, batch, rng):
    images_seen = crop_and_flip(rng, batch["x"], 1).astype(jnp.float32)
    return -jnp.sum(images_seen * params, (1, 2, 3))

  def seen_of(client, steps):
    algorithm = fed_avg(loss_fn, optax.sgd(1.0))
    subset = ClientData(data.examples, data.indices[client], data.sizes[client])
    zeros = np.zeros(x.shape[1:], np.float32)
    options = {"rounds": 1, "batch_size": 2, "local_steps": steps}
    return np.asarray(simulate(algorithm, zeros, subset, **options).params)

  one_step, two_steps = (seen_of(slice(0, 1), steps) for steps in (1, 2))
  crops = all_that_may_come(x[0], 1)
  # Two images in one step: their mean is not one of those that may come twice.
  assert one_step.sum() > 0
  assert (two_steps - one_step != one_step).any()
  sums = np.array([np.frombuffer(crop, np.uint8) for crop in crops], float)
  sums_of_two = {(a + b).tobytes() for a in sums for b in sums}
  assert (2 * one_step).astype(float).tobytes() in sums_of_two
  assert (2 * (two_steps - one_step)).astype(float).tobytes() in sums_of_two
