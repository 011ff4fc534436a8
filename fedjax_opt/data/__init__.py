"""Clients' data: pools, partitions and data sets."""

from fedjax_opt.data import (
  augmentation,
  embedded,
  femnist,
  fmri,
  partition,
  shakespeare,
  synthetic,
  texts,
  tfds,
  tokenization,
)
from fedjax_opt.data.clients import ClientData
from fedjax_opt.data.holdout import hold_out
from fedjax_opt.data.population import Population

__all__ = [
  "ClientData",
  "Population",
  "augmentation",
  "embedded",
  "femnist",
  "fmri",
  "hold_out",
  "partition",
  "shakespeare",
  "synthetic",
  "texts",
  "tfds",
  "tokenization",
]
