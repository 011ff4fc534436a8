"""Files that ask for more than they hold, and readers of random bytes."""

import sqlite3
import zipfile
import zlib

import numpy as np
import pytest

from fedjax_opt import ClientData, Population
from fedjax_opt.data import memory, npz_files
from fedjax_opt.datasets import femnist

_MB = 1_000_000


def npz(path, shape, num_bytes, dtype="|u1"):
  """A file of zeros, whose header says this shape."""
  header = {"descr": dtype, "fortran_order": False, "shape": shape}
  with (
    zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file,
    file.open("x.npy", "w") as array,
  ):
    np.lib.format.write_array_header_1_0(array, header)
    for _ in range(num_bytes // _MB):
      array.write(bytes(_MB))
    array.write(bytes(num_bytes % _MB))
  return path


def refusal(function, *arguments):
  with pytest.raises(ValueError) as caught:  # noqa: PT011
    function(*arguments)
  (line,) = str(caught.value).splitlines()
  return line


def test_an_npz_file_that_declares_more_than_it_holds(tmp_path):
  path = npz(tmp_path / "a.npz", (10**13,), 64)
  assert refusal(npz_files.read, path) == (
    f"{path} declares 10 TB for 'x', but holds 192 bytes of it; a NumPy .npz "
    "file of plain arrays is needed"
  )


def test_an_npz_file_may_be_next_to_nothing(tmp_path):
  """Sparse data compress nearly as well as zeros, which give 1000:1."""
  path = npz(tmp_path / "a.npz", (300 * _MB,), 300 * _MB)
  assert npz_files.names(path) == ["x"]


def test_an_npz_file_larger_than_the_memory(tmp_path, monkeypatch):
  path = tmp_path / "a.npz"
  np.savez(path, x=np.zeros(_MB, np.uint8))
  monkeypatch.setattr(memory, "memory_bytes", lambda: _MB)
  assert refusal(npz_files.read, path) == (
    f"{path} decompresses to 1 MB of memory; must be at most 500 kB, half of "
    "this machine's"
  )
  monkeypatch.setattr(memory, "memory_bytes", lambda: None)
  assert npz_files.read(path)["x"].shape == (_MB,)


def fedjax_file(path, record=b"", table=None):
  with sqlite3.connect(path) as file:
    file.execute(
      table or "CREATE TABLE federated_data (client_id BLOB, data BLOB)"
    )
    if table is None:
      file.execute("INSERT INTO federated_data VALUES (?, ?)", (b"0:w", record))
  file.close()


def fedjax_pair(folder, *arguments):
  pytest.importorskip("msgpack")
  for split in ("train", "test"):
    fedjax_file(folder / f"federated_emnist_{split}.sqlite", *arguments)
  return folder / "federated_emnist_train.sqlite"


def test_a_femnist_record_that_decompresses_to_too_much(tmp_path, monkeypatch):
  monkeypatch.setattr(femnist, "_LARGEST_RECORD", _MB)
  path = fedjax_pair(tmp_path, zlib.compress(bytes(3 * _MB)))
  assert refusal(femnist.load, tmp_path) == (
    f"{path}: writer w cannot be read (ValueError: its record is cut, or "
    "larger than 1 MB); download the file again"
  )


def test_a_view_is_no_femnist_table(tmp_path):
  """It would compute its rows, here without end."""
  path = fedjax_pair(
    tmp_path,
    b"",
    "CREATE VIEW federated_data AS WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL "
    "SELECT n + 1 FROM t) SELECT n AS client_id, n AS data FROM t",
  )
  assert refusal(femnist.load, tmp_path) == (
    f"{path}: federated_data is a view; must be a table, which holds its rows"
  )


def test_femnist_ids_that_are_no_names(tmp_path, monkeypatch):
  path = fedjax_pair(tmp_path)
  with sqlite3.connect(path) as file:
    # bytes(10**12) would be so many zeros.
    file.execute("UPDATE federated_data SET client_id = 1000000000000")
  file.close()
  message = refusal(femnist.load, tmp_path)
  assert message.endswith("it has 1 clients of 0 writers")
  monkeypatch.setattr(femnist, "_MOST_WRITERS", 0)
  message = refusal(femnist.load, tmp_path)
  assert message == f"{path}: must have at most 0 writers; it has more"


def test_a_femnist_archive_that_fills_the_disk(tmp_path, monkeypatch):
  import lzma

  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
  monkeypatch.setattr(femnist, "_LARGEST_FILE", _MB)
  path = tmp_path / femnist.TFF_FILE
  path.write_bytes(lzma.compress(bytes(3 * _MB)))
  assert "(it is larger than 1 MB)" in refusal(femnist.load, path)
  assert list((tmp_path / "cache").rglob("*.*")) == []


def test_a_population_larger_than_the_memory(tmp_path, monkeypatch):
  sizes = np.eye(1, _MB, dtype=np.int32)[0] * 1000
  examples = {"x": np.zeros((1000, 784), np.float32)}
  data = ClientData(examples, np.arange(1000)[None], sizes[:1])
  whole = Population.of_client_data(tmp_path, data)
  assert whole.example_bytes == 4 * 784
  monkeypatch.setattr(memory, "memory_bytes", lambda: 2 * _MB)
  assert refusal(whole.load) == (
    f"'{tmp_path}': 1 clients take 3.15 MB of memory; must be at most 1 MB, "
    "half of this machine's"
  )
  index = tmp_path / "population.npz"
  np.savez(index, sizes=sizes)
  assert refusal(Population.open, tmp_path) == (
    f"{index} decompresses to 4 MB of memory; must be at most 1 MB, half of "
    "this machine's"
  )


def test_sizes_for_people():
  texts = [memory.size_text(n) for n in (0, 999, 1500, 2**31, 10**13, 10**18)]
  assert texts == ["0 bytes", "999 bytes", "1.5 kB", "2.15 GB", "10 TB",
                   "1e+06 TB"]  # fmt: skip
