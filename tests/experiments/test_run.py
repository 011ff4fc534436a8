"""The command line as a user meets it: files, messages, exit statuses."""

import concurrent.futures
import contextlib
import csv
import io
import os
import signal
import sys
import time
from unittest.mock import Mock

import jax
import numpy as np
import pytest

from experiments.single_run import execution, extra_metrics, job, run_output
from fedjax_opt.algorithms.centralized import Optimum
from fedjax_opt.base import STREAMS
from fedjax_opt.files import json_files
from tests.helpers.commands import (
  SMALL,
  call,
  flags_of_line,
  prepare,
  read_json,
  spec_of,
  start,
  wait_for,
)
from tests.helpers.compilations import compilations

SHORT = ("--rounds=3", "--eval_every=2", "--client=sgd")
GRID = (*SMALL, *SHORT, "--client_lr=0.1,1e38", "--seed=0,1")
METRICS = {
  "train_loss",
  "train_accuracy",
  "validation_loss",
  "validation_accuracy",
  "test_loss",
  "test_accuracy",
  "train_worst_decile_accuracy",
  *(f"train_accuracy_decile_{i}" for i in range(1, 10)),
}
# Measured whatever the task: what a client has spent so far.
SPENT = {
  "gradient_evaluations",
  "bytes_down",
  "bytes_up",
  "rejected_clients",
}


def read_metrics(folder, metrics=METRICS):
  """The rows of metrics.csv, all of them whole; an empty cell is None.

  Columns of hyperparameters, which stand before the seed, are left out.
  """
  with open(folder / "metrics.csv", newline="") as file:
    header, *rows = list(csv.reader(file))
  assert header[:2] == ["point", "round"]
  first = header.index("seed") + 1
  assert set(header[first:]) == SPENT | set(metrics)
  assert all(len(row) == len(header) for row in rows)
  return [
    {
      name: float(cell) if cell else None
      for i, (name, cell) in enumerate(zip(header, row, strict=True))
      if i < 2 or i >= first
    }
    for row in rows
  ]


def metrics_of(row):
  return {n: value for n, value in row.items() if n not in ("point", "round")}


def check_pictures(folder, *names):
  for name in names:
    content = (folder / name).read_bytes()
    assert content.startswith(b"\x89PNG")
    assert len(content) > 5000


# What a run leaves.


@pytest.fixture(scope="module")
def grid(tmp_path_factory):
  """Folder and output of a run: a sane and an absurd rate, two seeds."""
  folder = tmp_path_factory.mktemp("new") / "run"
  out, err = io.StringIO(), io.StringIO()
  with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
    assert call(*GRID, f"--output_dir={folder}") == 0
  return folder, out.getvalue(), err.getvalue()


def test_config(grid):
  """Every flag with its value, also where it is the default."""
  folder, _, _ = grid
  config = read_json(folder / "config.json")
  assert set(config.pop("device")) == {"platform", "kind", "count"}
  assert config.pop("streams") == STREAMS
  assert set(config.pop("data_digests")) == {
    *("train_examples", "partition", "validation", "test"),
  }
  assert {"python", "jax", "flax", "optax", "numpy"} <= set(
    config.pop("versions")
  )
  spec = spec_of(*GRID)
  assert config == json_files.to_json(spec.values()) | {
    "output_dir": str(folder),
    # What the data decide.
    "local_epochs": 1.0,
    "cohort_size": 4,
  }


def test_metrics(grid):
  folder, _, _ = grid
  rows = read_metrics(folder)
  order = [(row["point"], row["round"]) for row in rows]
  assert order == [(p, r) for r in (0, 2, 3) for p in range(4)]
  for row in rows:
    if row["point"] < 2 or row["round"] == 0:
      assert 0 <= row["test_accuracy"] <= 1
      assert (
        row["train_worst_decile_accuracy"] <= row["train_accuracy_decile_2"]
      )
    else:  # The absurd rate.
      assert set(metrics_of(row).values()) == {None}


def test_summary(grid):
  folder, _, _ = grid
  summary, rows = read_json(folder / "summary.json"), read_metrics(folder)
  assert summary["config"] == read_json(folder / "config.json")
  points = summary["points"]
  assert [point["hyperparameters"] for point in points] == [
    {"client_lr": rate, "server_lr": 1.0, "seed": seed}
    for rate in (0.1, 1e38)
    for seed in (0, 1)
  ]
  for index, point in enumerate(points):
    assert point["final"] == metrics_of(rows[8 + index])
    column = [row["test_accuracy"] for row in rows[index::4]]
    best = max(value for value in column if value is not None)
    assert point["best"]["test_accuracy"] == best
  status = [point["status"] for point in points]
  assert status == ["ok", "ok", "diverged", "diverged"]
  assert summary["selected"] == 0
  assert (summary["stopped_by"], summary["target"]) == ("rounds", None)
  # Without test examples of clients nothing is said of them.
  assert not {"per_client", "heldout_clients"} & set(summary)
  assert not list(folder.glob("*_client*"))
  model = 4 * (64 * 10 + 10)  # bytes
  assert summary["cost"] == {
    "bytes_down_per_round": model,
    "bytes_up_per_round": model,
    "gradient_evaluations_per_round": 500.0,
  }


