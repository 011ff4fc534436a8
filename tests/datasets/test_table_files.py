"""Tables become examples, and what cannot is one line."""

import datetime
import decimal
import os

import numpy as np
import pandas as pd
import pytest
from sklearn import datasets

from fedjax_opt.datasets import table_columns, tables
from tests.helpers import refusals
from tests.helpers.refusals import refusal
from tests.helpers.tables_of_calls import read_cases

FRAME = pd.DataFrame(
  {
    "age": [30, 31, 29, 55, 56, 57],
    "town": ["Rome", "Oslo", "Rome", "Oslo", "Oslo", "Rome"],
    "smokes": [True, False, True, False, False, True],
    "day": pd.date_range("2020-01-01", periods=6)[[0, 3, 1, 5, 4, 2]],
    "hospital": ["a", "b", "a", "b", "b", "a"],
    "sick": ["yes", "no", "no", "yes", "yes", "no"],
    "weight": [70.5, 60.0, 80.25, 90.0, 65.0, 77.0],
    "fever": [0, 1, 1, 0, 1, 1],
    "cough": [1, 1, 0, 0, 1, 0],
  }
)
INPUTS = ["age", "town", "smokes"]
_NAMES = [f"x{i}" for i in range(30_000)]


def _of(label, **options):
  roles = [options.get("client"), options.get("time")]
  columns = {*INPUTS, *roles, *([label] if isinstance(label, str) else label)}
  return tables.from_frame(
    FRAME[[column for column in FRAME if column in columns]], label, **options
  )


def test_words_are_classes_and_columns_of_0_and_1():
  table = _of("sick", client="hospital")
  assert table.kind == "classes"
  assert table.names == ("no", "yes")
  assert table.columns == ("age", "town=Oslo", "town=Rome", "smokes")
  assert table.is_number.tolist() == [True, False, False, False]
  np.testing.assert_array_equal(table.examples["y"], [1, 0, 0, 1, 1, 0])
  np.testing.assert_array_equal(table.examples["x"][0], [30, 0, 1, 1])
  assert table.client_ids.tolist() == FRAME["hospital"].tolist()


@pytest.mark.parametrize(
  ("label", "kind", "shape", "given_kind"),
  [
    ("sick", "classes", (6,), None),
    ("fever", "classes", (6,), None),
    ("fever", "numbers", (6, 1), "numbers"),
    ("weight", "numbers", (6, 1), None),
    (["fever", "cough"], "labels", (6, 2), None),
    (["fever", "weight"], "numbers", (6, 2), None),
  ],
)
def test_the_kind_of_what_is_predicted(label, kind, shape, given_kind):
  table = _of(label, kind=given_kind)
  assert table.kind == kind
  assert table.examples["y"].shape == shape
  if label != "sick":
    expected = FRAME[label].to_numpy().reshape(shape)
    np.testing.assert_array_equal(table.examples["y"], expected)


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "tsv", "parquet"])
def test_files(tmp_path, ending):
  path = tmp_path / f"t.{ending}"
  if ending == "parquet":
    pytest.importorskip("pyarrow")
    FRAME.to_parquet(path)
  else:
    FRAME.to_csv(path, index=False, sep="\t" if ending == "tsv" else ",")
  table = tables.read_table(path, "sick", client="hospital", time="day")
  target = tables.from_frame(FRAME, "sick", client="hospital", time="day")
  np.testing.assert_array_equal(table.examples["x"], target.examples["x"])
  np.testing.assert_array_equal(np.argsort(table.time), np.argsort(target.time))


@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_columns_are_divided_by_what_the_first_line_has(tmp_path, mark):
  path = tmp_path / "t.csv"
  lines = [f"a{mark}b{mark}y", f'1{mark}"u\nv"{mark}no', f"2{mark}w {mark} yes"]
  path.write_bytes("\ufeff".encode() + "\r\n".join(lines).encode())
  table = tables.read_table(path, "y")
  assert table.columns == ("a", "b=u\nv", "b=w")
  assert table.names == ("no", "yes")
  np.testing.assert_array_equal(table.examples["x"], [[1, 1, 0], [2, 0, 1]])


