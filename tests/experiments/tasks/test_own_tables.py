"""Tasks of one's own tables, from a flag to what is measured."""

import jax
import numpy as np
import pandas as pd
import pytest
from sklearn.utils.class_weight import compute_class_weight

from experiments.single_run import job, loading
from experiments.tasks import base
from fedjax_opt.checks import memory
from tests.helpers.commands import call, spec_of, table
from tests.helpers.refusals import refusal

RNG = np.random.default_rng(0)
N = 120


@pytest.fixture(scope="module")
def file(tmp_path_factory):
  """A table of patients: what is predicted follows from the age."""
  age = RNG.normal(50, 10, N)
  frame = pd.DataFrame(
    {
      "age": age,
      "sex": RNG.choice(["f", "m"], N),
      "hospital": RNG.choice(list("abcd"), N),
      "visit": RNG.permutation(N),
      "sick": np.where(age > 60, "yes", "no"),
      "cost": 1000 * age + RNG.normal(size=N),
      "fever": (age > 55).astype(int),
      "cough": (age < 45).astype(int),
    }
  )
  path = tmp_path_factory.mktemp("own") / "patients.csv"
  frame.to_csv(path, index=False)
  return path


LABELS = ("sick", "cost", "fever", "cough")


def flags(file, label, *arguments):
  ignored = {*LABELS, "visit", "hospital"} - set(label.split(","))
  columns = [flag.split("=")[1] for flag in arguments if "_column=" in flag]
  return [
    "--task=table_linear",
    f"--data_file={file}",
    f"--label_column={label}",
    f"--ignore_columns={','.join(sorted(ignored - set(columns)))}",
    "--batch_size=8",
    *arguments,
  ]


def test_names_of_rows_are_refused(tmp_path):
  rows = range(200)
  frame = pd.DataFrame({"y": [row % 2 for row in rows]})
  frame["row_id"] = [f"r{row}" for row in rows]
  path = tmp_path / "rows.csv"
  frame.to_csv(path, index=False)
  flags = "--task=table_linear", f"--data_file={path}", "--label_column=y"
  line = refusal(lambda: loading.load_data(spec_of(*flags)))
  assert line == (
    f"data_file={str(path)!r}: column 'row_id': has 200 different texts, more "
    "than 100; leave it out with ignore_columns='row_id'"
  )


def test_numbers_of_rows_are_noted(file):
  flags = (
    "--task=table_linear", f"--data_file={file}", "--label_column=sick",
    "--ignore_columns=hospital,fever,cough,cost",
  )  # fmt: skip
  notes = loading.load_data(spec_of(*flags)).task.notes
  assert notes[3:] == (
    "note: visit has another whole number in each row; if it only identifies "
    "rows, leave it out: --ignore_columns=visit",
  )


def test_names_of_classes_that_may_mean_the_same_are_noted(tmp_path):
  path = tmp_path / "words.csv"
  frame = pd.DataFrame({"a": range(20), "y": ["T", "true", "True", "no"] * 5})
  frame.assign(a=frame["a"] / 2).to_csv(path, index=False)
  flags = "--task=table_linear", f"--data_file={path}", "--label_column=y"
  assert loading.load_data(spec_of(*flags)).task.notes[3:] == (
    "note: T, True and true are different classes; if they mean the same, "
    "write them alike",
  )


def test_inputs_are_standardized_by_what_trains(file):
  loaded = loading.load_data(
    spec_of(*flags(file, "sick", "--client_column=hospital"))
  )
  clients, task = loaded.clients[0], loaded.task
  assert clients.num_clients == 4
  assert (task.client_names, task.label_names) == (tuple("abcd"), ("no", "yes"))
  x = clients.pooled()["x"]
  np.testing.assert_allclose(x.mean(0), 0, atol=1e-5)
  np.testing.assert_allclose(x.std(0), 1, atol=1e-5)
  sizes = [len(task.test["y"]), len(task.validation["y"]), len(x)]
  assert sizes[0] == N // 5
  assert sum(sizes) == N
  assert abs(task.test["x"].mean(0)).max() > 1e-3


def test_rows_that_are_held_out_change_nothing_that_trains(file, tmp_path):
  frame = pd.read_csv(file)
  late = frame["visit"] >= N - N // 5
  other = tmp_path / "other.csv"
  frame.assign(
    age=np.where(late, 1e4, frame["age"]), cost=np.where(late, 7, frame["cost"])
  ).to_csv(other, index=False)
  tasks = [
    loading.load_data(spec_of(*flags(f, "cost", "--time_column=visit"))).task
    for f in (file, other)
  ]
  np.testing.assert_array_equal(tasks[0].train["x"], tasks[1].train["x"])
  params, batch = tasks[0].init(jax.random.key(0)), tasks[0].train
  losses = [task.loss_fn(params, batch, None) for task in tasks]
  np.testing.assert_array_equal(*losses)
  assert (tasks[0].test["x"] != tasks[1].test["x"]).any()