def test_pictures_events_and_closing_lines(grid):
  folder, out, err = grid
  assert (folder / "curves.png").exists()
  assert (folder / "clients.png").exists()
  events = [path.parent.name for path in folder.glob("tensorboard/*/events*")]
  assert len(set(events)) == len(events) == 4
  assert "2 of 2 diverged from 2" in out
  *_, wrote, picture, repeat = out.splitlines()
  assert wrote == f"wrote {folder}"
  assert picture == f"picture: {folder / 'curves.png'}"
  assert repeat.startswith("to repeat bit for bit, add: --client_map=")
  # Where nobody watches there is no bar in the first ten seconds, so that the
  # line of an error stands alone.
  assert err == ""


@pytest.mark.parametrize("moment", ["config.json", "metrics.csv"])
@pytest.mark.default_cases("config.json")
def test_ctrl_c_leaves_complete_files(tmp_path, moment):
  """Before the compilation, and between evaluations."""
  process = start(*SMALL, "--rounds=1000000", f"--output_dir={tmp_path}")
  wait_for(process, (tmp_path / moment).exists)
  process.send_signal(signal.SIGINT)
  out, err = process.communicate(timeout=60)
  assert process.returncode == 130
  assert "Traceback" not in err
  assert read_json(tmp_path / "config.json")["rounds"] == 1000000
  last_line = out.splitlines()[-1]
  if moment == "config.json" and not last_line.endswith("1000000 rounds done"):
    assert last_line.startswith("interrupted")
    return
  rows = read_metrics(tmp_path)
  last_round = int(rows[-1]["round"])
  assert [row["round"] for row in rows] == list(range(0, last_round + 1, 10))
  assert last_line == f"interrupted: only {last_round} of 1000000 rounds done"
  final = read_json(tmp_path / "summary.json")["points"][0]["final"]
  assert final == metrics_of(rows[-1])
  check_pictures(tmp_path, "curves.png", "clients.png")


@pytest.mark.slow
def test_ctrl_c_that_was_ignored_ends_the_run_at_the_next_evaluation(
  tmp_path, monkeypatch, capsys
):
  def ignored(job):
    with contextlib.suppress(KeyboardInterrupt):
      os.kill(os.getpid(), signal.SIGINT)
      time.sleep(1)

  monkeypatch.setattr(run_output, "_draw_clients", ignored)
  assert call(*SMALL, *SHORT, f"--output_dir={tmp_path}") == 130
  out = capsys.readouterr().out
  assert out.endswith("interrupted: only 0 of 3 rounds done\n")
  assert [row["round"] for row in read_metrics(tmp_path)] == [0]


@pytest.mark.slow
def test_another_thread_leaves_signals_to_its_caller(tmp_path):
  """There a run cannot answer them, and runs."""
  arguments = (*SMALL, "--rounds=1", f"--output_dir={tmp_path / 'run'}")
  with concurrent.futures.ThreadPoolExecutor() as pool:
    assert pool.submit(call, *arguments).result() == 0


@pytest.mark.slow
@pytest.mark.quick
def test_trace(tmp_path, capsys, drawn):
  rounds = ("--rounds=3", "--eval_every=2", "--local_steps=5")
  quiet = ("--noprogress", f"--output_dir={tmp_path}")
  assert call(*SMALL, *rounds, "--trace", *quiet) == 0
  assert capsys.readouterr().err == ""
  with np.load(tmp_path / "traces.npz") as traces:
    assert set(traces.files) == {"step_size", "smoothness_step", "growth_step"}
    assert traces["step_size"].shape == (1, 3, 4, 5)
    assert (traces["step_size"] > 0).all()
    smaller = np.fmin(traces["smoothness_step"], traces["growth_step"])
    np.testing.assert_allclose(
      traces["step_size"][..., 1:], smaller[..., 1:], rtol=1e-6
    )
  check_pictures(tmp_path, "step_sizes.png")
  assert read_json(tmp_path / "config.json")["trace"] is True
  assert read_json(tmp_path / "config.json")["local_steps"] == 5


# Composite objectives.

LOSSES = (
  "train_loss",
  "test_loss",
  "regularized_train_loss",
  "regularized_test_loss",
  "validation_loss",
  "regularized_validation_loss",
)
LASSO = (
  "--task=lasso", "--algorithm=fed_dual_avg", "--strength=0.1",
  "--cohort_size=4", "--local_steps=10", "--rounds=6", "--eval_every=3",
  "--noprogress",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("fraction", "is_said"), [(0.01, True), (0.5, False)])
def test_a_median_of_sparse_messages(tmp_path, capsys, fraction, is_said):
  flags = (*SMALL, *SHORT, "--weighting=uniform", "--aggregator=median")
  upload = ("--upload=top_k", f"--upload_fraction={fraction}")
  assert call(*flags, *upload, f"--output_dir={tmp_path}") == 0
  assert ("so are most medians" in capsys.readouterr().out) == is_said


