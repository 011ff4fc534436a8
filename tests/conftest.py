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
# Programs that are lowered with the lines of their code take longer.
os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")
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
  return True if "mark.quick" not in collection_path.read_text() else None


# Markers of a test that give some of its cases another one, as they are named
# or as they are not.
_OF_CASES = {
  "default_cases": ("slow", False),
  "slow_cases": ("slow", True),
  "quick_cases": ("quick", True),
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
  """Marks the quick ones, and the slow cases."""
  unknown, ids = set(), {item.nodeid for item in items}
  for item in items:
    test = item.nodeid.partition("[")[0]
    for name, (mark, is_named) in _OF_CASES.items():
      for marker in item.iter_markers(name):
        if (item.callspec.id in marker.args) == is_named:
          item.add_marker(getattr(pytest.mark, mark))
        unknown |= {f"{test}[{case}]" for case in marker.args} - ids
  if unknown and config.args == ["tests"]:
    raise pytest.UsageError(f"tests: there are no {sorted(unknown)}")


def pytest_collection_finish():
  """What is loaded by now stays, and is not searched for garbage again."""
  gc.collect()
  gc.freeze()
  os.environ.pop("JAX_ENABLE_COMPILATION_CACHE", None)  # For commands.
