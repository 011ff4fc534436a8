"""Records short runs of fedjax_opt, and compares two records bit for bit.

  cd CHECKOUT
  python tools/golden.py record DIR [--only NAME,...]
  python tools/golden.py compare DIR_A DIR_B [--only NAME,...]
  python tools/golden.py list

`record` runs the checkout in the current folder. Each run has parts, each part
is a process of its own, and DIR/NAME/PART holds what it left: metrics.csv,
summary.json (only what does not depend on the clock), traces.npz, params.npz
(the final parameters) and log.txt (what it printed, not compared); of a study
its table.csv, of an artefact the metrics of its runs. The runs are in
golden_runs.toml. It uses the command line and its output files, nothing
internal but the attribute that `_hook` replaces.

`compare` prints one line for each run: identical bit for bit, or what differs
(file, column or leaf) with the largest relative difference, of single numbers
and of the whole leaf. Columns that only B has are allowed, and listed. The exit
status is 0 if all are identical, else 1.
"""

import argparse
import csv
import json
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

# Columns of metrics.csv whose name has one of these depend on the clock.
CLOCK = ("seconds", "per_second", "wall")
# Of summary.json: the fields that do not depend on the clock or the folder.
SUMMARY = ("cost", "padding_waste", "points", "selected")


class Part(NamedTuple):
  """One process of a run.

  Attributes:
    flags: of the program.
    program: of `experiments`: run, compare or reproduce.
    own_data: arrays of a file that is made before and that the run reads.
    convert: flags of `experiments.convert`; makes the clients on disk before.
    devices: of the host, as JAX sees them.
    stop_after: rounds after which the run is ended by SIGTERM, and then goes
      on with --resume, in a new process; None for a run without a stop.
  """

  flags: Sequence[str]
  program: str = "run"
  own_data: Sequence[str] = ()
  convert: Sequence[str] = ()
  devices: int = 1
  stop_after: int | None = None


def runs() -> dict[str, dict[str, Part]]:
  """{run: {part: what it is}}."""
  file = pathlib.Path(__file__).with_name("golden_runs.toml")
  tables = tomllib.loads(file.read_text())
  split = lambda name, value: (
    shlex.split(value) if name in ("flags", "convert", "own_data") else value
  )
  return {
    run: {
      part: Part(**{name: split(name, value) for name, value in about.items()})
      for part, about in parts.items()
    }
    for run, parts in tables.items()
  }


RUNS = runs()


# What a process of a part does.


def _hook(job: Any, params_path: pathlib.Path, stop_after: int | None) -> None:
  """Makes a run save the parameters, and stop where it is told.

  Args:
    job: the module `experiments.single_run.job`.
    params_path: of the parameters.
    stop_after: see `Part`.
  """
  original = job.Job.simulate

  def simulate(prepared, on_evaluation=None, **options):
    def then_stop(report):
      is_over = on_evaluation(report)
      if report.round == stop_after:
        os.kill(os.getpid(), signal.SIGTERM)
      return is_over

    callback = on_evaluation if stop_after is None else then_stop
    result = original(prepared, on_evaluation=callback, **options)
    save_tree(params_path, result.params)
    return result

  job.Job.simulate = simulate


def save_tree(path: pathlib.Path, tree: Any) -> None:
  """Writes the leaves of a pytree by their key paths, {path: array}."""
  import jax

  leaves, _ = jax.tree_util.tree_flatten_with_path(jax.device_get(tree))
  names = [jax.tree_util.keystr(keys) or "." for keys, _ in leaves]
  np.savez(path, **dict(zip(names, [leaf for _, leaf in leaves], strict=True)))


def child(folder: pathlib.Path, stop_after: int | None, flags: Sequence[str]):
  """Runs the command line of the checkout in the current folder."""
  sys.path.insert(0, os.getcwd())
  import fedjax_opt

  path = pathlib.Path(fedjax_opt.__file__).resolve()
  print("fedjax_opt:", path)
  if pathlib.Path.cwd().resolve() not in path.parents:
    raise SystemExit(f"not the checkout in the current folder: {path}")
  from experiments import run
  from experiments.single_run import job

  _hook(job, folder / "params.npz", stop_after)
  return run.main(["run", *flags])


# Record.


def environment(devices: int) -> dict[str, str]:
  """Of a child process: nothing is kept, and so many devices of the host."""
  flags = [os.environ.get("XLA_FLAGS", "")]
  if devices > 1:
    flags.append(f"--xla_force_host_platform_device_count={devices}")
  return {
    **os.environ,
    "JAX_PLATFORMS": "cpu",
    "JAX_ENABLE_COMPILATION_CACHE": "0",
    "XLA_FLAGS": " ".join(filter(None, flags)),
  }