@pytest.mark.parametrize(
  ("text", "columns"),
  [
    ("\n \na;y\n1;2\n", ["a", "y"]),
    ('"a;b",y\n1,2\n', ["a;b", "y"]),
    ("\ufeffa\ty\n1\t2\n", ["a", "y"]),
    ("a\n1\n", ["a"]),
    # Longer than a cell may be for Python's reader.
    (f"{','.join(_NAMES)}\n{'1,' * 29_999}1\n", _NAMES),
  ],
  ids=["blank", "quoted", "mark", "one", "many"],
)
def test_the_line_of_names(text, columns, tmp_path):
  (tmp_path / "t.csv").write_text(text, "utf-8")
  assert tables.read_frame(tmp_path / "t.csv").columns.tolist() == columns


def test_two_clients_are_not_one_number(tmp_path):
  path = tmp_path / "t.csv"
  path.write_text("who,a,y\n7,1,no\n 7 ,2,no\n007,3,yes\n")
  message = refusal(tables.read_table, path, "y", client="who")
  assert "client='who': '7' and '007' are one number; write a le" in message


def test_types_of_databases():
  frame = pd.DataFrame(
    {
      "price": [
        decimal.Decimal("1.5"),
        decimal.Decimal(2),
        decimal.Decimal(10) ** 30,
      ],
      "kind": pd.Categorical(["u", "v", "u"], ["u", "v", "w"]),
      "count": pd.array([1, 2, 3], "Int64"),
      "known": pd.Series([True, False, True], dtype=object),
      "day": [datetime.date(year, 1, 1) for year in (2020, 1066, 9999)],
      "y": [1.0, 0.0, 1.0],
    }
  )
  table = tables.from_frame(frame, "y", time="day")
  assert table.columns == ("price", "kind=u", "kind=v", "count", "known")
  assert table.is_number.tolist() == [True, False, False, True, False]
  expected = [[1.5, 1, 0, 1, 1], [2, 0, 1, 2, 0], [1e30, 1, 0, 3, 1]]
  np.testing.assert_allclose(table.examples["x"], expected)
  assert table.names == ("0", "1")
  assert np.argsort(table.time).tolist() == [1, 0, 2]


def test_dates_without_dashes():
  days = [f"202002{day:02d}" for day in (3, 1, 10, 2, 12, 11)]
  table = tables.from_frame(FRAME.assign(day=days), "fever", time="day")
  assert np.argsort(table.time).tolist() == [1, 3, 0, 2, 5, 4]


def test_the_latest_rows_of_each_client_are_the_test_part():
  table = tables.from_frame(FRAME, "sick", client="hospital", time="day")
  train, test = table.split(0.34)
  for client in "ab":
    early, late = (p.time[p.client_ids == client] for p in (train, test))
    assert len(late) == 1
    assert early.max() < late.min()
  assert len(train.examples["x"]) == 4


def test_without_a_time_each_class_gives_its_share():
  table = tables.from_bunch(datasets.load_iris())
  train, test = table.split(0.2, seed=3)
  assert np.bincount(test.examples["y"]).tolist() == [10, 10, 10]
  rows = np.concatenate([train.examples["x"], test.examples["x"]])
  x = table.examples["x"]
  np.testing.assert_array_equal(rows[np.lexsort(rows.T)], x[np.lexsort(x.T)])


def test_columns_of_numbers_are_converted_in_parts(monkeypatch):
  """The entries are in the columns' order, whatever the parts."""
  rng = np.random.default_rng(3)
  frame = pd.DataFrame(rng.normal(size=(30, 7)), columns=list("abcdefg"))
  frame["y"], frame["b"] = np.arange(30) % 2, list("uv") * 15
  frame["d"] = frame["d"] > 0
  table = tables.from_frame(frame, "y")
  assert table.columns == ("a", "b=u", "b=v", *"cdefg")
  np.testing.assert_array_equal(table.is_number, [1, 0, 0, 1, 0, 1, 1, 1])
  for i, name in enumerate(table.columns):
    if name in frame:
      column = frame[name].to_numpy(np.float32)
      np.testing.assert_array_equal(table.examples["x"][:, i], column)
  monkeypatch.setattr(table_columns, "_BYTES_AT_ONCE", 2 * 8 * 30)
  parts = tables.from_frame(frame, "y")
  np.testing.assert_array_equal(parts.examples["x"], table.examples["x"])
  assert parts.columns == table.columns
  frame.loc[4, "f"] = np.inf
  message = refusal(lambda: tables.from_frame(frame, "y"))
  assert message == "column 'f': row 5 is infinite"


