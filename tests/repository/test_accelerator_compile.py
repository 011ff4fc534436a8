"""Small runs, compiled for a GPU and TPUs that are not there; none is run.

With FEDJAX_OPT_ACCELERATOR_COMPILE=1 and the extras tpu-compile, gpu-compile.
"""

import contextlib
import importlib
import json
import os
import pathlib

import pytest

FOLDER = pathlib.Path(__file__).parents[2] / "benchmarks"


pytestmark = pytest.mark.skipif(
  os.environ.get("FEDJAX_OPT_ACCELERATOR_COMPILE") != "1",
  reason="needs compilers of accelerators; FEDJAX_OPT_ACCELERATOR_COMPILE=1",
)
# Equal clients without masks, as in the papers' image tasks.
EQUAL = (
  "--task={} --client={} --num_clients=20 --examples_per_client=50 "
  "--batch_size=10 --alpha=1"
)


@pytest.fixture
def load(monkeypatch):
  monkeypatch.syspath_prepend(str(FOLDER))
  # Those of other tests are for the processor; libtpu ends at one of them.
  monkeypatch.delenv("XLA_FLAGS", raising=False)
  return importlib.import_module


@pytest.fixture(scope="module")
def processes():
  """The process of the last target, by it and its flags, and what ends it.

  Tests of a target follow each other, as a process takes seconds to start.
  """
  with contextlib.ExitStack() as stack:
    yield {}, stack


@pytest.fixture
def compiled(load, processes):
  """`(target, flags) -> record` of accelerator_compile.py."""
  compiling = load("accelerator_compile")
  opened, stack = processes

  def of(target, flags, *of_xla):
    if (target, of_xla) not in opened:
      stack.close()
      opened.clear()
      variables = compiling.environment(target, *of_xla)
      process = load("shared").Process(compiling.__name__, variables=variables)
      opened[target, of_xla] = stack.enter_context(process)
    return opened[target, of_xla].call(
      "compile_here", target=target, flags=flags.split()
    )

  return of


@pytest.mark.parametrize(
  ("task", "client", "in_step", "in_rest"),
  [
    ("mnist_mlp", "sgd", 12, 17),
    ("mnist_mlp", "delta_sgd", 22, 24),
    ("mnist_cnn", "sgd", 35, 33),
  ],
)
def test_kernels_that_wait_for_each_other(
  compiled, load, task, client, in_step, in_rest
):
  """A round of a small model on a GPU takes as long as its kernels start."""
  compiling = load("accelerator_compile")
  flags = [compiling.WITHOUT_TILINGS] if task == "mnist_cnn" else []
  record = compiled("h100", EQUAL.format(task, client), *flags)
  kernels = compiling.kernels
  step, rest = kernels(record["loops"])
  assert 0 < step <= in_step
  assert 0 < rest <= in_rest


@pytest.mark.parametrize("target", ["v5e-1", "v5e-4"])
def test_a_tpu_has_the_programs_and_one_sum_a_phase(compiled, target):
  record = compiled(target, "--rounds=3")
  number = {"v5e-1": 1, "v5e-4": 4}[target]
  assert record["devices"] == number
  assert record["exchanges"] == (
    {} if number == 1 else {"all-gather": 1, "all-reduce": 1}
  )
  assert 0 < record["bytes"]["code"] < 10e6
  assert 0 < record["bytes"]["temporary"] < 1e9
  assert record["flops"] > 0


def test_a_grid_is_divided_over_chips(compiled):
  grid = "--client=sgd --client_lr=0.1,0.2,0.3,0.4 --seed=0,1"
  record = compiled("v5e-4", grid)
  assert record["devices"] == 4
  assert record["exchanges"] == {}  # Each chip has a setting of its own.


def test_a_model_is_divided_over_chips(compiled):
  flags = f"{EQUAL.format('mnist_mlp', 'sgd')} --client_devices=1"
  undivided, divided = (
    compiled("v5e-4", f"{flags} --model_devices={number}") for number in (1, 4)
  )
  assert (undivided["devices"], divided["devices"]) == (1, 4)
  assert divided["exchanges"]
  kernel = 4 * 784 * 100  # Bytes of the large one.
  num_bytes = undivided["bytes"]["arguments"] - divided["bytes"]["arguments"]
  assert num_bytes >= 0.75 * kernel


def test_what_is_compiled_is_not_compiled_again(load, tmp_path):
  accelerator_compile = load("accelerator_compile")
  arguments = [
    f"--output_dir={tmp_path}", "--targets=v5e-1", "--programs=digits_sgd",
    f"--data_dir={tmp_path}",
  ]  # fmt: skip
  accelerator_compile.main(arguments)
  record = json.loads((tmp_path / "records.json").read_text())
  (result,) = record.values()
  assert "error" not in result
  page = (tmp_path / "page.md").read_text()
  accelerator_compile.main(arguments)
  assert json.loads((tmp_path / "records.json").read_text()) == record
  assert (tmp_path / "page.md").read_text() == page
  assert "## 1 chip v5e\n" in page
  assert "| Digits, MLP, SGD | 1 |" in page
  assert "kernels" not in page  # XLA does not tell those of a TPU.
