"""Files that ask for more than they hold, random bytes, and texts of JSON."""

import os
import zipfile

import numpy as np

from fedjax_opt import ClientData, Population
from fedjax_opt.checks import memory
from fedjax_opt.data import npz_files
from fedjax_opt.files import json_files
from tests.helpers.refusals import refusal

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


def test_an_npz_file_that_declares_more_than_it_holds(tmp_path):
  # NumPy asks for all of the memory first, or as of 2.5 only for what is there.
  lines = tuple(f"cannot be read ({r}" for r in ("Unable to all", "EOF: readi"))
  for number in (10**13, 10**9):
    path = npz(tmp_path / "a.npz", (number,), 64)
    message = refusal(npz_files.read, path)
    assert message.removeprefix(f"{path}: ").startswith(lines)
    assert message.endswith("; a NumPy .npz file of plain arrays is needed")


def test_an_npz_file_may_be_next_to_nothing(tmp_path):
  """Sparse data compress nearly as well as zeros, which give 1000:1."""
  path = npz(tmp_path / "a.npz", (30 * _MB,), 30 * _MB)
  assert npz_files.names(path) == ["x"]


def test_an_npz_file_larger_than_the_memory(tmp_path, monkeypatch):
  path = tmp_path / "a.npz"
  np.savez(path, x=np.zeros(_MB, np.uint8))
  monkeypatch.setattr(memory, "memory_bytes", lambda: _MB)
  message = "it decompresses to 1 MB of memory; must be at most 500 kB, half of"
  assert f"{path}: cannot be read ({message}" in refusal(npz_files.read, path)
  monkeypatch.setattr(memory, "memory_bytes", lambda: None)
  assert npz_files.read(path)["x"].shape == (_MB,)


def test_a_population_larger_than_the_memory(tmp_path, monkeypatch):
  sizes = np.eye(1, _MB, dtype=np.int32)[0] * 1000
  examples = {"x": np.zeros((1000, 784), np.float32)}
  data = ClientData(examples, np.arange(1000)[None], sizes[:1])
  population = Population.of_client_data(tmp_path, data)
  assert population.example_bytes == 4 * 784
  monkeypatch.setattr(memory, "memory_bytes", lambda: 2 * _MB)
  message = "1 clients take 3.15 MB of memory; must be at most 1 MB, half of"
  assert f"'{tmp_path}': {message}" in refusal(population.load)
  index = tmp_path / "population.npz"
  np.savez(index, sizes=sizes)
  message = "population.npz: cannot be read (it decompresses to 4 MB of "
  assert message in refusal(Population.open, tmp_path)


def test_sizes_for_people():
  texts = [memory.size_text(n) for n in (0, 999, 1500, 2**31, 10**13, 10**18)]
  assert texts == ["0 bytes", "999 bytes", "1.5 kB", "2.15 GB", "10 TB",
                   "1e+06 TB"]  # fmt: skip


# Texts that are written whole.


def test_a_text_with_a_path_of_any_bytes(tmp_path):
  name = os.fsdecode(b"b\xff\xce\xb1")
  json_files.write_text(tmp_path / name, f"{name}, a\u03b1")
  assert (tmp_path / name).read_bytes() == "b\\udcff\u03b1, a\u03b1".encode()
