"""Digests of a population's files, by which damage is noticed.

  digests.crc32    [M, F] uint32, of each client's bytes in the F field files

A client is what is read at once, so checking it reads nothing more.
population.json has the digests of sizes.bin, of this file, and of its own
content.
"""

import pathlib
from collections.abc import Sequence

import numpy as np

from fedjax_opt.digests import digest

# Fields are in files that end in .bin: no field has this name.
FILE = "digests.crc32"
DTYPE = np.dtype("<u4")


class Digests:
  """The digests of all clients.

  Attributes:
    of_fields: name -> digest of each client. [M] uint32.
  """

  def __init__(self, fields: Sequence[str], values: np.ndarray):
    """Takes the content of the file.

    Args:
      fields: names in the order of population.json.
      values: [M, F] uint32.
    """
    columns = np.ascontiguousarray(values.T)
    self.of_fields = dict(zip(fields, columns, strict=True))

  def check(
    self,
    path: pathlib.Path,
    clients: np.ndarray,
    stops: np.ndarray,
    rows: np.ndarray,
  ) -> None:
    """Checks what was read of some clients.

    Args:
      path: file of the field, named as `PATH/FIELD.bin`.
      clients: [C] integers; M and above have no examples.
      stops: [C], the row after the last one of each client.
      rows: the clients' examples, one client after the other.

    Raises:
      OSError: naming the file and a client that was damaged.
    """
    content = rows.reshape(-1).view(np.uint8)
    row_bytes = content.size // len(rows) if len(rows) else 0
    begin = 0
    for client, stop in zip(clients.tolist(), stops.tolist(), strict=True):
      end = stop * row_bytes
      if end > begin:
        self.check_client(path, client, digest(content[begin:end]))
      begin = end

  def check_client(self, path: pathlib.Path, client: int, found: int) -> None:
    """Checks the digest of what was read of one client.

    Args:
      path: file of the field, named as `PATH/FIELD.bin`.
      client: its number, in [0, M).
      found: the digest; 0 of a client without examples.

    Raises:
      OSError: naming the file and the client, if another was written.
    """
    if found != self.of_fields[path.name.removesuffix(".bin")][client]:
      raise OSError(
        f"{str(path)!r} is damaged: it does not hold what was written of "
        f"client {client}; write the population again"
      )
