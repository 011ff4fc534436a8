"""Readers of data sets that others publish, and of one's own files."""

from fedjax_opt.datasets import (
  embedded,
  femnist,
  fmri,
  image_folders,
  shakespeare,
  tables,
  texts,
  tfds,
  tokenization,
)

__all__ = [
  "embedded",
  "femnist",
  "fmri",
  "image_folders",
  "shakespeare",
  "tables",
  "texts",
  "tfds",
  "tokenization",
]
