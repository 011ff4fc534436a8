"""Readers of data sets that others publish, each from the publisher's files."""

from fedjax_opt.datasets import (
  embedded,
  femnist,
  fmri,
  shakespeare,
  texts,
  tfds,
  tokenization,
)

__all__ = [
  "embedded",
  "femnist",
  "fmri",
  "shakespeare",
  "texts",
  "tfds",
  "tokenization",
]
