"""Gives readers files that were made to harm; prints a table.

  python -m tools.hostile_files --number=100 --seed=0

Each case runs in a process of its own, with at most 2 GB of memory beside what
the imports take, 60 seconds of CPU, and 200 in all. It must be read or be
refused in one line, and nothing that a file names may be executed.
"""

import argparse
import collections
import gzip
import io
import json
import os
import pathlib
import pickle
import random
import struct
import subprocess
import sys
import tempfile
import zipfile

import numpy as np
import PIL.Image
import pyarrow
from pyarrow import parquet

_CHILD = """
import resource, sys
import fedjax_opt as fo
from experiments import compare, records, run
from fedjax_opt.data import npz_files
from fedjax_opt.data.population import Population
import pathlib
now = int(open("/proc/self/statm").read().split()[0]) * 4096
resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
resource.setrlimit(resource.RLIMIT_AS, (now + (2 << 30),) * 2)
kind, path = sys.argv[1], pathlib.Path(sys.argv[2])
readers = {
  "npz": lambda: npz_files.read(path),
  "population": lambda: Population.open(path).load(),
  "run": lambda: fo.load_run(path),
  "records": lambda: records.read(path),
  "table": lambda: fo.datasets.tables.read_table(path, "y"),
  "images": lambda: fo.datasets.image_folders.image_folder(path),
  "flags": lambda: run.main(["run", f"--flagfile={path}"]),
  "study": lambda: compare.main(["compare", f"--study={path}"]),
  "task": lambda: run.main(
    ["run", "--task=npz_mlp", f"--data_file={path}", "--rounds=0"]),
}
try:
  readers[kind]()
except (ValueError, OSError, MemoryError, TypeError) as error:
  print("error:", *str(error).split("\\\\n"), file=sys.stderr)
"""


KINDS = (
  *("npz", "task", "population", "run", "records"),
  *("flags", "study", "table", "images"),
)


class _Harm:
  def __init__(self, mark):
    self._mark = mark

  def __reduce__(self):
    return os.system, (f"touch {self._mark}",)


def _npy(header, data=b""):
  text = header.encode().ljust(118) + b"\n"
  return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data


def _npz(**members):
  file = io.BytesIO()
  with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
    for name, content in members.items():
      archive.writestr(f"{name}.npy", content)
  return file.getvalue()


def _pickled(mark):
  file = io.BytesIO()
  np.save(file, np.array([_Harm(mark)], object), allow_pickle=True)
  return file.getvalue()


def _shape(draw):
  size = draw.choice([10**6, 10**9, 10**12, 2**63, -1])
  shape = draw.choice([f"({size},)", f"({size}, {size})", f"(1, {size})"])
  kind = draw.choice(["<f4", "<i8", "|O", "<U1000000", "|V2147483647"])
  return f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}}}"


def _deep(draw):
  depth = draw.choice([1_000, 100_000])
  return draw.choice(["[", '{"a":']) * depth


def _arrays(draw, mark):
  kind = draw.choice(["pickle", "header", "bomb", "noise", "brackets", "raw"])
  if kind == "pickle":
    return _npz(x=_pickled(mark), y=_pickled(mark))
  if kind == "header":
    return _npz(x=_npy(_shape(draw)), y=_npy(_shape(draw)))
  if kind == "bomb":
    return _npz(x=_npy(_shape(draw), bytes(300_000_000)))
  if kind == "brackets":
    return _npz(x=_npy("(" * draw.choice([50, 117])))
  if kind == "raw":
    return pickle.dumps(_Harm(mark))
  return draw.randbytes(draw.choice([0, 10, 10_000]))


def _texts(draw, mark):
  return draw.choice([
    lambda: _deep(draw),
    lambda: "\0" * 1000,
    lambda: "\ud800".encode("utf-8", "surrogatepass").decode("latin-1"),
    lambda: "," * 5_000_000,
    lambda: "9" * 1_000_000,
    lambda: f"{'a.' * 40_000}a = 1",
    lambda: f"!!python/object/apply:os.system ['touch {mark}']",
    lambda: json.dumps({"files": {"../../x": [{"size": 1e308, "crc32": -1}]}}),
    lambda: '{"a": NaN, "points": [' + "{}," * 100_000 + "{}]}",
    lambda: "--seed=" + ",".join(map(str, range(200_000))),
  ])().encode("utf-8", "replace")  # fmt: skip


