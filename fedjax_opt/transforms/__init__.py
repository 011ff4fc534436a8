"""What clients send instead of their differences.

`UPLOADS` names them for the command line.
"""

from fedjax_opt.registry import Choice, Hyperparameter, register
from fedjax_opt.transforms.compressors import (
  clip_by_norm,
  error_feedback,
  quantize,
  random_k,
  sign,
  top_k,
)
from fedjax_opt.transforms.upload import Kept, Upload, with_upload

__all__ = [
  "Kept",
  "Upload",
  "clip_by_norm",
  "error_feedback",
  "quantize",
  "random_k",
  "sign",
  "top_k",
  "with_upload",
]

_FRACTION = Hyperparameter(
  "fraction", 0.01, "share of the entries that a client sends", "(0, 1]"
)

UPLOADS: dict[str, Choice] = {
  "top_k": Choice(
    top_k, "the entries of largest magnitude", (_FRACTION,), label="top-k"
  ),
  "random_k": Choice(
    random_k, "entries drawn at random", (_FRACTION,), label="random-k"
  ),
  "sign": Choice(sign, "signs and the mean magnitude, a bit an entry"),
  "quantize": Choice(
    quantize,
    "magnitudes rounded at random to a few levels (QSGD)",
    (
      Hyperparameter(
        "levels",
        15,
        "levels of magnitudes above 0",
        "[1, inf)",
        is_static=True,
      ),
    ),
  ),
}
register(UPLOADS)
