"""What changes clients' messages, and what replaces their mean.

`UPLOADS` names the first for the command line; `AGGREGATORS` and `FAULTS` are
in `transforms.aggregators` and `transforms.faults`.
"""

from fedjax_opt.registry import Entry, from_factory, register
from fedjax_opt.transforms.compressors import clip_by_norm as clip_by_norm
from fedjax_opt.transforms.compressors import error_feedback as error_feedback
from fedjax_opt.transforms.compressors import quantize as quantize
from fedjax_opt.transforms.compressors import random_k as random_k
from fedjax_opt.transforms.compressors import sign as sign
from fedjax_opt.transforms.compressors import top_k as top_k
from fedjax_opt.transforms.upload import Kept as Kept
from fedjax_opt.transforms.upload import Upload as Upload
from fedjax_opt.transforms.upload import with_upload as with_upload

UPLOADS: dict[str, Entry] = {
  "top_k": Entry(
    top_k,
    "the entries of largest magnitude",
    from_factory(top_k, fraction=0.01),
    label="top-k",
  ),
  "random_k": Entry(
    random_k,
    "entries drawn at random",
    from_factory(random_k, fraction=0.01),
    label="random-k",
  ),
  "sign": Entry(sign, "signs, one bit an entry, and the mean magnitude"),
  "quantize": Entry(
    quantize,
    "magnitudes rounded at random to a few levels (QSGD)",
    from_factory(quantize, levels=15),
  ),
}
register(UPLOADS)