def _table(draw, path):
  """Writes a table; returns its path."""
  kind = draw.choice(["wide", "gz", "words", "parquet", "constant", "pipe"])
  if kind == "pipe":
    os.mkfifo(path := path.with_suffix(".csv"))
  elif kind == "gz":
    path = path.with_suffix(".csv.gz")
    path.write_bytes(gzip.compress(b"x,y\n" + b"1,2\n" * 20_000_000, 1))
  elif kind == "constant":
    path = path.with_suffix(".parquet")
    array = pyarrow.nulls(100_000_000, pyarrow.int8()).fill_null(1)
    parquet.write_table(pyarrow.table(dict.fromkeys("abcdefghy", array)), path)
  elif kind == "parquet":
    path = path.with_suffix(".parquet")
    path.write_bytes(b"PAR1" + draw.randbytes(10_000) + b"PAR1")
  else:
    path = path.with_suffix(".csv")
    names = "".join(f"x{i}," for i in range(200_000))
    wide = f"{names}y\n{'1,' * 200_000}0\n{'2,' * 200_000}1\n"
    words = "x,y\n" + "".join(f"w{i},{i % 2}\n" for i in range(200_000))
    path.write_text(wide if kind == "wide" else words)
  return path


def _images(draw, path):
  """Writes a folder of images of two classes, one of them hostile."""
  for name in "ab":
    (path / name).mkdir(parents=True)
    PIL.Image.new("L", (4, 4)).save(path / name / "1.png")
  bad = path / "a" / "2.png"
  kind = draw.choice(["pipe", "header", "postscript", "large", "noise"])
  if kind == "pipe":
    os.mkfifo(bad)
  elif kind == "postscript":
    bad.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n")
  elif kind == "large":
    PIL.Image.new("L", (9_000, 9_000)).save(bad)
  else:
    sizes = struct.pack(">II", 1 << 30, 1 << 30) + b"\x08\0\0\0\0"
    good = (path / "b" / "1.png").read_bytes()
    header = good[:16] + sizes + good[29:]
    bad.write_bytes(header if kind == "header" else draw.randbytes(1_000))


def make(draw, folder):
  """Writes a case; returns the reader, its path and what shows harm."""
  kind = draw.choice(KINDS)
  mark, path = folder / "harmed", folder / "file"
  if kind in ("npz", "task"):
    path.write_bytes(_arrays(draw, mark))
  elif kind == "table":
    path = _table(draw, path)
  elif kind == "images":
    _images(draw, path)
  elif kind == "population":
    path.mkdir()
    (path / "population.npz").write_bytes(_arrays(draw, mark))
    (path / "validation.json").write_bytes(_texts(draw, mark))
  elif kind == "run":
    path.mkdir()
    (path / "config.json").write_text('{"rounds": 1}')
    names = ("config.json", "summary.json", "metrics.csv", "digests.json",
             "params.safetensors")  # fmt: skip
    for name in draw.sample(names, 2):
      if draw.random() < 0.2:
        (path / name).unlink(missing_ok=True)
        os.mkfifo(path / name)
      else:
        (path / name).write_bytes(_texts(draw, mark))
  else:
    path.write_bytes(_texts(draw, mark))
  return kind, path, mark


def outcome(kind, path, mark):
  """'read', 'refused', or what is wrong."""
  try:
    done = subprocess.run(
      [sys.executable, "-c", _CHILD, kind, str(path)],
      env=os.environ | {"JAX_PLATFORMS": "cpu"},
      capture_output=True,
      text=True,
      errors="replace",
      timeout=200,
      check=False,
    )
  except subprocess.TimeoutExpired:
    return "more than 200 s"
  if mark.exists():
    return "executed"
  lines = [n for n in done.stderr.splitlines() if not n.startswith("WARN")]
  lines = [n for n in lines if n[:1] not in "IWE" or n.startswith("error")]
  if "Traceback" in done.stderr or done.returncode:
    return f"status {done.returncode}: {done.stderr[-500:]}"
  return "refused" if any("error:" in line for line in lines) else "read"


def main():
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("--number", type=int, default=100)
  parser.add_argument("--seed", type=int, default=0)
  options = parser.parse_args()
  counts = collections.Counter()
  for i in range(options.number):
    with tempfile.TemporaryDirectory() as folder:
      case = make(random.Random(f"{options.seed} {i}"), pathlib.Path(folder))
      result = outcome(*case)
    counts[case[0], result.partition(":")[0]] += 1
    if result not in ("read", "refused"):
      print(f"{i} {case[0]}: {result}", flush=True)
  for (kind, result), number in sorted(counts.items()):
    print(f"{kind:12} {result:20} {number}")
  return int(any(result not in ("read", "refused") for _, result in counts))


if __name__ == "__main__":
  sys.exit(main())