def test_all_points_diverged(tmp_path, capsys):
  arguments = (*LASSO, "--client_lr=10,20", f"--output_dir={tmp_path}")
  assert call(*arguments) == 1
  summary = read_json(tmp_path / "summary.json")
  assert summary["selected"] is None
  assert summary["points"][0]["status"] == "diverged"
  out, err = capsys.readouterr()
  assert err == f"error: every point diverged; see {tmp_path}\n"
  assert "diverged at 3" in out
  assert "none selected: every point diverged" in out


@pytest.mark.parametrize(
  ("algorithm", "cohort"), [("centralized", 64), ("local", 1)]
)
def test_baselines_decide_their_cohort_and_have_no_server(algorithm, cohort):
  values = prepare("--task=lasso", f"--algorithm={algorithm}").spec.values()
  assert values["cohort_size"] == cohort
  assert not {"server", "server_lr"} & set(values)


@pytest.mark.slow
def test_gap_to_the_optimum(tmp_path, capsys, monkeypatch):
  monkeypatch.setattr(
    extra_metrics, "optimum", lambda *_: Optimum(None, 0.1, 0.0, 1)
  )
  arguments = (
    "--algorithm=fed_dual_avg", "--regularizer=l1", "--strength=0.01",
    "--client_lr=0.1,0.2", "--rounds=2", "--optimum", "--noprogress",
  )  # fmt: skip
  assert call(*SMALL, *arguments, f"--output_dir={tmp_path}") == 0
  # Both points have the same optimum.
  assert capsys.readouterr().err.count("optimum at strength 0.01: 0.1") == 1
  for row in read_metrics(tmp_path, METRICS | {*LOSSES, "optimality_gap"}):
    expected = row["regularized_train_loss"] - 0.1
    assert row["optimality_gap"] == pytest.approx(expected)


# One call after another.


def test_each_call_starts_from_the_defaults():
  before = flags_of_line()
  assert flags_of_line("--client_lr=0.5", "--seed=3", "--grad_norm") != before
  for bad in ("--nosuchflag", "--alpha=high"):
    with pytest.raises(ValueError, match=r"nosuchflag|alpha"):
      flags_of_line("--rounds=9", "--noprogress", bad)
  assert flags_of_line() == before


# Compiled programs.


def test_where_compiled_programs_are_kept(tmp_path):
  names = (
    "jax_compilation_cache_dir",
    "jax_persistent_cache_min_compile_time_secs",
  )
  values = lambda: [getattr(jax.config, name) for name in names]
  before = values()
  # The user's folder takes precedence.
  with job.compiled_kept_in(str(tmp_path)):
    assert values() == before
  try:
    jax.config.update("jax_compilation_cache_dir", None)
    with job.compiled_kept_in("none"):
      assert values() == [None, before[1]]
    with job.compiled_kept_in(str(tmp_path)):
      assert values() == [str(tmp_path), 0.5]
    assert values() == [None, before[1]]
  finally:
    jax.config.update("jax_compilation_cache_dir", before[0])


# Folders and packages; flags that are refused are in test_refusals.py.

# What is there already, the folder that is given, and why it cannot be.
BAD_FOLDERS = [
  (
    "config.json",
    "",
    "holds a run already (it has a config.json); give a folder",
  ),
  ("thesis.tex", "", "is not empty (it has 'thesis.tex'); give a folder that "),
  ("file", "file/run", "'{there}' is a file; give a "),
  (None, "x" * 1000, "cannot be written (File name too long); give "),
  pytest.param(
    *(None, "/proc/fedjax_opt", "cannot be written ("),
    # A folder that not even root may write.
    marks=pytest.mark.skipif(not os.path.isdir("/proc"), reason="no /proc"),
  ),
]


@pytest.mark.parametrize(("old_file", "given", "message"), BAD_FOLDERS)
def test_bad_output_dir(old_file, given, message, tmp_path, error_of):
  if old_file:
    (tmp_path / old_file).write_text("{}")
    message = message.format(there=tmp_path / old_file)
  before, folder = sorted(tmp_path.iterdir()), tmp_path / given
  with compilations() as programs:
    line = error_of(f"--output_dir={folder}")
  assert line.startswith(f"--output_dir='{folder}': {message}")
  assert not programs
  assert sorted(tmp_path.iterdir()) == before


def test_missing_package(monkeypatch, tmp_path, error_of):
  monkeypatch.setitem(sys.modules, "matplotlib", None)
  line = error_of(f"--output_dir={tmp_path / 'run'}")
  assert line == "pictures need matplotlib: pip install 'fedjax_opt[run]'"


def test_too_little_memory_says_so_where_the_error_does_not(
  monkeypatch, tmp_path, error_of
):
  monkeypatch.setattr(execution, "prepare", Mock(side_effect=MemoryError))
  assert error_of(f"--output_dir={tmp_path / 'run'}") == "out of memory"
