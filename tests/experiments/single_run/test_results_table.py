"""docs/results.md names all that runs leave, and nothing else."""

import importlib.util
import re

import jax
import pytest

from experiments.single_run import extra_metrics
from fedjax_opt import load_run
from fedjax_opt.algorithms.centralized import Optimum
from tests.helpers.commands import REPOSITORY, call, task_of

RUNS = {
  "lasso": ("--task=lasso", "--algorithm=fed_dual_avg", "--optimum"),
  "stages": ("--task=nonconvex", "--algorithm=bvr_l_sgd"),
  "clients": (
    "--task=digits_logistic", "--num_clients=20", "--cohort_size=4",
    "--algorithm=moon", "--eta_0=0.1,1e38", "--seed=0,1",
    "--client_test_fraction=0.2", "--personalize_steps=1",
    "--heldout_clients=5", "--trace", "--max_update_norm=1",
    "--max_update_action=clip", "--select_on=clients", "--grad_norm",
    "--target_accuracy=0.5", "--checkpoint_every=1",
  ),
  "clock": (
    "--task=digits_logistic", "--num_clients=20", "--algorithm=fed_buff",
    "--client=sgd", "--system=lognormal", "--schedule=buffered",
    "--concurrency=4", "--buffer=2", "--target_accuracy=0.5",
  ),
}  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
  folder = tmp_path_factory.mktemp("runs")
  # Here names count, not the value.
  optimum = Optimum(None, 0.0, 0.0, 1)
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(extra_metrics, "optimum", lambda *_: optimum)
    for name, arguments in RUNS.items():
      flags = ("--rounds=1", "--noprogress", f"--output_dir={folder / name}")
      assert call(*arguments, *flags) == 0
  return [load_run(folder / name) for name in RUNS]


def names_of(row):
  """Those of `| `decile_1` to `decile_9` | ...`, or the only one."""
  first, last = re.match(r"\| `(.+?)`(?: to `(.+?)`)? \|", row).groups()
  if last is None:
    return [first]
  assert first[:-1] == last[:-1]
  return [f"{first[:-1]}{i}" for i in range(int(first[-1]), int(last[-1]) + 1)]


@pytest.fixture(scope="module")
def documented():
  """Title -> the names in the table below it."""
  text = (REPOSITORY / "docs" / "results.md").read_text()
  parts = re.split(r"^##+ (.*)\n", text, flags=re.MULTILINE)[1:]
  tables = {}
  for title, part in zip(parts[::2], parts[1::2], strict=True):
    rows = [line for line in part.splitlines() if line.startswith("|")][2:]
    names = [name for row in rows for name in names_of(row)]
    assert len(set(names)) == len(names)
    # A name, perhaps a unit, and a meaning.
    assert all(row.split("|")[-2].strip() for row in rows)
    tables[title] = set(names)
  return tables


@pytest.mark.slow
def test_every_column(runs, documented):
  columns = set()
  for run in runs:
    header = (run.folder / "metrics.csv").read_text().split("\n")[0].split(",")
    assert len(set(header)) == len(header)
    columns |= set(header)
  low_rank = task_of("--task=low_rank")
  params = jax.eval_shape(low_rank.init, jax.random.key(0))
  examples = (low_rank.clients, low_rank.test)
  columns |= set(
    jax.eval_shape(lambda p: low_rank.evaluate(p, *examples), params)
  )
  assert columns - {"eta_0"} == documented["Columns of metrics.csv"]


@pytest.mark.slow
def test_every_key_and_file(runs, documented):
  keys = lambda part: {key for run in runs for key in part(run.summary)}
  points = {key for run in runs for p in run.summary["points"] for key in p}
  assert keys(lambda s: s) == documented["Keys of summary.json"]
  assert points == documented["Keys of a point"]
  assert keys(lambda s: s["timing"]) == documented["Keys of timing"]
  assert keys(lambda s: s["cost"]) == documented["Keys of cost"]
  # One test, so that one process makes the runs.
  names = {path.name for run in runs for path in run.folder.iterdir()}
  if importlib.util.find_spec("tensorboardX") is None:
    names.add("tensorboard")
  assert names == documented["Files"]


@pytest.mark.slow
def test_every_column_of_clients(runs, documented):
  columns = set()
  for run in runs:
    for path in run.folder.glob("*client*.csv"):
      columns |= set(path.read_text().split("\n")[0].split(","))
  assert columns == documented["Columns of per_client.csv"]
  kinds = [run.summary.get("per_client", {}) for run in runs]
  keys = {key for part in kinds for of_kind in part.values() for key in of_kind}
  assert keys == documented["Keys of a kind of model"]
