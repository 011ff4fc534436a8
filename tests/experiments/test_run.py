"""The command line as a user meets it: files, messages, exit statuses."""

import contextlib
import csv
import importlib.util
import json
import os
import pathlib
import signal
import sys
import time

import jax
import numpy as np
import pytest

from experiments import compilation_cache, results, run
from experiments.specification.resolve import resolve
from fedjax_opt.base import STREAMS
from tests.experiments.commands import REPOSITORY, call, given, start

SMALL = ("--task=digits_logistic", "--num_clients=20", "--cohort_size=4")
SHORT = ("--rounds=3", "--eval_every=2", "--client=sgd")
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


def read_json(path):
  """Strict JSON: no NaN, no Infinity, no name twice."""

  def refuse(constant):
    raise AssertionError(f"{constant} is not JSON")

  def unique(pairs):
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)

  text = path.read_text()
  return json.loads(text, parse_constant=refuse, object_pairs_hook=unique)


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
  process = start(
    *SMALL, *SHORT, "--client_lr=0.1,1e38", "--seed=0,1",
    f"--output_dir={folder}",
  )  # fmt: skip
  out, err = process.communicate(timeout=300)
  assert process.returncode == 0, err
  return folder, out, err


def test_config(grid):
  folder, _, _ = grid
  config = read_json(folder / "config.json")
  device = config.pop("device")
  assert set(device) == {"platform", "kind", "count"}
  assert config.pop("streams") == STREAMS
  assert set(config.pop("data_digests")) == {
    *("train_examples", "partition", "validation", "test"),
  }
  assert {"python", "jax", "flax", "optax", "numpy"} <= set(
    config.pop("versions")
  )
  assert config == {
    "task": "digits_logistic",
    "num_clients": 20,
    "partition": "dirichlet",
    "alpha": 0.1,
    "examples_per_client": 500,
    "tail_cut": 0.0,
    "l2": 0.0,
    "algorithm": "fed_avg",
    "client": "sgd",
    "client_schedule": "constant",
    "augmentation": "none",
    "pixels": "channels",
    "sampler": "uniform",
    "x_axis": "rounds",
    "resume": False,
    "compilation_cache": "~/.cache/fedjax_opt",
    "client_dropout": 0.0,
    "max_update_action": "reject",
    "aggregator": "mean",
    "error_feedback": False,
    "precision": "float32",
    "client_memory": "auto",
    "cluster": False,
    "client_lr": [0.1, 1e38],
    "server": "sgd",
    "server_lr": 1.0,
    "rounds": 3,
    "cohort_size": 4,
    "batch_size": 64,
    "local_epochs": 1.0,
    "sampling": "shuffle",
    "drop_remainder": False,
    "weighting": "examples",
    "seed": [0, 1],
    "select_on": "validation",
    "validation_fraction": 0.1,
    "validation_seed": 0,
    "output_dir": str(folder),
    "eval_every": 2,
    "optimum": False,
    "grad_norm": False,
    "trace": False,
    "client_map": "auto",
    "grid_map": "auto",
    "profile": False,
    "progress": True,
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
  assert set(summary["timing"]) == {
    "compile_seconds",
    "run_seconds",
    "rounds_per_second",
    "seconds_to_first_round",
  }
  model = 4 * (64 * 10 + 10)  # bytes
  assert summary["cost"] == {
    "bytes_down_per_round": model,
    "bytes_up_per_round": model,
    "gradient_evaluations_per_round": 500.0,
  }


def test_pictures_events_and_closing_lines(grid):
  folder, out, err = grid
  check_pictures(folder, "curves.png", "clients.png")
  events = [path.parent.name for path in folder.glob("tensorboard/*/events*")]
  assert len(set(events)) == len(events) == 4
  assert "2 of 2 diverged from 2" in out
  assert out.endswith(f"wrote {folder}\npicture: {folder / 'curves.png'}\n")
  # No bar where nobody watches: a line for the compilation, none for rounds.
  assert err.startswith("compiled in ")
  assert err.count("\n") == 1


def test_alone_as_in_the_grid(grid, tmp_path):
  alone = ("--client_lr=0.1", "--seed=1", "--noprogress")
  assert call(*SMALL, *SHORT, *alone, f"--output_dir={tmp_path}") == 0
  in_grid = [row for row in read_metrics(grid[0]) if row["point"] == 1]
  for one, other in zip(read_metrics(tmp_path), in_grid, strict=True):
    for name in ("train_loss", "test_loss"):
      assert one[name] == pytest.approx(other[name], rel=1e-4)


def test_ctrl_c_leaves_complete_files(tmp_path):
  process = start(*SMALL, "--rounds=1000000", f"--output_dir={tmp_path}")
  wait_for(process, lambda: (tmp_path / "metrics.csv").exists())
  time.sleep(0.5)
  process.send_signal(signal.SIGINT)
  out, err = process.communicate(timeout=60)
  assert process.returncode == 130
  assert "Traceback" not in err
  rows = read_metrics(tmp_path)
  done = int(rows[-1]["round"])
  assert [row["round"] for row in rows] == list(range(0, done + 1, 10))
  assert out.splitlines()[-1] == (
    f"interrupted: only {done} of 1000000 rounds done"
  )
  final = read_json(tmp_path / "summary.json")["points"][0]["final"]
  assert final == metrics_of(rows[-1])
  check_pictures(tmp_path, "curves.png", "clients.png")


def test_ctrl_c_before_the_first_evaluation(tmp_path):
  process = start(*SMALL, "--rounds=1000000", f"--output_dir={tmp_path}")
  # The last thing before the compilation.
  wait_for(process, lambda: (tmp_path / "clients.png").exists())
  process.send_signal(signal.SIGINT)
  out, err = process.communicate(timeout=60)
  assert process.returncode == 130
  assert "Traceback" not in err
  before = f"interrupted before the first evaluation; see {tmp_path}\n"
  # A machine that is busy may be late with the signal, or ignore its exception
  # within a callback: then the run ends after an evaluation.
  assert out == before or out.endswith("of 1000000 rounds done\n")
  assert read_json(tmp_path / "config.json")["rounds"] == 1000000


def test_ctrl_c_that_was_ignored_ends_the_run_at_the_next_evaluation(
  tmp_path, monkeypatch, capsys
):
  def ignored(job):
    with contextlib.suppress(KeyboardInterrupt):
      os.kill(os.getpid(), signal.SIGINT)
      time.sleep(1)

  monkeypatch.setattr(results, "_draw_clients", ignored)
  assert call(*SMALL, *SHORT, f"--output_dir={tmp_path}") == 130
  out = capsys.readouterr().out
  assert out.endswith("interrupted: only 0 of 3 rounds done\n")
  assert [row["round"] for row in read_metrics(tmp_path)] == [0]


def wait_for(process, condition):
  for _ in range(1200):
    if condition():
      return
    assert process.poll() is None, process.communicate()
    time.sleep(0.1)
  raise AssertionError("the run took more than two minutes to begin")


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
RECOVERED = {
  "lasso": ("f1", "precision", "recall", "density", "recovery_error"),
  "low_rank": ("rank", "recovery_error"),
}


@pytest.mark.parametrize(
  ("task", "algorithm", "regularizer"),
  [("lasso", "fed_dual_avg", "l1"), ("low_rank", "fed_mid", "nuclear")],
)
def test_a_rate_that_diverges_is_told_and_not_selected(
  tmp_path, capsys, task, algorithm, regularizer, drawn
):
  arguments = (
    f"--task={task}", f"--algorithm={algorithm}", "--strength=0.1",
    "--client_lr=10,0.0005", "--cohort_size=4", "--local_steps=10",
    "--rounds=6", "--eval_every=3", "--noprogress",
  )  # fmt: skip
  assert call(*arguments, f"--output_dir={tmp_path}") == 0
  rows = read_metrics(tmp_path, LOSSES + RECOVERED[task])
  order = [(row["point"], row["round"]) for row in rows]
  assert order == [(p, r) for r in (0, 3, 6) for p in (0, 1)]
  for row in rows:
    if row["point"] == 1 or row["round"] == 0:
      assert None not in row.values()
      assert row["regularized_train_loss"] >= row["train_loss"]
    else:
      assert set(metrics_of(row).values()) == {None}
  assert rows[5]["recovery_error"] < rows[1]["recovery_error"]

  summary = read_json(tmp_path / "summary.json")
  lost, kept = summary["points"]
  assert lost["hyperparameters"] == {
    "client_lr": 10.0,
    "server_lr": 1.0,
    "strength": 0.1,
    "seed": 0,
  }
  assert (lost["status"], lost["diverged_round"]) == ("diverged", 3)
  assert lost["final"] == dict.fromkeys(metrics_of(rows[0]))
  assert kept["status"] == "ok"
  assert "diverged_round" not in kept
  assert kept["final"] == metrics_of(rows[5])
  assert summary["selected"] == 1
  given = {
    "task": task,
    "variant": "I",
    "zero_threshold": 0.01,
    "regularizer": regularizer,
    "client": "sgd",
    "batch_size": 10,
  }
  config = summary["config"]
  assert {name: config[name] for name in given} == given
  assert not {"partition", "num_clients", "alpha"} & set(config)

  captured = capsys.readouterr()
  assert captured.err == ""
  assert "diverged at 3" in captured.out
  check_pictures(tmp_path, "curves.png")
  assert not (tmp_path / "clients.png").exists()  # There are no labels.


def test_all_points_diverged(tmp_path, capsys, drawn):
  arguments = (
    "--task=low_rank", "--algorithm=fed_dual_avg", "--client_lr=10",
    "--cohort_size=4", "--local_steps=10", "--rounds=3", "--noprogress",
  )  # fmt: skip
  assert call(*arguments, f"--output_dir={tmp_path}") == 1
  summary = read_json(tmp_path / "summary.json")
  assert summary["selected"] is None
  assert summary["points"][0]["status"] == "diverged"
  out, err = capsys.readouterr()
  assert err == f"error: every point diverged; see {tmp_path}\n"
  assert "diverged at 3" in out
  assert "none selected: every point diverged" in out
  check_pictures(tmp_path, "curves.png")


@pytest.mark.parametrize(
  ("algorithm", "cohort"), [("centralized", 64), ("local", 1)]
)
def test_baselines(tmp_path, algorithm, cohort):
  arguments = (
    "--task=lasso", f"--algorithm={algorithm}", "--client_lr=0.0003",
    "--rounds=4", "--eval_every=2", "--noprogress",
  )  # fmt: skip
  assert call(*arguments, f"--output_dir={tmp_path}") == 0
  rows = read_metrics(tmp_path, LOSSES + RECOVERED["lasso"])
  losses = [row["regularized_train_loss"] for row in rows]
  assert losses[2] < losses[1] < losses[0]
  summary = read_json(tmp_path / "summary.json")
  assert summary["config"]["cohort_size"] == cohort
  assert not {"server", "server_lr"} & set(summary["config"])
  # A step costs each client that takes part its 128 examples.
  assert summary["cost"]["gradient_evaluations_per_round"] == 128


def test_constrained_model(tmp_path, drawn):
  constrained = (
    "--algorithm=fed_dual_avg", "--regularizer=l2_ball", "--radius=1",
    "--client_lr=0.1", "--rounds=20", "--noprogress",
  )  # fmt: skip
  assert call(*SMALL, *constrained, f"--output_dir={tmp_path}") == 0
  rows = read_metrics(tmp_path, METRICS | set(LOSSES))
  for row in rows:  # Inside of the ball; it would be infinite outside.
    assert row["regularized_train_loss"] == row["train_loss"]
  assert rows[-1]["test_accuracy"] > rows[0]["test_accuracy"] + 0.2
  config = read_json(tmp_path / "config.json")
  assert config["regularizer"] == "l2_ball"
  assert config["radius"] == 1
  assert "strength" not in config
  check_pictures(tmp_path, "curves.png", "clients.png")


def test_gap_to_the_optimum(tmp_path, capsys, drawn):
  arguments = (
    "--algorithm=fed_dual_avg", "--regularizer=l1", "--strength=0.01",
    "--client_lr=0.1,0.2", "--rounds=30", "--optimum", "--noprogress",
  )  # fmt: skip
  assert call(*SMALL, *arguments, f"--output_dir={tmp_path}") == 0
  # Both points have the same optimum.
  assert capsys.readouterr().err.count("optimum at strength 0.01") == 1
  gap = {"optimality_gap"}
  rows = read_metrics(tmp_path, METRICS | set(LOSSES) | gap)
  least = {
    round(row["regularized_train_loss"] - row["optimality_gap"], 5)
    for row in rows
  }
  assert len(least) == 1
  for point in (0, 1):
    own = [row for row in rows if row["point"] == point]
    gaps = [row["optimality_gap"] for row in own]
    assert gaps[0] > 2 * gaps[-1] > 0
  check_pictures(tmp_path, "curves.png", "clients.png")


# Flagfiles.


def test_flagfiles(tmp_path):
  common, own = tmp_path / "common.flags", tmp_path / "own.flags"
  common.write_text("# A comment.\n--rounds=7\n--alpha=0.5\n")
  own.write_text(f"--flagfile={common}\n--alpha=2\n")
  flag = given(f"--flagfile={own}", "--batch_size=5")
  assert (flag["rounds"], flag["alpha"], flag["batch_size"]) == (7, 2.0, 5)


@pytest.mark.parametrize(
  ("preset", "task", "rounds"),
  [("mnist", "mnist_cnn", 500), ("fmnist", "fmnist_cnn", 1000)],
)
def test_presets(monkeypatch, preset, task, rounds):
  monkeypatch.chdir(REPOSITORY)
  flag = given(f"--flagfile=experiments/delta_sgd/{preset}.flags")
  expected = {
    "task": task,
    "rounds": rounds,
    "num_clients": 100,
    "cohort_size": 10,
    "batch_size": 64,
    "local_epochs": None,  # One, unless local steps are given.
    "partition": "dirichlet",
    "alpha": 0.1,
    "examples_per_client": "500",
    "seed": "5821",
  }
  assert {name: flag[name] for name in expected} == expected
  for client in ("sgd", "sgdm", "adam", "adagrad", "sps", "delta_sgd"):
    resolve(flag | {"client": client})


# One call after another.


def test_each_call_starts_from_the_defaults(tmp_path):
  folders = [tmp_path / str(i) for i in range(3)]
  first = ("--client_lr=0.5", "--seed=3", "--l2=0.1", "--grad_norm")
  quiet = "--noprogress"
  assert call(*SMALL, *SHORT, *first, quiet, f"--output_dir={folders[0]}") == 0
  bad = ("--rounds=9", "--batch_size=5", "--nosuchflag", "--alpha=7")
  assert call(*bad, f"--output_dir={folders[1]}") == 1
  assert call(*SMALL, "--alpha=-1", f"--output_dir={folders[1]}") == 1
  assert not folders[1].exists()
  assert call(*SMALL, "--rounds=1", f"--output_dir={folders[2]}") == 0
  configs = [read_json(folders[i] / "config.json") for i in (0, 2)]
  names = (
    "client", "client_lr", "seed", "l2", "grad_norm", "progress", "rounds",
    "batch_size", "alpha", "eval_every",
  )  # fmt: skip
  assert [[config.get(name) for name in names] for config in configs] == [
    ["sgd", 0.5, 3, 0.1, True, False, 3, 64, 0.1, 2],
    ["delta_sgd", None, 0, 0.0, False, True, 1, 64, 0.1, 10],
  ]
  timing = read_json(folders[2] / "summary.json")["timing"]
  assert timing["seconds_to_first_round"] < 60


# Bad input: one line, nothing compiled, nothing written.

FEDOPT = "fedopt_adam, fedopt_yogi, fedopt_adagrad"
SERVERS = f"sgd, sgdm, nesterov, adam, adamw, adagrad, yogi, {FEDOPT}"
CLIENTS = SERVERS.replace("yogi", "yogi, sps, delta_sgd", 1)
PARTITIONS = (
  "iid, dirichlet, dirichlet_disjoint, similarity, class_q, shards, size_skew"
)
COMPOSITE = (
  "fed_mid, fed_mid_osp, fed_dual_avg, fed_dual_avg_osp, fed_avg_subgradient, "
  "centralized, local"
)
PENALTIES = "l1, squared_l2, nuclear, group_lasso"
ONE_STEP = "takes one step a round, along the exact gradient"
PLAIN = "takes plain steps, not those of another rule; must be sgd"
MOMENTA = (
  "fed_avg_sm, fed_avg_lm, fed_avg_lm_z, fed_avg_slm, fed_avg_slm_z, domo, "
  "domo_s"
)
BATCH_NORM = "--task=digits_resnet20 --norm=batch"
COMPARE = "python -m experiments.compare"
MID = "--task=lasso --algorithm=fed_mid"
BAD_INPUT = {
  # Names.
  "--client=sgdd": f"client='sgdd': must be one of {CLIENTS}; did you mean "
  "sgd?",
  "--client=": f"client='': must be one of {CLIENTS}",
  "--server=sps": f"server='sps': must be one of {SERVERS}",
  "--algorithm=fedprox": "algorithm='fedprox': must be one of those that "
  "--list=algorithms "
  "shows; did you mean fed_prox?",
  "--partition=Dirichlet": f"partition='Dirichlet': must be one of "
  f"{PARTITIONS}; did you mean dirichlet?",
  "--grid_chunk=0": "grid_chunk=0: must be at least 1",
  "--partition=natural": f"partition='natural': must be one of {PARTITIONS}",
  "--task=mnist_cn": "task='mnist_cn': must be one of those that --list=tasks "
  "shows; did you"
  " mean mnist_cnn or fmnist_cnn or mnist_small_cnn?",
  "--task=xyz": "task='xyz': must be one of those that --list=tasks shows",
  "--client_schedule=cosine": "client_schedule='cosine': must be one of "
  "constant, step_decay, exponential",
  "--sampling=shufle": "sampling='shufle': must be one of shuffle, "
  "replacement; did you mean shuffle?",
  "--weighting=equal": "weighting='equal': must be one of examples, uniform",
  "--client_map=pmap": "client_map='pmap': must be one of auto, vmap, scan; "
  "did you mean vmap?",
  "--x_axis=time": "x_axis='time': must be one of rounds, "
  "gradient_evaluations, bytes",
  "--client_memory=host": "client_memory='host': this algorithm keeps "
  "nothing for its clients (it has no `Algorithm.init_client`); leave "
  "client_memory out",
  "--client_memory=disk": "client_memory='disk': must be one of auto, device, "
  "host",
  "--precision=bf16": "precision='bf16': must be one of float32, mixed, "
  "bfloat16; did you mean bfloat16?",
  "--checkpoint_every=0": "checkpoint_every=0: must be at least 1",
  "--client_dropout=1": "client_dropout=1: must be in [0, 1)",
  "--max_update_norm=-1": "max_update_norm=-1: must be in (0, inf)",
  "--max_update_norm=nan": "max_update_norm=nan: must be in (0, inf)",
  "--max_update_norm=1 --max_update_action=drop": "max_update_action='drop': "
  "must be one of reject, clip",
  "--max_update_action=clip": "max_update_action='clip': needs "
  "max_update_norm, the largest norm",
  f"{MID} --optimum --l2=0.1": "optimum=True: l2=0.1 is not in the losses "
  "that are reported, so there would be no gap to measure; leave l2 out",
  # Momenta.
  "--algorithm=domo --mu_s=1": "mu_s=1: must be in [0, 1)",
  "--algorithm=domo --mu_l=0.5,-0.1": "mu_l=-0.1: must be in [0, 1)",
  "--algorithm=domo_s --beta=-1": "beta=-1: must be in [0, inf)",
  "--algorithm=domo --server_lr=0": "server_lr=0: must be in (0, inf)",
  "--algorithm=fed_avg_sm --server_lr=1,-1": "server_lr=-1: must be in "
  "(0, inf)",
  "--algorithm=fed_avg_sm --mu_l=0.5": "mu_l=0.5: belongs to algorithm "
  "fed_avg_lm, fed_avg_lm_z, fed_avg_slm, "
  "fed_avg_slm_z, domo, domo_s, not to algorithm fed_avg_sm; give "
  "--algorithm=fed_avg_lm, or leave mu_l out",
  "--algorithm=domo --client=adam": "client='adam': algorithm domo " + PLAIN,
  # Images.
  "--task=lasso --augmentation=crop_flip": "augmentation='crop_flip': task "
  "lasso does not have images that could be cropped; leave augmentation out",
  "--task=lasso --pixels=half": "pixels='half': task lasso has no images whose "
  "pixels it normalizes; leave pixels out",
  "--pixels=mean": "pixels='mean': must be one of channels, half",
  "--augmentation=crop": "augmentation='crop': must be one of none, crop_flip; "
  "did you mean crop_flip?",
  "--norm=group": "norm='group': the model of task digits has no place for "
  "normalization layers; those of the ..._resnet tasks have",
  "--task=digits_resnet20 --norm=layer": "norm='layer': must be one of group, "
  "batch, batch_untracked, none",
  f"{BATCH_NORM} --algorithm=bvr_l_sgd": "norm='batch': "
  "'stages_0_0/Norm_0/BatchNorm_0' has running statistics, "
  "which this algorithm does not average "
  "(Algorithm.averages_statistics); must be a model without them, or another "
  "algorithm, such as fed_avg",
  f"{BATCH_NORM} --batch_size=32": "norm='batch': "
  "'stages_0_0/Norm_0/BatchNorm_0' has running statistics, and a batch that is "
  "not full would be normalized by its padding too; give drop_remainder, or "
  "draw with replacement, or a model without them",
  "--task=digits_resnet20 --norm=batch_untracked --algorithm=moon": "norm="
  "'batch_untracked': 'stem_norm/BatchNorm_0' has running statistics, "
  "which this algorithm does not average "
  "(Algorithm.averages_statistics); must be a model without them, or another "
  "algorithm, such as fed_avg",
  "--independent_dropout --reuse_gradients": "independent_dropout=True: with "
  "reuse_gradients there is no second gradient on the same batch; leave one of "
  "them out",
  "--independent_dropout --augmentation=crop_flip": "independent_dropout=True: "
  "augmentation='crop_flip' would be drawn anew as well, so that the two "
  "gradients had different images; leave one of them out",
  "--independent_dropout --client=sgd": "independent_dropout=True: belongs to "
  "client delta_sgd, not to client sgd; give --client=delta_sgd, or leave "
  "independent_dropout out",
  # Schedules and epochs.
  "--client=sgd --client_milestones=0.6,0.8": "client_milestones=0.6,0.8: "
  "belongs to client_schedule step_decay, not to constant",
  "--client=sgd --client_schedule=step_decay --client_milestones=1": "client_"
  "milestones=1: must be in (0, 1)",
  "--client=sgd --client_decay=0.9": "client_decay=0.9: belongs to "
  "client_schedule exponential, not to constant",
  "--client=sgd --client_schedule=exponential --client_decay=1.5": "client_"
  "decay=1.5: must be in (0, 1)",
  "--local_epochs=1e-6": "local_epochs=1e-06: gives no client a step, of "
  "batch_size=64 and at most 500 examples; must be larger",
  # Flags of what was not chosen, or that exclude each other.
  "--client=sgd --gamma=2": "gamma=2: belongs to client delta_sgd, not to "
  "client sgd; give "
  "--client=delta_sgd, or leave gamma out",
  "--client_lr=0.1": "client_lr=0.1: belongs to client sgd, sgdm, "
  "nesterov, ..., not to client delta_sgd; give --client=sgd, or leave "
  "client_lr out",
  "--client=sgd --noreuse_gradients": "reuse_gradients=False: belongs to "
  "client delta_sgd, not to client sgd;"
  " give --client=delta_sgd, or leave reuse_gradients out",
  "--mu=1": "mu=1: belongs to algorithm fed_prox, moon, fed_nova, not to "
  "algorithm fed_avg; "
  "give --algorithm=fed_prox, or leave mu out",
  "--server_momentum=0.9": "server_momentum=0.9: belongs to server sgdm, "
  "nesterov, not to server sgd; give "
  "--server=sgdm, or leave server_momentum out",
  "--server=adam --server_momentum=0.9": "server_momentum=0.9: belongs to "
  "server sgdm, nesterov, not to server adam; give "
  "--server=sgdm, or leave server_momentum out",
  "--partition=iid --alpha=1": "alpha=1.0: belongs to partition dirichlet, "
  "dirichlet_disjoint, not to "
  "partition iid; give --partition=dirichlet, or leave alpha out",
  "--algorithm=fed_adam --server=sgd": "server='sgd': algorithm fed_adam is "
  "fed_avg with server adam; give --algorithm=fed_avg to choose another",
  "--client_schedule=step_decay": "client_schedule='step_decay': client "
  "delta_sgd has no learning rate that could drop; must be constant",
  "--client=sgd --trace": "trace=True: client sgd has no step sizes to record; "
  "must be delta_sgd",
  "--local_epochs=2 --local_steps=5": "local_epochs=2 and local_steps=5: give "
  "only one",
  "--client_map=scan --client_chunk=2": "client_chunk=2 with "
  "client_map='scan': scan takes one client after the other; use 'vmap' or "
  "'auto'",
  # Regularizers, and the algorithms with and without one.
  f"{MID} --regularizer=l1ball": f"regularizer='l1ball': must be one of "
  f"{PENALTIES}, l1_ball, l2_ball, non_negative; did you mean l1_ball?",
  f"{MID} --regularizer=": f"regularizer='': must be one of {PENALTIES}, "
  "l1_ball, l2_ball, non_negative",
  "--algorithm=fed_mid": "regularizer: algorithm fed_mid needs one and task "
  f"digits has none of its own; must be one of {PENALTIES}, l1_ball, l2_ball, "
  "non_negative",
  "--algorithm=local --strength=1": "regularizer: algorithm local needs one "
  f"and task digits has none of its own; must be one of {PENALTIES}, l1_ball, "
  "l2_ball, non_negative",
  "--regularizer=l1": "regularizer='l1': algorithm fed_avg has no regularizer; "
  f"those that have one are {COMPOSITE}",
  "--task=lasso --algorithm=fed_prox --strength=0.1,1": "strength=0.1,1: "
  f"algorithm fed_prox has no regularizer; those that have one are {COMPOSITE}",
  "--radius=1": "radius=1: algorithm fed_avg has no regularizer; those that "
  f"have one are {COMPOSITE}",
  f"{MID} --radius=1": "radius=1: belongs to regularizer l1_ball, l2_ball, not "
  "to regularizer "
  "l1; give --regularizer=l1_ball, or leave radius out",
  f"{MID} --regularizer=non_negative --strength=1": "strength=1: belongs to "
  "regularizer l1, squared_l2, nuclear, "
  "group_lasso, not to regularizer non_negative; give --regularizer=l1, "
  "or leave strength out",
  f"{MID} --strength=-1": "strength=-1: must be in [0, inf)",
  f"{MID} --strength=0,nan": "strength=nan: must be in [0, inf)",
  f"{MID} --regularizer=l1_ball --radius=0": "radius=0: must be in (0, inf)",
  f"{MID} --regularizer=l2_ball --radius=1,-1": "radius=-1: must be in "
  "(0, inf)",
  f"{MID} --client=adam": f"client='adam': algorithm fed_mid {PLAIN}",
  f"{MID} --client=delta_sgd": f"client='delta_sgd': algorithm fed_mid {PLAIN}",
  f"{MID} --server=adam": f"server='adam': algorithm fed_mid {PLAIN}",
  # Algorithms of plain steps.
  "--algorithm=scaffold --client=adam": "client='adam': algorithm scaffold "
  + PLAIN,
  "--algorithm=scaffold --server=adam": "server='adam': algorithm scaffold "
  + PLAIN,
  "--algorithm=bvr_l_sgd --client=adam": "client='adam': algorithm bvr_l_sgd "
  + PLAIN,
  "--algorithm=bvr_l_sgd --server_lr=0.5": "server_lr=0.5: algorithm bvr_l_sgd "
  "has no server; leave server_lr out",
  "--algorithm=local_sgd --server=sgd": "server='sgd': algorithm local_sgd has "
  "no server; leave server out",
  "--large_batch=5": "large_batch=5: belongs to algorithm minibatch_sarah, "
  "bvr_l_sgd, not to"
  " algorithm fed_avg; give --algorithm=minibatch_sarah, or leave "
  "large_batch out",
  "--algorithm=local_sgd --large_batch=5": "large_batch=5: belongs to "
  "algorithm minibatch_sarah, bvr_l_sgd, not to"
  " algorithm local_sgd; give --algorithm=minibatch_sarah, or leave "
  "large_batch out",
  "--algorithm=bvr_l_sgd --large_batch=0": "large_batch=0: must be a whole "
  "number in [1, inf)",
  "--algorithm=bvr_l_sgd --large_batch=1.5": "large_batch=1.5: must be a whole "
  "number",
  "--algorithm=bvr_l_sgd --exact_control": "exact_control=True: belongs to "
  "algorithm scaffold, not to algorithm "
  "bvr_l_sgd; give --algorithm=scaffold, or leave exact_control out",
  "--algorithm=scaffold --nopractical": "practical=False: belongs to algorithm "
  "bvr_l_sgd, not to algorithm "
  "scaffold; give --algorithm=bvr_l_sgd, or leave practical out",
  "--algorithm=bvr_l_sgd --trace": "trace=True: client sgd has no step sizes "
  "to record; must be delta_sgd",
  "--task=lasso --algorithm=centralized --server=sgd": "server='sgd': "
  "algorithm centralized has no server; leave server out",
  "--task=lasso --algorithm=local --server_lr=0.1,1": "server_lr=0.1,1: "
  "algorithm local has no server; leave server_lr out",
  "--task=lasso --algorithm=local --client_schedule=step_decay": "client_"
  "schedule='step_decay': algorithm local has one rate for all rounds; must be "
  "constant",
  "--task=lasso --algorithm=centralized --cohort_size=10": "cohort_size=10: "
  "algorithm centralized has 64 of the 64 clients in each round; leave "
  "cohort_size out",
  "--task=lasso --algorithm=centralized --local_steps=5": "local_steps=5: "
  f"algorithm centralized {ONE_STEP}; leave local_steps out",
  "--task=lasso --algorithm=local --local_epochs=1": "local_epochs=1.0: "
  f"algorithm local {ONE_STEP}; leave local_epochs out",
  "--task=lasso --algorithm=local --sampling=replacement": "sampling="
  f"replacement: algorithm local {ONE_STEP}; leave sampling out",
  "--optimum": "optimum=True: the loss of task digits is not convex; must be a "
  "task of linear or logistic regression",
  "--task=lasso --optimum": "optimum=True: algorithm fed_avg has no "
  "regularizer, without which a minimum may not exist; must be one that has",
  "--task=lasso --algorithm=local --cohort_size=10": "cohort_size=10: "
  "algorithm local has 1 of the 64 clients in each round; leave cohort_size "
  "out",
  "--algorithm=fed_avg_subgradient --regularizer=l2_ball": "regularizer="
  "'l2_ball': algorithm fed_avg_subgradient cannot keep to a constraint; must "
  f"be one of {PENALTIES}",
  "--task=femnist10 --algorithm=fed_avg_subgradient": "regularizer='l2_ball': "
  "algorithm fed_avg_subgradient cannot keep to a constraint; must be one of "
  f"{PENALTIES}",
  "--task=digits_cnn --algorithm=fed_mid --regularizer=nuclear": "regularizer="
  "'nuclear': nuclear: a leaf has shape (3, 3, 1, 10): must be a matrix; "
  "on_leaves leaves others out",
  "--task=lasso --algorithm=moon": "algorithm='moon': compares features before "
  "the last layer, which the model of task lasso does not have; must be "
  "another, or a task of images",
  # Tasks whose clients come with the data.
  "--task=lasso --num_clients=5": "num_clients=5: the clients of task lasso "
  "come with its data; leave num_clients out",
  "--task=low_rank --partition=iid": "partition=iid: the clients of task "
  "low_rank come with its data; leave partition out",
  "--task=fmri --alpha=0.1": "alpha=0.1: the clients of task fmri come with "
  "its data; leave alpha out",
  "--task=lasso --variant=V": "variant='V': must be one of I, II, III, IV; did "
  "you mean IV?",
  "--task=lasso --variant=i": "variant='i': must be one of I, II, III, IV; did "
  "you mean I?",
  "--variant=II": "variant=II: belongs to task lasso, low_rank, not to task "
  "digits; give "
  "--task=lasso, or leave variant out",
  "--task=femnist62 --zero_threshold=0.1": "zero_threshold=0.1: belongs to "
  "task lasso, low_rank, fmri, not to task"
  " femnist62; give --task=lasso, or leave zero_threshold out",
  "--task=low_rank --zero_threshold=0": "zero_threshold=0: must be in (0, inf)",
  "--task=lasso --eval_every=0": "eval_every=0: must be at least 1",
  "--task=lasso --batch_size=129": "batch_size=129: larger than every client; "
  "the largest has 128 examples",
  # Who takes part.
  "--sampler=weigthed": "sampler='weigthed': must be one of uniform, weighted, "
  "poisson, fixed, cyclic; did you mean weighted?",
  "--sampler_groups=5": "sampler_groups=5: belongs to sampler cyclic, not to "
  "sampler uniform; "
  "give --sampler=cyclic, or leave sampler_groups out",
  "--sampler=cyclic": "sampler_groups: must be given with sampler cyclic",
  "--sampler=cyclic --sampler_groups=0": "sampler_groups=0: must be a whole "
  "number in [1, inf)",
  "--sampler=cyclic --sampler_groups=101": "sampler_groups=101: must be from 1 "
  "to the number of clients, 100",
  "--task=lasso --algorithm=centralized --sampler=fixed": "sampler='fixed': "
  "algorithm centralized has all clients in each round; leave sampler out",
  "--task=lasso --algorithm=local --sampler=fixed": "sampler='fixed': "
  "algorithm local has the first client in each round; leave sampler out",
  # Numbers out of range.
  "--alpha=0": "alpha=0: must be in (0, inf)",
  "--alpha=-1": "alpha=-1: must be in (0, inf)",
  "--alpha=nan": "alpha=nan: must be in (0, inf)",
  "--delta=-0.1": "delta=-0.1: must be in [0, inf)",
  "--l2=-1": "l2=-1: must be in [0, inf)",
  "--l2=nan": "l2=nan: must be in [0, inf)",
  "--client=sgd --client_lr=0.1,-1": "client_lr=-1: must be in [0, inf)",
  "--client=sgdm --client_momentum=1": "client_momentum=1: must be in [0, 1)",
  "--num_clients=0": "num_clients=0: must be a whole number in [1, inf)",
  "--cohort_size=101": "cohort_size=101: must be from 1 to the number of "
  "clients, 100",
  "--cohort_size=0": "cohort_size=0: must be from 1 to the number of clients, "
  "100",
  "--batch_size=501": "batch_size=501: larger than every client; the "
  "largest has 500 examples",
  "--batch_size=0": "batch_size=0: must be at least 1",
  "--rounds=-1": "rounds=-1: must not be negative",
  "--eval_every=0": "eval_every=0: must be at least 1",
  "--local_epochs=0": "local_epochs=0: must be above 0",
  "--local_steps=0": "local_steps=0: must be at least 1",
  "--client_chunk=0": "client_chunk=0: must be at least 1",
  "--seed=-1": "seed=-1: must be a whole number in [0, 4294967295]",
  "--seed=4294967296": "seed=4294967296: must be a whole number in "
  "[0, 4294967295]",
  "--examples_per_client=0": "examples_per_client=0: must be a whole number in "
  "[1, inf), or (low, high) with 1 <= low <= high",
  "--partition=shards --shards_per_client=0": "shards_per_client=0: must be a "
  "whole number in [1, inf)",
  "--partition=shards --shards_per_client=15": "shards_per_client=15: must be "
  "a whole number in [1, 12] for 1293 examples and 100 clients",
  "--partition=iid --num_clients=1294": "num_clients=1294: without replacement "
  "there must be an example for each client, so at most 1293",
  "--partition=class_q": "num_clients=100: must be 10, one client per class "
  "(of at least 2), for partition class_q",
  "--partition=class_q --num_clients=10 --class_fraction=0.05": "class_"
  "fraction=0.05: must be in [1/10, 1]",
  "--partition=class_q --num_clients=10 --class_fraction=1.5": "class_"
  "fraction=1.5: must be in (0, 1]",
  "--class_fraction=0.5": "class_fraction=0.5: belongs to partition class_q, "
  "not to partition "
  "dirichlet; give --partition=class_q, or leave class_fraction out",
  # What is no number, or no list of them.
  "--rounds=many": "rounds=many: must be a whole number",
  "--rounds=1.5": "rounds=1.5: must be a whole number",
  "--alpha=small": "alpha=small: must be a number",
  "--trace=5": "trace=5: must be true or false",
  "--client=sgd --client_lr=0.1,,x": "client_lr=0.1,,x: '' is not a number; "
  "must be numbers between commas, such as 0.01,0.1",
  "--client=sgd --client_lr=0.1,x": "client_lr=0.1,x: 'x' is not a number; "
  "must be numbers between commas, such as 0.01,0.1",
  "--client=sgd --client_lr=0.1,1,1e-1": "client_lr=0.1,1,1e-1: 0.1 is "
  "repeated; give it once",
  "--seed=0,1,0": "seed=0,1,0: 0 is repeated; give it once",
  "--seed=0.5": "seed=0.5: '0.5' is not a number; must be whole numbers "
  "between commas, such as 0,1,2",
  "--examples_per_client=few": "examples_per_client=few: must be a whole "
  "number, such as 500, or a range, such as 100-500",
  "--examples_per_client=5-": "examples_per_client=5-: must be a whole number, "
  "such as 500, or a range, such as 100-500",
  # What is no flag.
  "--roundz=3": "--roundz: no such flag; did you mean --rounds?",
  "--lr=0.1": "--lr: no such flag; did you mean --client_lr or --server_lr?",
  "--learning_rate=0.1": "--learning_rate: no such flag; did you mean "
  "--client_lr or --server_lr?",
  "--xyz=3": "--xyz: no such flag; --help lists all",
  "digits": "'digits': not a flag; flags are --name=value",
  "--rounds": "--rounds: has no value; give --rounds=VALUE",
  "--flagfile=/does/not/exist": "flagfile='/does/not/exist': cannot be read "
  "(No such file or "
  "directory); must be a file with a flag on each line",
  # Lists, where a run has one value.
  "--client=sgd,delta_sgd": "client=sgd,delta_sgd: a run has one client; "
  f"compare several: {COMPARE} --method='fed_avg client=sgd' "
  "--method='fed_avg client=delta_sgd'",
  "--algorithm=scaffold,fed_avg": "algorithm=scaffold,fed_avg: a run has one "
  f"algorithm; compare several: {COMPARE} --method=scaffold --method=fed_avg",
  f"{MID} --regularizer=l1,nuclear": "regularizer=l1,nuclear: a run has one "
  f"regularizer; compare several: {COMPARE} --method='fed_mid regularizer=l1' "
  "--method='fed_mid regularizer=nuclear'",
  "--client=sgd,foo": f"client='sgd,foo': must be one of {CLIENTS}; did "
  "you mean sgd?",
  "--alpha=0.1,0.5": "alpha=0.1,0.5: a run has one value of alpha; "
  f"{COMPARE} takes this list",
  "--local_steps=1,2": "local_steps=1,2: a run has one value of local_steps; "
  f"{COMPARE} takes this list",
  "--partition=iid,shards": "partition=iid,shards: a run has one partition; "
  f"{COMPARE} takes this list",
  "--rounds=10,20": "rounds=10,20: a run has one value of rounds; give one of "
  "them",
  "--task=digits,lasso": "task=digits,lasso: a run has one task; "
  f"{COMPARE} takes this list",
  "--alpha=0.1,x": "alpha=0.1,x: must be a number",
  # Words of other programs, and other ways to write a name.
  "--client-lr=0.1": "--client-lr: no such flag; did you mean --client_lr?",
  "--epochs=5": "--epochs: no such flag; did you mean --local_epochs?",
  "--dataset=mnist": "--dataset: no such flag; did you mean --task?",
  "--clients_per_round=5": "--clients_per_round: no such flag; did you mean "
  "--cohort_size?",
  "--momentum=0.9": "--momentum: no such flag; did you mean "
  "--algorithm_momentum or --client_momentum or --server_momentum?",
  "--algorithm=SCAFFOLD": "algorithm='SCAFFOLD': must be one of those that "
  "--list=algorithms shows; did you mean scaffold?",
  "--task=mnist": "task='mnist': must be one of those that --list=tasks shows; "
  "did you mean mnist_logistic or mnist_mlp or mnist_relu_mlp?",
  "client=sgd": "'client=sgd': not a flag; did you mean --client=sgd?",
  # Flags of what another choice has fixed.
  "--algorithm=fed_adam --server_momentum=0.9": "server_momentum=0.9: belongs "
  "to server sgdm, nesterov, not to server adam; leave server_momentum out",
  "--algorithm=scaffold --client_b1=0.9": "client_b1=0.9: belongs to client "
  "adam, adamw, yogi, fedopt_adam, fedopt_yogi, fedopt_adagrad, not to client "
  "sgd; "
  "leave client_b1 out",
  # Help.
  "--help=scafold": "help='scafold': no such group, choice or flag; did you "
  "mean scaffold?",
  "--help=zzz": "help='zzz': no such group, choice or flag; --list shows all "
  "choices",
  "--list=zzz": "list='zzz': no such kind; must be one of algorithms, client "
  "rules, server rules, regularizers, partitions, samplers, uploads, "
  "aggregators, faults, privacy, tasks, models",
  # Data.
  "--data_dir=/": "data_dir='/': task digits needs no data; leave data_dir out",
  "--task=lasso --data_dir=/": "data_dir='/': task lasso needs no data; leave "
  "data_dir out",
  "--task=mnist_cnn --data_dir=/does/not/exist": "data_dir='/does/not/exist': "
  "must be an existing folder",
  "--task=femnist10": "data_dir: task femnist10 needs it; must be a folder "
  "that holds emnist_all.sqlite.lzma or FedJAX's federated_emnist_*.sqlite",
  "--task=femnist62 --data_dir=/does/not/exist": "data_dir='/does/not/exist': "
  "must be emnist_all.sqlite.lzma or its "
  "folder (download https://storage.googleapis.com/tff-datasets-public/),"
  " or that of federated_emnist_train.sqlite and "
  "federated_emnist_test.sqlite",
}


@pytest.fixture
def compilations():
  """Grows by one for each program that XLA compiles."""
  names = []

  def note(name, *_, **__):
    if "backend_compile" in name:
      names.append(name)

  jax.monitoring.register_event_duration_secs_listener(note)
  yield names
  jax.monitoring.unregister_event_duration_listener(note)


def test_compilations_are_noticed(compilations):
  jax.jit(lambda x: x * 3.125)(1.0)
  assert compilations


def test_where_compiled_programs_are_kept(tmp_path):
  names = (
    "jax_compilation_cache_dir",
    "jax_persistent_cache_min_compile_time_secs",
  )
  values = lambda: [getattr(jax.config, name) for name in names]
  before = values()
  # The user's folder takes precedence.
  with compilation_cache.kept_in(str(tmp_path)):
    assert values() == before
  try:
    jax.config.update("jax_compilation_cache_dir", None)
    with compilation_cache.kept_in("none"):
      assert values() == [None, before[1]]
    with compilation_cache.kept_in(str(tmp_path)):
      assert values() == [str(tmp_path), 0.5]
    assert values() == [None, before[1]]
  finally:
    jax.config.update("jax_compilation_cache_dir", before[0])


@pytest.mark.parametrize("arguments", BAD_INPUT)
def test_bad_input(arguments, tmp_path, capsys, compilations):
  folder = tmp_path / "run"
  assert call(f"--output_dir={folder}", *arguments.split()) == 1
  captured = capsys.readouterr()
  message = BAD_INPUT[arguments].replace("{folder}", repr(str(folder)))
  assert captured.err == f"error: {message}\n"
  assert len(BAD_INPUT[arguments]) <= 210
  assert captured.out == ""
  assert not compilations
  assert not os.listdir(tmp_path)


def test_mnist_that_is_not_there(tmp_path, capsys, compilations, monkeypatch):
  pytest.importorskip("tensorflow_datasets")
  monkeypatch.setitem(sys.modules, "tensorflow", None)
  monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "data"))
  assert call("--task=mnist_cnn", f"--output_dir={tmp_path / 'run'}") == 1
  data = tmp_path / "data"
  assert capsys.readouterr().err == (
    f"error: data_dir='{data}': does not hold mnist in array_record format; "
    "prepare it, which needs TensorFlow: pip install tensorflow && python -c "
    "'import tensorflow_datasets as tfds; "
    f'tfds.builder("mnist", data_dir="{data}")'
    '.download_and_prepare(file_format="array_record")\'\n'
  )
  assert not compilations
  assert not os.listdir(tmp_path)


