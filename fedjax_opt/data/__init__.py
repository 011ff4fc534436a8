"""Clients' data: pools, partitions and data sets."""

from fedjax_opt.data import (
  augmentation,
  embedded,
  femnist,
  fmri,
  partition,
  synthetic,
  tfds,
)
from fedjax_opt.data.clients import ClientData

__all__ = [
  "ClientData",
  "augmentation",
  "embedded",
  "femnist",
  "fmri",
  "partition",
  "synthetic",
  "tfds",
]