def call(
  command: Sequence[str], devices: int, log: pathlib.Path, expected: int = 0
) -> None:
  """Runs a process, and ends all with its last words if it fails."""
  with log.open("a") as file:
    file.write(f"$ {' '.join(command)}\n")
    file.flush()
    code = subprocess.run(
      command, env=environment(devices), stdout=file, stderr=file, check=False
    ).returncode
  if code != expected:
    tail = "\n".join(log.read_text().splitlines()[-15:])
    raise SystemExit(f"{log}: ended with {code}, not {expected}\n{tail}")


def record_part(part: Part, folder: pathlib.Path) -> None:
  """Runs one part, and keeps in its folder what is compared."""
  folder.mkdir(parents=True)
  log = folder / "log.txt"
  with tempfile.TemporaryDirectory(prefix="golden-") as scratch:
    output = pathlib.Path(scratch) / "run"
    flags = list(part.flags)
    if part.convert:
      clients = f"--population_dir={scratch}/clients"
      convert = [sys.executable, "-m", "experiments.convert"]
      call([*convert, *part.convert, clients], 1, log)
      flags.append(clients)
    if part.own_data:
      flags.append(f"--data_file={_own_data(scratch, part.own_data)}")
    flags.append(f"--output_dir={output}")
    if part.program != "reproduce":
      flags += ["--noprogress", "--compilation_cache=none"]
    if part.program != "run":
      program = [sys.executable, "-m", f"experiments.{part.program}"]
      call([*program, *flags], part.devices, log)
      _keep_tables(output, folder)
      return
    me = [sys.executable, str(pathlib.Path(__file__).resolve()), "_child"]

    def start(stop_after, more_flags, expected=0):
      command = [*me, str(folder), str(stop_after), *flags, *more_flags]
      call(command, part.devices, log, expected)

    if part.stop_after is not None:
      start(part.stop_after, [], 128 + signal.SIGTERM)
      start(None, ["--resume"])
    else:
      start(None, [])
    for name in ("metrics.csv", "traces.npz"):
      if (output / name).exists():
        shutil.copy(output / name, folder)
    if (output / "summary.json").exists():
      summary = json.loads((output / "summary.json").read_text())
      summary = {name: summary[name] for name in SUMMARY}
      text = json.dumps(summary, indent=1, sort_keys=True)
      (folder / "summary.json").write_text(text)


