"""CSV files that callers give: what is read, and what is one line."""

import gzip
import os

import numpy as np
import pytest

from fedjax_opt import schedules, systems
from fedjax_opt.checks import memory
from fedjax_opt.files import csv_files
from tests.helpers.refusals import refusal

COLUMNS = ("a", "b")


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz"])
def test_numbers_of_columns(name, tmp_path):
  path, text = tmp_path / name, b"b,c,a\n1,x,2\n3,y,\n"
  path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
  frame, (a, b) = csv_files.read(path, COLUMNS)
  np.testing.assert_array_equal(a, [2, np.nan])
  np.testing.assert_array_equal(b, [1, 3])
  assert frame["c"].tolist() == ["x", "y"]


@pytest.mark.parametrize(
  ("text", "message"),
  [
    ("a,b\n9,1,2\n8,1,2\n", "cannot be read (rows have more values"),
    ("a,b,a\n1,2,3\n", "two columns are named 'a'"),
    (f"a,b\n{'9' * 400},2\n", "cannot be read (int too large"),
    ("a\n1\n", "has no column b; must have a, b"),
  ],
)
@pytest.mark.parametrize("engine", ["c", "python"])
def test_what_would_be_misread_is_refused(text, message, engine, tmp_path):
  """A cell too many would shift all columns by one."""
  path = tmp_path / "t.csv"
  path.write_text(text)
  line = refusal(csv_files.read, path, COLUMNS, engine=engine)
  assert line.startswith(f"{path}: {message}")


def test_a_cell_that_is_empty_is_none_too_many(tmp_path):
  (tmp_path / "t.csv").write_text("a,b\n1,2,\n3,4,\n")
  _, (a, b) = csv_files.read(tmp_path / "t.csv", COLUMNS)
  assert (a.tolist(), b.tolist()) == ([1, 3], [2, 4])


@pytest.mark.parametrize(
  "read",
  [
    systems.from_csv,
    lambda path: systems.periods(path, 3),
    schedules.replay,
  ],
)
@pytest.mark.parametrize("kind", ["pipe", "device", "address"])
def test_what_is_no_file_is_not_waited_for(read, kind, tmp_path):
  path = tmp_path / "t.csv"
  if kind == "pipe":
    os.mkfifo(path)
  elif kind == "device":
    path.symlink_to("/dev/zero")
  else:  # Which is not asked for.
    path = "http://localhost:9/t.csv"
  message = refusal(read, path)
  assert "cannot be read (" in message
  assert "onnection" not in message


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz"])
def test_a_table_larger_than_the_memory(name, tmp_path, monkeypatch):
  path, text = tmp_path / name, b"a,b\n" + b"1,2\n" * 1000
  path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
  monkeypatch.setattr(memory, "memory_bytes", lambda: 10_000)
  message = refusal(csv_files.read, path, COLUMNS)
  assert f"{path}: cannot be read (it may take" in message
