"""A population of clients in a folder, which may be larger than memory.

population_files.py says what the folder holds.
"""

import dataclasses
import functools
import operator
import os
import pathlib
from collections.abc import Iterable, Mapping

import numpy as np

from fedjax_opt.checks import memory
from fedjax_opt.checks.fields import checked
from fedjax_opt.checks.values import check_at_least, checked_array
from fedjax_opt.data import lists, population_files
from fedjax_opt.data.clients import ClientData
from fedjax_opt.data.pools import check_fits, checked_examples
from fedjax_opt.data.population_files import MAX_INT32, Fields
from fedjax_opt.files import folders, json_files
from fedjax_opt.files.folders import user_path

_BYTES_AT_ONCE = 1 << 22  # Bytes that are written, or verified, at once.
_NUM_SAMPLED = 100  # Clients on which training metrics are measured.


@dataclasses.dataclass(frozen=True, eq=False)
class Population:
  """The clients of a folder, read as they are needed.

  Only the sizes and digests of the clients are in memory. A `Population` is no
  pytree: `gather` copies the examples that a round needs. Make a folder with
  `write` or `of_client_data`, or with `python -m experiments.convert`.

  >>> population = Population.open("clients")
  >>> capacity = population.capacity(cohort_size=10)
  >>> examples, starts = population.gather(np.array([4, 7]), capacity)

  Attributes:
    folder: path of the folder.
    sizes: examples of each client. [M] int32.
    digests: name -> of each client, of what was written. [M] uint32.
  """

  folder: pathlib.Path
  sizes: np.ndarray
  digests: dict[str, np.ndarray] = dataclasses.field(repr=False)
  _files: dict[str, population_files.File] = dataclasses.field(repr=False)

  @property
  def fields(self) -> Fields:
    """name -> (dtype, shape of one example)."""
    return {n: (file.dtype, file.shape[1:]) for n, file in self._files.items()}

  @functools.cached_property
  def _offsets(self) -> np.ndarray:
    """[M + 2] int64, each client's first row, and N twice for no client."""
    stops = np.cumsum(self.sizes, dtype=np.int64)
    return np.concatenate([[0], stops, stops[-1:]])

  @property
  def num_clients(self) -> int:
    """M."""
    return len(self.sizes)

  @property
  def num_examples(self) -> int:
    """N, the examples of all clients."""
    return int(self._offsets[-1])

  @property
  def max_size(self) -> int:
    """n_max, the examples of the largest client."""
    return int(self.sizes.max())

  @property
  def example_bytes(self) -> int:
    """The bytes of one example."""
    return sum(file.row_bytes for file in self._files.values())

  @property
  def examples(self) -> dict[str, np.ndarray]:
    """name -> [N, ...], read-only views of the files, client after client.

    They are not checked for damage; `verify` does that. If a file is cut while
    it is open, reading the missing part ends the process; `client` and `gather`
    raise an error.
    """
    return {name: file.map() for name, file in self._files.items()}

  @classmethod
  @checked()
  def open(cls, folder: str | os.PathLike) -> "Population":
    """Maps the files of a population, and checks that they are complete.

    Args:
      folder: as `write` leaves it.

    Raises:
      ValueError: if a file is missing, damaged or not complete; the message
        names it. For the examples, only the number of bytes is checked.
    """
    folder = user_path(folder)
    return cls(folder, *population_files.read(folder))

  def verify(self) -> None:
    """Reads all examples, and checks that they are undamaged.

    This takes the time of reading the files. `gather`, `client` and `load` also
    check what they read.

    Raises:
      ValueError: as `gather`.
      OSError: if a file cannot be read, or is damaged; the message names it
        and a client.
    """
    num_bytes = self.num_examples * self.example_bytes
    for clients in _groups(self.num_clients, num_bytes):
      self.gather(clients, int(self.sizes[clients].sum(dtype=np.int64)))

  def client(self, m: int) -> dict[str, np.ndarray]:
    """The examples of one client.

    Args:
      m: number of the client, in [0, M).

    Returns:
      name -> [n_m, ...], new arrays.

    Raises:
      ValueError: if there is no such client, or as `gather`.
      OSError: if a file cannot be read, or its examples are damaged.
    """
    m = operator.index(m)
    if not 0 <= m < self.num_clients:
      raise ValueError(f"client={m}: must be in [0, {self.num_clients})")
    examples, _ = self.gather(np.array([m]), int(self.sizes[m]))
    return examples

  def capacity(self, cohort_size: int) -> int:
    """The largest number of examples that a cohort can have.

    Args:
      cohort_size: C; a value above M counts as M.

    Returns:
      The sum of the C largest sizes.

    Raises:
      ValueError: if `cohort_size` is not positive.
    """
    check_at_least("cohort_size", cohort_size, 1)
    start = max(0, self.num_clients - cohort_size)
    return int(np.partition(self.sizes, start)[start:].sum(dtype=np.int64))

  def gather(
    self,
    clients: np.ndarray,
    capacity: int,
    out: Mapping[str, np.ndarray] | None = None,
  ) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Copies the examples of some clients, one client after the other.

    Safe to call from several threads, if each gives another `out`. Other
    threads run while the files are read.

    Args:
      clients: [C] integers; a number of M or more is no client, without
        examples.
      capacity: number of rows to return; `capacity(C)` is enough for any C
        clients.
      out: the arrays that an earlier call returned, to be overwritten.

    Returns:
      name -> [capacity, ...], which is `out` if that was given; rows beyond the
      last example are zero. And starts [C] int32, the first row of each client;
      of a client without examples, the row where they would begin.

    Raises:
      ValueError: if there are more examples than `capacity`, the shapes or
        dtypes of `out` do not fit, a client's number is negative, or a value
        does not fit into the type that JAX will use.
      OSError: if a file cannot be read, or what was read is damaged.
    """
    clients = checked_array(
      "clients", clients, "[C]", of_integers=True, interval="[0, inf)"
    )
    # Numbers that are no client begin and end at N.
    clients = np.minimum(clients, self.num_clients).astype(np.int64)
    begins, ends = self._offsets[clients], self._offsets[clients + 1]
    stops = np.cumsum(ends - begins)
    total = int(stops[-1]) if len(stops) else 0
    if not total <= capacity <= MAX_INT32:
      raise ValueError(
        f"capacity={capacity}: must be in [{total}, {MAX_INT32}], as these "
        f"{len(clients)} clients have {total} examples"
      )
    rows = self._rows(capacity, out)
    runs, is_client = _runs(begins, ends), clients < self.num_clients
    for name, file in self._files.items():
      file.read(runs, rows[name])
      digests = population_files.checksums_of(rows[name], stops)
      expected = np.zeros_like(digests)  # What is no client has no bytes.
      expected[is_client] = self.digests[name][clients[is_client]]
      if (digests != expected).any():
        raise OSError(
          f"{str(file.path)!r} is damaged: it does not hold what was written "
          f"of client {clients[np.argmax(digests != expected)]}; write the "
          "population again"
        )
      # The folder may have been written where JAX had types of 64 bits.
      check_fits(f"{str(file.path)!r}: what was read", rows[name][:total])
      rows[name][total:] = 0
    return rows, (stops - (ends - begins)).astype(np.int32)

  def load(self, clients: np.ndarray | None = None) -> ClientData:
    """Reads some clients into memory.

    Args:
      clients: [C] integers in [0, M); None for all.

    Returns:
      These clients in the given order: client i of the result is `clients[i]`.

    Raises:
      ValueError: if these are no whole numbers, one is out of range, no client
        has an example, or as `gather`.
      OSError: as `gather`.
    """
    if clients is None:
      clients = np.arange(self.num_clients)
    interval = f"[0, {self.num_clients - 1}]"
    clients = checked_array(
      "clients", clients, "[C]", of_integers=True, interval=interval
    ).astype(np.int64)
    sizes = self.sizes[clients]
    total = int(sizes.sum(dtype=np.int64))
    memory.check_memory(
      f"{str(self.folder)!r}: {len(clients)} clients take",
      total * (self.example_bytes + 16),
    )
    if not total:
      raise ValueError(
        f"clients: must have an example, but these {len(clients)} own none"
      )
    examples, _ = self.gather(clients, total)
    indices = lists.of_clients(np.arange(total, dtype=np.int32), sizes)
    return ClientData(examples=examples, indices=indices, sizes=sizes)

  def sample(self) -> ClientData:
    """At most 100 clients, evenly spaced, which have some examples.

    Metrics of training are measured on them. They are not drawn at random, so
    that all runs are measured on the same clients.
    """
    number = min(_NUM_SAMPLED, self.num_clients)
    clients = np.arange(number) * self.num_clients // number
    if not self.sizes[clients].any():
      clients = np.append(clients[:-1], int(np.argmax(self.sizes)))
    return self.load(clients)

  @classmethod
  @checked()
  def write(
    cls, folder: str | os.PathLike, clients: Iterable[Mapping[str, np.ndarray]]
  ) -> "Population":
    """Writes a population client by client, with one in memory at a time.

    After an error the folder is as it was before. A process that is killed
    leaves its files, but without population.npz they are no population.

    Args:
      folder: one that is new or empty.
      clients: for each client name -> [n_m, ...], finite. Names, dtypes and the
        shape of one example are the same for all clients. Labels 'y' become
        int32.

    Returns:
      The population, opened.

    Raises:
      ValueError: if the folder is not empty, the fields of a client differ from
        those of the first, a number is not finite, or no client has an example.
      OSError: if a file cannot be written, such as on a full disk.
    """
    return cls._write(folder, population_files.each_checked(clients))

  @classmethod
  @checked()
  def of_client_data(
    cls, folder: str | os.PathLike, data: ClientData
  ) -> "Population":
    """Writes clients that are in memory, many at once; see `write`."""
    examples = checked_examples(data.examples)
    rows, sizes = data.owned_rows(), np.asarray(data.sizes)
    stops = np.cumsum(sizes, dtype=np.int64)
    pool_bytes = sum(values.nbytes for values in examples.values())
    num_bytes = pool_bytes * len(rows) // data.num_examples

    def part(clients):
      span = rows[stops[clients[0]] - sizes[clients[0]] : stops[clients[-1]]]
      return {n: values[span] for n, values in examples.items()}, sizes[clients]

    return cls._write(folder, map(part, _groups(len(sizes), num_bytes)))

  @classmethod
  def _write(cls, folder, parts):
    folder = cls.check_new(folder)
    population_files.write(folder, parts)
    return cls.open(folder)

  @staticmethod
  def check_new(folder: str | os.PathLike) -> pathlib.Path:
    """Checks that a population may be written to a folder; writes nothing.

    Args:
      folder: one that is new, empty, or has notes of a population alone.

    Returns:
      The folder's path.

    Raises:
      ValueError: if it is a file, holds anything, or cannot be written.
    """
    folder, all_names = folders.contents("population_dir", folder)
    # A kill may have left notes that are not whole.
    unfinished = json_files.beside(folder / population_files.NOTES).name
    notes = population_files.NOTES, unfinished
    names = [name for name in all_names if name not in notes]
    if population_files.INDEX in all_names:
      names = all_names
    folders.check_empty("population_dir", folder, names)
    return folder

  def __reduce__(self):
    # Pickled for another process, which opens the files anew.
    return Population.open, (self.folder,)

  def _rows(
    self, capacity: int, out: Mapping[str, np.ndarray] | None
  ) -> dict[str, np.ndarray]:
    """name -> [capacity, ...], new arrays or those of `out`, checked."""
    rows = {}
    for name, (dtype, shape) in self.fields.items():
      shape = (capacity, *shape)
      array = np.empty(shape, dtype) if out is None else out.get(name)
      rows[name], view = array, np.asarray(array)
      is_fit = view.flags.c_contiguous and view.flags.writeable
      if not is_fit or (view.dtype, view.shape) != (dtype, shape):
        raise ValueError(
          f"out[{name!r}]: must be {dtype} {shape}, writable and in C order, "
          f"got {view.dtype} {view.shape}"
        )
    return rows


def _groups(num_clients: int, num_bytes: int) -> list[np.ndarray]:
  """Neighbours whose examples, on average, have as many bytes as fit at once.

  Args:
    num_clients: M.
    num_bytes: of the examples of all.
  """
  num_groups = min(num_clients, 1 + num_bytes // _BYTES_AT_ONCE)
  return np.array_split(np.arange(num_clients), num_groups)


def _runs(begins: np.ndarray, ends: np.ndarray) -> list[tuple[int, int]]:
  """The rows [begin, end) of clients; adjacent ranges are merged into one."""
  is_owner = begins < ends
  begins, ends = begins[is_owner], ends[is_owner]
  is_break = begins[1:] != ends[:-1]
  firsts = np.concatenate([begins[:1], begins[1:][is_break]])
  lasts = np.concatenate([ends[:-1][is_break], ends[-1:]])
  return list(zip(firsts.tolist(), lasts.tolist(), strict=True))
