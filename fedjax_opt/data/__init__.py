"""Clients' data: pools, partitions and data sets."""