def test_balanced_weights_are_those_of_scikit_learn(file):
  plain, balanced = (
    loading.load_data(
      spec_of(*flags(file, "sick", "--num_clients=3", f"--class_weights={w}"))
    ).task
    for w in ("none", "balanced")
  )
  params, y = plain.init(jax.random.key(0)), plain.train["y"]
  ratio = balanced.loss_fn(params, plain.train, None) / plain.loss_fn(
    params, plain.train, None
  )
  weights = compute_class_weight("balanced", classes=np.unique(y), y=y)
  np.testing.assert_allclose(ratio, weights[y], rtol=1e-5)


def test_examples_for_choices_are_held_out_once(file):
  of_clients = ("--client_column=hospital", "--algorithm=ditto")
  loaded = loading.load_data(spec_of(*flags(file, "sick", *of_clients)))
  assert loaded.task.validation is None
  assert loaded.client_parts.per_client[0].validation.sizes.all()


def test_settings_are_chosen_by_a_score(file):
  auc_flags = ("--metrics=f1,auc", "--select_metric=auc", "--num_clients=3")
  spec = spec_of(*flags(file, "sick", *auc_flags))
  criterion = job.criterion_of(spec, loading.load_data(spec).task)
  assert (criterion.metric, criterion.direction) == ("validation_auc", "max")
  accuracy_flags = ("--num_clients=3", "--select_metric=accuracy")
  spec = spec_of(*flags(file, "fever,cough", *accuracy_flags))
  criterion = job.criterion_of(spec, loading.load_data(spec).task)
  assert criterion.metric == "validation_accuracy"
  for arguments in (auc_flags[1:], (*auc_flags, "--select_on=train")):
    spec = spec_of(*flags(file, "sick", *arguments))
    with pytest.raises(ValueError, match="select_metric='auc': must be"):
      job.criterion_of(spec, loading.load_data(spec).task)


def test_a_large_file_is_announced(file, monkeypatch, capsys):
  arguments = flags(file, "sick", "--num_clients=3")
  loading.load_data(spec_of(*arguments))
  assert not capsys.readouterr().err
  monkeypatch.setattr(base, "_MAX_SILENT_BYTES", 1_000)
  loading.load_data(spec_of(*arguments))
  size = memory.size_text(file.stat().st_size)
  assert capsys.readouterr().err == f"reading {file}, {size} ...\n"


@pytest.mark.parametrize(
  ("label", "others", "measured", "absent"),
  [
    (
      "sick",
      ("--metrics=balanced_accuracy,auc", "--class_weights=balanced"),
      {"test_accuracy", "test_balanced_accuracy", "validation_auc"},
      {"test_f1"},
    ),
    ("cost", ("--metrics=r2,mae",), {"test_r2", "test_mae"}, {"test_accuracy"}),
    ("fever,cough", ("--metrics=f1",), {"test_accuracy", "test_f1"}, set()),
  ],
)
@pytest.mark.default_cases("cost-others1-measured1-absent1")
def test_what_is_measured(file, label, others, measured, absent):
  spec = spec_of(*flags(file, label, "--num_clients=3", *others))
  task, clients, *_ = loading.load_data(spec)
  params = task.init(jax.random.key(0))
  metrics = task.evaluate(params, clients[0], task.test, task.validation)
  assert measured <= set(metrics)
  assert not absent & set(metrics)
  assert all(np.isfinite(value) for value in metrics.values())


def test_a_model_learns_numbers_in_their_unit(file, tmp_path):
  folder = tmp_path / "run"
  command = flags(file, "cost", "--metrics=mae,r2", "--client_column=hospital")
  command += ["--rounds=30", "--noprogress"]
  assert call(*command, f"--output_dir={folder}") == 0
  last_row = pd.read_csv(folder / "metrics.csv").iloc[-1]
  assert last_row["test_r2"] > 0.9
  assert 0 < last_row["test_mae"] < 3000  # The deviation of the cost is 10,000.


@pytest.mark.parametrize(("arguments", "message"), table("tables"))
def test_is_refused(file, arguments, message):
  table = ("--task=table_linear", f"--data_file={file}")
  load = lambda *flags: loading.load_data(spec_of(*table, *flags))
  line = refusal(load, *arguments.split())
  assert line.startswith(message.format(file=file))
