"""Runs that train some leaves of the model: --trainable."""

import jax
import numpy as np
import pytest

from fedjax_opt import load_run
from tests.experiments.commands import call, task_of

TRAINABLE = "output,layers_0/bias"
SHORT = (
  "--task=digits_mlp", "--num_clients=4", "--examples_per_client=40",
  "--rounds=2", "--eval_every=1", "--cohort_size=2", "--batch_size=8",
  "--noprogress",
)  # fmt: skip


def leaves_of(params):
  return {
    jax.tree_util.keystr(at, simple=True, separator="/"): np.asarray(leaf)
    for at, leaf in jax.tree_util.tree_leaves_with_path(params)
  }


def test_only_those_leaves_move_and_are_sent(tmp_path):
  folder = tmp_path / "run"
  arguments = (
    *SHORT, "--client=sgd", f"--trainable={TRAINABLE}",
    "--grad_norm", "--client_lr=0.1,0.5", "--seed=0,3",
    "--client_test_fraction=0.3", "--personalize_steps=2",
  )  # fmt: skip
  assert call(*arguments, f"--output_dir={folder}") == 0
  run = load_run(folder)
  assert run.config["trainable"] == TRAINABLE
  task = task_of(*SHORT)
  best = run.points[run.selected]
  before = leaves_of(jax.jit(task.init)(jax.random.key(best["seed"])))
  after = leaves_of(run.params)
  assert set(before) == set(after)
  trained = {"output/kernel", "output/bias", "layers_0/bias"}
  for name in before:
    # The seeds are drawn together, which may round differently.
    same = np.allclose(before[name], after[name], rtol=1e-6, atol=1e-7)
    assert same != (name in trained), name
  of_message = sum(after[name].nbytes for name in trained)
  assert run.summary["cost"]["bytes_up_per_round"] == of_message
  assert set(run.summary["per_client"]) == {"global", "personalized"}


@pytest.mark.parametrize(
  ("paths", "found"),
  [("outputs", "layers_0, output"), ("layers_0/kern", "layers_0/bias, ")],
)
def test_paths_that_match_no_leaf(tmp_path, refused, paths, found):
  folder = tmp_path / "run"
  said = refused(*SHORT, f"--trainable={paths}", f"--output_dir={folder}")
  message = f"trainable={paths!r}: matches no leaf of the model; must be among "
  assert said.startswith(f"{message}{found}")
  assert not folder.exists()
