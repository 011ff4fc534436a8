"""Data of clients: pools, partitions, populations in memory and on disk."""

from fedjax_opt.data import augmentation, partition, synthetic
from fedjax_opt.data.clients import ClientData
from fedjax_opt.data.pools import hold_out
from fedjax_opt.data.population import Population

__all__ = [
  "ClientData",
  "Population",
  "augmentation",
  "hold_out",
  "partition",
  "synthetic",
]