def test_scikit_learns_data():
  iris = tables.from_bunch(datasets.load_iris())
  assert iris.names == ("setosa", "versicolor", "virginica")
  assert tables.from_bunch(datasets.load_linnerud()).examples["y"].shape == (
    20, 3,
  )  # fmt: skip
  with pytest.raises(TypeError, match="must have data and target"):
    tables.from_bunch({"data": [[1]]})


def test_standardize_measures_the_training_rows_alone():
  train = {"x": np.array([[1.0, 5], [3, 5]]), "y": np.zeros(2)}
  test = {"x": np.array([[5.0, 6]])}
  train, test, none = tables.standardize(train, test, None)
  np.testing.assert_array_equal(train["x"], [[-1, 0], [1, 0]])
  np.testing.assert_array_equal(test["x"], [[3, 0]])
  assert none is None
  assert set(train) == {"x", "y"}


def test_a_constant_column_of_numbers_that_are_rounded():
  rows = np.full((50, 1), 0.1)  # Its mean is not 0.1, but for rounding.
  train, test = tables.standardize({"x": rows}, {"x": np.array([[0.2]])})
  assert not train["x"].any()
  assert not test["x"].any()
  frame = pd.DataFrame({"a": range(60), "c": [0.3] * 60, "y": [0, 1] * 30})
  assert tables.from_frame(frame, "y").examples["x"].shape == (60, 2)


def test_zero_is_one_client():
  frame = pd.DataFrame(
    {"a": range(4), "c": [0.0, -0.0, 0.5, 0.5], "y": [0, 1] * 2}
  )
  assert set(tables.from_frame(frame, "y", client="c").client_ids) == {
    "0.0",
    "0.5",
  }


MANY = pd.DataFrame({"a": [f"name {i}" for i in range(101)], "y": range(101)})
FEW = pd.DataFrame({"a": np.arange(30.0), "y": ["no", "yes"] * 15})
test_is_refused = refusals.of_table(
  "tables.txt", tables, pd=pd, FRAME=FRAME, MANY=MANY, FEW=FEW
)


@pytest.mark.parametrize(
  ("file", "message"), read_cases("datasets/bad_files.txt", "tables")
)
def test_files_that_cannot_be_read(tmp_path, file, message):
  name, content = eval(file)
  path = tmp_path / name
  if content == "folder":
    path.mkdir()
  elif content is not None:
    path.write_bytes(content)
  text = refusal(tables.read_frame, path)
  assert message in text
  assert name in text


def test_folders_of_hugging_face(tmp_path):
  pytest.importorskip("datasets.arrow_dataset")
  import datasets

  features = datasets.Features(
    {
      "age": datasets.Value("int64"),
      "sick": datasets.ClassLabel(names=["no", "yes"]),
    }
  )
  rows = {"age": [30, 31, 29], "sick": [1, 0, 0]}
  part = datasets.Dataset.from_dict(rows, features)
  part.save_to_disk(tmp_path / "part")
  table = tables.read_table(tmp_path / "part", "sick")
  assert table.names == ("no", "yes")
  np.testing.assert_array_equal(table.examples["y"], rows["sick"])
  datasets.DatasetDict(train=part).save_to_disk(tmp_path / "both")
  with pytest.raises(ValueError, match="has the parts train; give the folder"):
    tables.read_table(tmp_path / "both", "sick")


@pytest.mark.parametrize(
  ("file", "content"),
  [
    ("state.json", '{"_data_files": [{"filename": "../pipe"}]}'),
    ("dataset_dict.json", '{"splits": [".."]}'),
  ],
)
def test_a_folder_that_names_what_is_outside(file, content, tmp_path):
  """A pipe there would be waited for."""
  pytest.importorskip("datasets.arrow_dataset")
  os.mkfifo(tmp_path / "pipe")
  os.mkfifo(tmp_path / "state.json")
  (tmp_path / "saved").mkdir()
  (tmp_path / "saved" / "dataset_info.json").write_text("{}")
  (tmp_path / "saved" / file).write_text(content)
  message = refusal(tables.read_table, tmp_path / "saved", "y")
  assert f"saved: cannot be read ({file} names '.." in message
