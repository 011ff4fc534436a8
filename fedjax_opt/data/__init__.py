"""Clients' data: pools, partitions and data sets."""

from fedjax_opt.data import (
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
  "embedded",
  "femnist",
  "fmri",
  "partition",
  "synthetic",
  "tfds",
]
