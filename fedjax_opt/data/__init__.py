"""Clients' data: pools, partitions and data sets."""

from fedjax_opt.data import embedded, partition, tfds
from fedjax_opt.data.clients import ClientData

__all__ = ["ClientData", "embedded", "partition", "tfds"]