def _own_data(folder: str, names: Sequence[str]) -> pathlib.Path:
  """A file of 240 examples of three classes and twelve clients."""
  random = np.random.default_rng(0)
  y = np.arange(240) % 3
  x = (random.normal(size=(240, 5)) + y[:, None]).astype(np.float32)
  arrays = {"x": x, "y": y, "client_ids": np.arange(240) // 20}
  path = pathlib.Path(folder) / "arrays.npz"
  np.savez(path, **{name: arrays[name] for name in names})
  return path


def _keep_tables(output: pathlib.Path, folder: pathlib.Path) -> None:
  """Keeps a study's table, and an artefact's runs by their digests."""
  for path in output.glob("table.csv"):
    shutil.copy(path, folder)
  if not (folder / "table.csv").exists():
    for path in output.rglob("metrics.csv"):
      digest = path.parent.name.rpartition("-")[2]
      shutil.copy(path, folder / f"{digest}.csv")


def record(folder: pathlib.Path, names: Sequence[str]) -> None:
  """Runs the parts of those runs one after the other."""
  for name in names:
    start = time.monotonic()
    shutil.rmtree(folder / name, ignore_errors=True)
    for part_name, part in RUNS[name].items():
      record_part(part, folder / name / part_name)
    seconds = time.monotonic() - start
    print(f"{name}: {len(RUNS[name])} parts, {seconds:.0f} s", flush=True)


# Compare.


def differences(a: pathlib.Path, b: pathlib.Path) -> tuple[list, list]:
  """What differs between two folders of a part, and what only B has."""
  changes: list[str] = []
  additions: list[str] = []
  files = {path.name for folder in (a, b) for path in folder.iterdir()}
  for name in sorted(files - {"log.txt"}):
    first, second = contents(a / name), contents(b / name)
    if first is None or second is None:
      if first is not second:
        changes.append(f"{name}: only {'A' if second is None else 'B'} has it")
      continue
    extra = changes if name.endswith(".npz") else additions
    extra += [
      f"{name}, {key}: only B has it" for key in set(second) - set(first)
    ]
    for key, value in first.items():
      if name.endswith(".csv") and any(part in key for part in CLOCK):
        continue
      if key not in second:
        changes.append(f"{name}, {key}: B lacks it")
      elif not _is_same(value, second[key]):
        changes.append(f"{name}, {key}: {_difference(value, second[key])}")
  return changes, additions


def contents(path: pathlib.Path) -> dict[str, Any] | None:
  """What a file has, by name; None if it is not there."""
  if not path.exists():
    return None
  if path.suffix == ".npz":
    with np.load(path) as arrays:
      return dict(arrays)
  if path.suffix == ".json":
    return dict(_flat(json.loads(path.read_text())))
  with path.open(newline="") as file:
    head, *rows = csv.reader(file)
  return {name: [row[i] for row in rows] for i, name in enumerate(head)}


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
  """(path, value) of everything in what `json` gave."""
  if isinstance(value, (dict, list)):
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for name, item in items:
      yield from _flat(item, f"{path}.{name}" if path else str(name))
  else:
    yield path, value


def _is_same(a: Any, b: Any) -> bool:
  if not isinstance(a, np.ndarray):
    return a == b
  return _kind(a) == _kind(b) and a.tobytes() == b.tobytes()


def _kind(array: Any) -> str:
  return f"{array.dtype}{list(array.shape)}"


def _difference(a: Any, b: Any) -> str:
  """In words, of two values that are not the same."""
  if isinstance(a, np.ndarray):
    return (
      _relative(a, b) if _kind(a) == _kind(b) else f"{_kind(a)}, {_kind(b)}"
    )
  if isinstance(a, list) and len(a) == len(b):
    a, b = ([float(cell or "nan") for cell in column] for column in (a, b))
    return _relative(np.array(a), np.array(b))
  if all(isinstance(value, int | float) for value in (a, b)):
    return _relative(np.array([a]), np.array([b]))
  return f"{a!r} and {b!r}"


def _relative(a: np.ndarray, b: np.ndarray) -> str:
  """The largest relative difference, of single numbers and of the whole."""
  a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
  is_finite = np.isfinite(a) & np.isfinite(b)
  is_equal = np.where(np.isnan(a), np.isnan(b), a == b)
  odd = int(np.sum(~is_finite & ~is_equal))
  a, b = a[is_finite], b[is_finite]
  size, gap = np.maximum(abs(a), abs(b)), abs(a - b)
  single = np.max(gap / np.where(size > 0, size, 1), initial=0)
  overall = np.max(gap, initial=0) / (np.max(size, initial=0) or 1)
  text = f"relative {single:.1e}, of the largest {overall:.1e}"
  if not gap.any() and not odd:
    text = "other bits of the same numbers"
  return f"{text}, {odd} finite in one only" if odd else text


def compare(a: pathlib.Path, b: pathlib.Path, names: Sequence[str]) -> int:
  """Prints how the records differ; the exit status."""
  status = 0
  for name in names:
    parts = {p.name for f in (a, b) for p in (f / name).glob("*")}
    lines, new_lines = [], []
    for part in sorted(parts):
      first, second = a / name / part, b / name / part
      if not first.exists() or not second.exists():
        lines.append(f"{part}: only {'A' if first.exists() else 'B'} has it")
        continue
      changes, additions = differences(first, second)
      lines += [f"{part}: {line}" for line in changes]
      new_lines += [f"{part}: {line}" for line in additions]
    if not parts:
      lines.append("in neither record")
    verdict = f"differs ({len(lines)})" if lines else "identical"
    print(f"{name}: {verdict}, {len(parts)} parts")
    for line in lines:
      print(f"  {line}")
    for line in new_lines:
      print(f"  new in B: {line}")
    status = status or int(bool(lines))
  return status


def main() -> int:
  if sys.argv[1:2] == ["_child"]:
    _, _, folder, stop_after, *flags = sys.argv
    stop = None if stop_after == "None" else int(stop_after)
    return child(pathlib.Path(folder), stop, flags)
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument("what", choices=("record", "compare", "list"))
  parser.add_argument("folders", nargs="*", type=pathlib.Path)
  parser.add_argument("--only", help="names of runs, between commas")
  options = parser.parse_args()
  names = options.only.split(",") if options.only else list(RUNS)
  unknown = set(names) - set(RUNS)
  if unknown:
    parser.error(f"--only: no run {', '.join(sorted(unknown))}")
  if options.what == "list":
    for name in names:
      for part_name, part in RUNS[name].items():
        print(f"{name}/{part_name}: {' '.join(part.flags)}")
    return 0
  num_folders = 1 if options.what == "record" else 2
  if len(options.folders) != num_folders:
    parser.error(f"{options.what}: give {num_folders} folder(s)")
  if options.what == "record":
    record(options.folders[0], names)
    return 0
  return compare(*options.folders, names)


if __name__ == "__main__":
  sys.exit(main())
