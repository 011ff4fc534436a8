"""The task `nonconvex`, as a user meets it on the command line."""

import csv
import json

import jax
import jax.numpy as jnp
import numpy as np

from experiments import run
from experiments.tasks import nonconvex
from fedjax_opt.data import synthetic


def call(*arguments):
  return run.main(["run", "--task=nonconvex", *arguments])


def test_a_short_run(tmp_path, capsys):
  status = call(
    "--algorithm=bvr_l_sgd", "--zeta=0.3", "--client_lr=0.003,0.03",
    "--local_steps=4", "--batch_size=2", "--rounds=6", "--eval_every=3",
    "--noprogress", f"--output_dir={tmp_path}",
  )  # fmt: skip
  assert status == 0
  captured = capsys.readouterr()
  assert captured.err == ""
  assert "lowest grad_norm_sq (last)" in captured.out

  with open(tmp_path / "metrics.csv", newline="") as file:
    rows = list(csv.DictReader(file))
  assert {"train_loss", "grad_norm_sq"} <= set(rows[0])
  assert not any(name.startswith("test_") for name in rows[0])
  # A row for each round and, within it, each rate.
  values = [float(row["grad_norm_sq"]) for row in rows]
  assert len(values) == 6
  assert values[0] == values[1] > values[4] > values[5]

  summary = json.loads((tmp_path / "summary.json").read_text())
  assert summary["config"]["zeta"] == 0.3
  assert summary["selected"] == 1
  assert (tmp_path / "curves.png").exists()
  assert not (tmp_path / "clients.png").exists()  # There are no labels.


def test_what_is_measured():
  task = nonconvex.nonconvex(2.0)
  x = task.init(jax.random.key(0))
  measured = jax.jit(task.evaluate)(x, task.clients, task.test)
  objective = synthetic.heterogeneous(0.0).objective
  gradient = jax.grad(objective)(x)
  assert set(measured) == {"train_loss", "grad_norm_sq"}
  np.testing.assert_allclose(measured["train_loss"], objective(x), rtol=1e-5)
  np.testing.assert_allclose(
    measured["grad_norm_sq"], jnp.sum(gradient**2), rtol=1e-4
  )
  other = task.init(jax.random.key(1))
  assert (x != other).all()
