"""Data of clients: pools, partitions, populations in memory and on disk."""

from fedjax_opt.data import augmentation as augmentation
from fedjax_opt.data import partition as partition
from fedjax_opt.data import synthetic as synthetic
from fedjax_opt.data.clients import ClientData as ClientData
from fedjax_opt.data.pools import hold_out as hold_out
from fedjax_opt.data.population import Population as Population
