"""Random changes of images, made anew for every example and local step.

They run on the device, inside the compiled round.
"""

import jax
import jax.numpy as jnp


def crop_and_flip(
  key: jax.Array, images: jax.Array, padding: int = 4
) -> jax.Array:
  """Random crops of the padded images, half of them mirrored.

  Args:
    key: random key; each image draws from a key of its own.
    images: [B, H, W, C], of any type; before normalization, as what is padded
      is 0.
    padding: pixels that are added on each side before the crop.

  Returns:
    [B, H, W, C], of the same type.

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
