"""Random augmentation of images, drawn anew for every example and local step.

Traced: it runs on the device, inside the compiled round.
"""

import jax
import jax.numpy as jnp


def crop_and_flip(
  key: jax.Array, images: jax.Array, padding: int = 4
) -> jax.Array:
  """Crops the padded images at random, and flips half of them left to right.

  Args:
    key: random key; it is split into one for each image.
    images: [B, H, W, channels], of any dtype; not normalized yet,
      because the padding is 0.
    padding: pixels that are added on each side before the crop.

  Returns:
    [B, H, W, channels], of the same dtype.

  References:
    He et al., "Deep Residual Learning for Image Recognition", CVPR 2016,
    section 4.2.
  """
  import dm_pix

  sides = [(padding, padding)] * 2 + [(0, 0)]

  def one(key, image):
    crop_key, flip_key = jax.random.split(key)
    cropped = dm_pix.random_crop(crop_key, jnp.pad(image, sides), image.shape)
    return dm_pix.random_flip_left_right(flip_key, cropped)

  return jax.vmap(one)(jax.random.split(key, len(images)), images)


# Name -> (key, images) -> images.
AUGMENTATIONS = {"crop_flip": crop_and_flip}