def test_fmri_in_a_folder_that_is_not_there(tmp_path, capsys, compilations):
  pytest.importorskip("nilearn")
  folders = ("--data_dir=/does/not/exist", f"--output_dir={tmp_path / 'run'}")
  assert call("--task=fmri", *folders) == 1
  assert capsys.readouterr().err == (
    "error: data_dir='/does/not/exist': must be an existing folder\n"
  )
  assert not compilations
  assert not os.listdir(tmp_path)


def other_run(folder):
  (folder / "config.json").write_text("{}")
  return folder, "holds another run (it has a config.json); give a folder that "


def other_file(folder):
  (folder / "thesis.tex").write_text("")
  return folder, "is not empty (it has 'thesis.tex'); give a folder that "


def below_a_file(folder):
  (folder / "file").write_text("")
  return folder / "file" / "run", f"'{folder / 'file'}' is a file; give a "


def no_name(folder):
  del folder
  return "", "must be the name of a folder; leave output_dir out for a new one"


def not_writable(folder):
  if not os.path.isdir("/proc"):
    pytest.skip("no folder that not even root may write")
  return pathlib.Path("/proc/fedjax_opt"), "cannot be written ("


def long_name(folder):
  return folder / ("x" * 1000), "cannot be written (File name too long); give "


@pytest.mark.parametrize(
  "make",
  [other_run, other_file, below_a_file, no_name, not_writable, long_name],
)
def test_bad_output_dir(make, tmp_path, capsys, compilations):
  folder, message = make(tmp_path)
  before = sorted(tmp_path.iterdir())
  assert call(f"--output_dir={folder}") == 1
  captured = capsys.readouterr()
  assert captured.err.startswith(f"error: output_dir='{folder}': {message}")
  assert captured.err.count("\n") == 1
  assert captured.out == ""
  assert not compilations
  assert sorted(tmp_path.iterdir()) == before


def test_missing_package(tmp_path, capsys, monkeypatch):
  monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
  assert call(f"--output_dir={tmp_path / 'run'}") == 1
  assert capsys.readouterr().err == (
    "error: pictures need matplotlib: pip install 'fedjax_opt[run]'\n"
  )


def test_too_little_memory_says_so_where_the_error_does_not(
  monkeypatch, tmp_path, capsys
):
  def fails(*_):
    raise MemoryError

  monkeypatch.setattr(run, "prepare", fails)
  assert call(f"--output_dir={tmp_path / 'run'}") == 1
  assert capsys.readouterr().err == "error: out of memory\n"
