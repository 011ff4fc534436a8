"""What all tests share."""

import atexit
import gc
import os
import shutil
import signal
import subprocess
import sys
import tempfile

import hypothesis
import pytest

# What `-m quick` runs, a look at each part for every change: whole files, or
# tests of them by the start of their names.
QUICK = (
  "tests/test_registry.py",
  "tests/test_contract.py::test_inert_bit_for_bit[scaffold]",
  "tests/test_contract.py::test_a_grid_equals_its_points[scaffold]",
  "tests/test_privacy.py::test_without_noise_it_is_the_loop[poisson]",
  "tests/algorithms/test_loops.py::test_equals_the_loop[moon]",
  "tests/algorithms/test_loops.py::test_equals_the_loop[fed_dual_avg]",
  "tests/prox/test_prox.py::test_known_points_and_values",
  "tests/repository/test_docs.py::test_the_readme_is_short",
  "tests/checks/test_inputs.py",
  "tests/study/test_verdicts.py",
  "tests/data/test_clients.py",
  "tests/data/test_partition.py",
  "tests/engine/test_batch_plan.py",
  "tests/arrays/test_counters.py",
  "tests/experiments/test_run.py::test_trace",
  "tests/experiments/command_line/test_help.py",
  "tests/models/test_models.py::test_shapes_and_parameters[",
  "tests/results/test_checkpoint.py::test_a_killed_run_goes_on_bit_for_bit[one]",
  "tests/results/test_run_folder.py",
  "tests/rules/test_rules_registry.py",
  "tests/transforms/test_uploads.py::test_fed_avg_is_the_loop[top_k_with",
)


pytest.register_assert_rewrite("tests.helpers")  # They show what differs.
# Tracing, and rewriting assertions, make many short-lived objects, few of them
# in cycles.
gc.set_threshold(50_000, 20, 100)


def _are_known_to_xla(flags: str) -> bool:
  """Whether this version has the flags; it ends a process that gives others."""
  command = [sys.executable, "-c", "import jax; jax.devices()"]
  env = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
  process = subprocess.run(command, env=env, capture_output=True, check=False)
  return process.returncode == 0


# Programs here are small and run for milliseconds: it is their compilation that
# takes the time. Set before JAX is imported, and inherited by subprocesses.
_FLAGS = {
  "xla_backend_optimization_level": "0",
  # The other cores have tests of their own.
  "xla_cpu_parallel_codegen_split_count": "1",
  # The older way to compile fusions is twice as fast at it.
  "xla_cpu_use_fusion_emitters": "false",
}
_flags = os.environ.get("XLA_FLAGS", "")
_added = " ".join(
  f"--{flag}={value}" for flag, value in _FLAGS.items() if flag not in _flags
)
# Workers of pytest-xdist have them from the process that began them.
if _added and _are_known_to_xla(_added):
  os.environ["XLA_FLAGS"] = f"{_flags} {_added}"
# What is drawn is the same in each run, so that a failure is not a matter of
# luck; HYPOTHESIS_PROFILE=default draws anew.
hypothesis.settings.register_profile("same", derandomize=True)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))
# A shell's background process ignores Ctrl-C, and so would the commands that
# tests begin, some of which they interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
  signal.signal(signal.SIGINT, signal.default_int_handler)
# Commands that tests begin run the same programs. In a process of tests hardly
# a program is found again, and to keep one takes longer than it saves.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
  _folder = tempfile.mkdtemp(prefix="fedjax_opt-programs-")
  atexit.register(shutil.rmtree, _folder, ignore_errors=True)
  os.environ["JAX_COMPILATION_CACHE_DIR"] = _folder
  os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.1"
  os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
  os.environ["JAX_ENABLE_COMPILATION_CACHE"] = "false"  # As JAX is imported.


def _only_quick(config):
  return config.getoption("markexpr") == "quick"


def pytest_ignore_collect(collection_path, config):
  """Files without a quick test are not imported if only those are run."""
  if not _only_quick(config) or collection_path.suffix != ".py":
    return None
  files = {name.partition("::")[0] for name in QUICK}
  path = collection_path.relative_to(config.rootpath).as_posix()
  return True if path not in files else None


def _is_slow_case(item):
  """Whether a marker of its test leaves a case to `-m slow`."""
  for marker in item.iter_markers("default_cases"):
    return item.callspec.id not in marker.args
  for marker in item.iter_markers("slow_cases"):
    return item.callspec.id in marker.args
  return False


def _unknown_cases(items):
  """Cases that a marker names and its test does not have."""
  named_ids, item_ids = set(), set()
  for item in items:
    for name in ("default_cases", "slow_cases"):
      for marker in item.iter_markers(name):
        test = item.nodeid.partition("[")[0]
        named_ids |= {f"{test}[{case}]" for case in marker.args}
        item_ids.add(item.nodeid)
  return named_ids - item_ids


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
  """Marks the quick ones, and the slow cases."""
  unknown = set(QUICK)
  for item in items:
    if _is_slow_case(item):
      item.add_marker(pytest.mark.slow)
    if item.nodeid.startswith(QUICK):
      item.add_marker(pytest.mark.quick)
      unknown -= {name for name in QUICK if item.nodeid.startswith(name)}
  if config.args == ["tests"]:
    if not _only_quick(config):
      exists = lambda name: (config.rootpath / name.partition("::")[0]).exists()
      unknown = _unknown_cases(items) | {n for n in QUICK if not exists(n)}
    if unknown:
      raise pytest.UsageError(f"tests: there are no {sorted(unknown)}")


def pytest_collection_finish():
  """What is loaded by now stays, and is not searched for garbage again."""
  gc.collect()
  gc.freeze()
  os.environ.pop("JAX_ENABLE_COMPILATION_CACHE", None)  # For commands.
