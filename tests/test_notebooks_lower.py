"""The notebooks' programs, at their sizes for accelerators.

All are lowered for TPU and CUDA. With FEDJAX_OPT_TPU_COMPILE=1 and libtpu from
pip, which takes minutes, those of some are compiled for a TPU v5e as Colab
lends it.
"""

import importlib.util
import json
import os
import re
import subprocess
import sys

import pytest

from tests.experiments.commands import REPOSITORY
from tests.notebook_programs import PLATFORMS, V5E_BYTES

NOTEBOOKS = sorted((REPOSITORY / "notebooks").glob("[0-9][0-9]_*.py"))
COMPILED = [path for path in NOTEBOOKS if path.stem[:2] in ("01", "03", "06")]
DIVIDED = [path for path in NOTEBOOKS if path.stem.startswith("06")]
STAND_IN = """
import os
import jax
import numpy as np
import optax
import fedjax_opt as fo

rng = np.random.default_rng(0)
pool = {"x": rng.normal(size=(48, 3)), "y": rng.normal(size=48)}
data = fo.ClientData.from_partition(pool, np.arange(48).reshape(8, 6))


def loss_fn(params, batch, rng):
  return (batch["x"] @ params["w"] - batch["y"]) ** 2


per_example = lambda params, batch: {"loss": loss_fn(params, batch, None)}
result = fo.sweep(
  lambda rate: fo.fed_avg(loss_fn, client=optax.sgd(rate)),
  {"rate": [0.1, 0.2, 0.3, 0.4]},
  lambda key: {"w": jax.random.normal(key, (3,))},
  data,
  rounds=10**9,  # As none is run.
  eval_every=10**9,
  cohort_size=4,
  batch_size=2,
  local_steps=2,
  evaluate=fo.evaluation.federated(per_example),
)
fo.plots.curves(result.history, fo.grid_points({"rate": range(4)}), None)
doubled = jax.jit(lambda x, by: x * by, static_argnames="by")
print(os.environ["FEDJAX_OPT_NOTEBOOK_SIZES"], doubled(np.ones(2), by=2))
assert result.params["w"].any()
try:
  jax.jit(jax.numpy.linalg.eig)(np.eye(2))
except NotImplementedError as error:
  print(error)
"""


def programs_of(notebook, folder, *chips, devices=1):
  """What tests/notebook_programs.py finds, and what the notebook prints."""
  found = folder / "found.json"
  flags = os.environ.get("XLA_FLAGS", "")
  paths = [str(REPOSITORY), os.environ.get("PYTHONPATH", "")]
  program = ("-m", "tests.notebook_programs", notebook, found, *chips)
  done = subprocess.run(
    # What a notebook asserts of its results does not hold of zeros.
    (sys.executable, "-O", *program),
    cwd=folder,
    env=os.environ
    | {
      "PYTHONPATH": os.pathsep.join(filter(None, paths)),
      "JAX_NUM_CPU_DEVICES": str(devices),
      "XLA_FLAGS": "" if chips else flags,  # libtpu refuses those of the CPU.
    },
    capture_output=True,
    text=True,
  )
  assert done.returncode == 0, done.stderr[-4000:]
  return json.loads(found.read_text()), done.stdout


def check_lowered(programs):
  assert "rounds" in {program["name"] for program in programs}
  for program in programs:
    assert tuple(program["platforms"]) == PLATFORMS, program


def test_nothing_is_run_also_over_several_devices(tmp_path):
  notebook = tmp_path / "stand_in.py"
  notebook.write_text(STAND_IN)
  programs, printed = programs_of(notebook, tmp_path, devices=4)
  check_lowered(programs)
  first, of_no_tpu = printed.split("\n", 1)
  assert first == "accelerator [0. 0.]"
  assert re.search(r"eig.*tpu", of_no_tpu)
  devices = {program["name"]: program["devices"] for program in programs}
  assert (devices["rounds"], devices["evaluation"]) == (4, 4)


# Together they take more than a minute, and up to 4 GB.
when_asked = pytest.mark.skipif(
  os.environ.get("FEDJAX_OPT_LOWER") != "1",
  reason="takes minutes; set FEDJAX_OPT_LOWER=1",
)


@when_asked
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_lowered_for_tpu_and_cuda(notebook, tmp_path):
  programs, _ = programs_of(notebook, tmp_path)
  check_lowered(programs)


@when_asked
@pytest.mark.parametrize("notebook", DIVIDED, ids=lambda path: path.stem)
def test_lowered_for_several_devices(notebook, tmp_path):
  programs, _ = programs_of(notebook, tmp_path, devices=4)
  check_lowered(programs)
  assert max(program["devices"] for program in programs) == 4


@pytest.mark.skipif(
  os.environ.get("FEDJAX_OPT_TPU_COMPILE") != "1",
  reason="takes minutes; set FEDJAX_OPT_TPU_COMPILE=1",
)
@pytest.mark.skipif(
  importlib.util.find_spec("libtpu") is None,
  reason="the compiler is not there; pip install libtpu",
)
@pytest.mark.parametrize("notebook", COMPILED, ids=lambda path: path.stem)
def test_fits_a_tpu_v5e(notebook, tmp_path):
  programs, _ = programs_of(notebook, tmp_path, "v5e")
  for program in programs:
    print(
      f"{notebook.stem} {program['name']}: {program['bytes'] / 1e6:.1f} MB, "
      f"compiled in {program['compile_seconds']:.1f} s"
    )
    assert program["bytes"] < V5E_BYTES, program
