"""Records short runs of fedjax_opt, and compares two records bit for bit.

  cd CHECKOUT
  python tests/golden.py record DIR [--only NAME,...]
  python tests/golden.py compare DIR_A DIR_B [--only NAME,...]
  python tests/golden.py list

`record` runs the checkout in the current folder. Each run has parts, each part
is a process of its own, and DIR/NAME/PART holds what it left: metrics.csv,
summary.json (only what does not depend on the clock), traces.npz, params.npz
(the final parameters) and log.txt (what it printed, not compared). It uses the
command line, its output files, and `fedjax_opt.simulate` as the README has it,
nothing internal but the attribute that `_hook` replaces.

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
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

# Columns of metrics.csv whose name has one of these depend on the clock.
CLOCK = ("seconds", "per_second", "wall")
# Of summary.json: the fields that do not depend on the clock or the folder.
SUMMARY = ("cost", "padding_waste", "points", "selected")


class Part(NamedTuple):
  """One process of a run.

  Attributes:
    flags: of `experiments.run`, or `["python", NAME]` for a function below.
    convert: flags of `experiments.convert`; makes the clients on disk before.
    devices: of the host, as JAX sees them.
    stop_after: rounds after which the run is ended by SIGTERM, and then goes
      on with --resume, in a new process; None for a run without a stop.
  """

  flags: Sequence[str]
  convert: Sequence[str] = ()
  devices: int = 1
  stop_after: int | None = None


def _run(text: str, **others: Any) -> Part:
  return Part(text.split(), **others)


# Small unequal clients, of which nearly all end with a batch that is not full.
_UNEVEN = "--num_clients=20 --examples_per_client=20-150 --batch_size=32"
_DIGITS = f"{_UNEVEN} --cohort_size=5 --rounds=6 --eval_every=3"
_LOGISTIC = f"--task=digits_logistic {_DIGITS}"
_SKEWED = (
  "--num_clients=20 --partition=size_skew --cohort_size=8 --batch_size=16 "
  "--rounds=4 --eval_every=2"
)
_OVERFLOWING = (
  "--task=digits_logistic --num_clients=20 --partition=size_skew "
  "--cohort_size=8 --batch_size=4 --rounds=6 --eval_every=2 --l2=14 "
  "--server_lr=1e-36"
)
_LASSO = "--task=lasso --rounds=6 --eval_every=2 --strength=0.01"
_NONCONVEX = "--task=nonconvex --rounds=8 --eval_every=4"
_RATES = "--client_lr=1e-4,3e-4,1e-3,1e-2,0.03,0.1,0.3,1 --server_lr=0.3,1"
_GRID = f"{_LASSO} --algorithm=fed_dual_avg {_RATES}"
_ON_DISK = ("--task=digits", "--num_clients=120", "--examples_per_client=10-60")
_STOPPED = "--checkpoint_every=3 --rounds=10 --eval_every=2"

RUNS: dict[str, dict[str, Part]] = {
  "delta_sgd": {
    "traced": _run(f"{_DIGITS} --trace --grad_norm"),
    "reused": _run(
      f"{_DIGITS} --trace --reuse_gradients --client_map=scan "
      "--local_epochs=1.5 --weighting=uniform"
    ),
    "grid": _run(
      f"{_LOGISTIC} --trace --gamma=1,2 --delta=0.1,0.5 --seed=0,1 --l2=0.01"
    ),
  },
  "rules": {
    "sgd": _run(
      f"{_DIGITS} --client=sgd --client_schedule=step_decay --local_steps=3 "
      "--sampling=replacement --seed=0,1 --client_lr=0.03,0.1"
    ),
    "adam": _run(f"{_DIGITS} --client=adam --algorithm=fed_adam"),
    "adagrad": _run(
      f"{_LOGISTIC} --client=adagrad --algorithm=fed_adagrad --drop_remainder"
    ),
    "sgdm": _run(
      f"{_LOGISTIC} --client=sgdm --algorithm=fed_avg_m --seed=0,1 "
      "--augmentation=crop_flip"
    ),
    "sps": _run(f"{_LOGISTIC} --client=sps --algorithm=fed_yogi"),
  },
  "client_terms": {
    "fed_prox": _run(
      f"{_DIGITS} --algorithm=fed_prox --client=sgd --mu=0.01,0.1,1"
    ),
    "moon": _run(f"{_DIGITS} --algorithm=moon --client=sgd --mu=0.5,1"),
    "scaffold": _run(f"{_LOGISTIC} --algorithm=scaffold --client_lr=0.05,0.1"),
    "scaffold_exact": _run(
      f"{_LOGISTIC} --algorithm=scaffold --exact_control --server_lr=0.5"
    ),
    "scaffold_on_host": _run(
      f"{_LOGISTIC} --algorithm=scaffold --client_memory=host "
      "--client_lr=0.05,0.1 --seed=0,1"
    ),
  },
  "composite": {
    "fed_mid": _run(
      f"{_LASSO} --algorithm=fed_mid --strength=0.01,0.1 --optimum"
    ),
    "fed_dual_avg_osp": _run(
      "--task=low_rank --rounds=4 --eval_every=2 --strength=0.1,1 "
      "--algorithm=fed_dual_avg_osp"
    ),
    "subgradient": _run(f"{_LASSO} --algorithm=fed_avg_subgradient"),
    "constraint": _run(
      f"{_LOGISTIC} --algorithm=fed_mid --regularizer=l2_ball --radius=0.5,2"
    ),
    "centralized": _run(f"{_LASSO} --algorithm=centralized"),
    "local": _run(f"{_LASSO} --algorithm=local"),
  },
  "variance_reduction": {
    "bvr": _run(f"{_NONCONVEX} --algorithm=bvr_l_sgd --local_steps=5"),
    "bvr_theory": _run(
      f"{_LOGISTIC} --algorithm=bvr_l_sgd --nopractical --large_batch=50"
    ),
    "sarah": _run(
      f"{_LOGISTIC} --algorithm=minibatch_sarah --client_lr=0.05,0.1"
    ),
    "minibatch_sgd": _run(f"{_NONCONVEX} --algorithm=minibatch_sgd"),
  },
  "momentum": {
    "domo": _run(f"{_LOGISTIC} --algorithm=domo --beta=0.5,0.9"),
    "domo_s": _run(f"{_LOGISTIC} --algorithm=domo_s --seed=0,1"),
    "slm": _run(f"{_LOGISTIC} --algorithm=fed_avg_slm --mu_l=0.3,0.6"),
  },
  "chunks": {
    "delta_sgd": _run(f"{_SKEWED} --client_chunk=3 --trace"),
    "moon": _run(f"{_SKEWED} --client_chunk=3 --algorithm=moon --client=sgd"),
    "scaffold": _run(
      f"--task=digits_logistic {_SKEWED} --client_chunk=3 --client_dropout=0.2 "
      "--algorithm=scaffold --client_lr=0.05,0.1"
    ),
  },
  "devices": {
    "clients": _run(f"{_SKEWED} --client=sgd --client_chunk=3", devices=2),
    "memory": _run(f"{_LOGISTIC} --algorithm=scaffold", devices=2),
    "grid": _run(
      f"{_LOGISTIC} --client=sgd --client_lr=0.03,0.1,0.3,1 --seed=0,1",
      devices=2,
    ),
  },
  "grid": {
    "dropped": _run(_GRID),
    "seeds": _run(
      f"{_GRID.replace('fed_dual_avg', 'fed_mid')} --seed=0,1 --grid_map=vmap"
    ),
    "scan": _run(f"{_GRID} --grid_map=scan"),
    "chunk": _run(f"{_GRID} --grid_chunk=5"),
  },
  "disk": {
    "fed_avg": _run(
      "--task=digits --cohort_size=6 --rounds=6 --eval_every=3 --batch_size=16 "
      "--client_dropout=0.2 --trace",
      convert=_ON_DISK,
    ),
    "grid": _run(
      "--task=digits_logistic --cohort_size=6 --rounds=6 --eval_every=3 "
      "--batch_size=16 --client=sgd --client_lr=0.03,0.1 --seed=0,1 "
      "--client_chunk=4",
      convert=_ON_DISK,
    ),
    "scaffold": _run(
      "--task=digits_logistic --cohort_size=6 --rounds=6 --eval_every=3 "
      "--batch_size=16 --algorithm=scaffold --client_memory=host",
      convert=_ON_DISK,
    ),
  },
  "faults": {
    "dropout": _run(f"{_DIGITS} --client_dropout=0.3 --trace"),
    "many_drop_out": _run(f"{_LOGISTIC} --client_dropout=0.8 --client=sgdm"),
    # Local steps multiply the model by about 1 - 14 client_lr: that of large
    # clients overflows, and only a trace of the others' reaches the server.
    "rejected": _run(f"{_OVERFLOWING} --client=sgd --client_lr=0.1,0.5,1"),
    "rejected_with_memory": _run(
      f"{_OVERFLOWING} --algorithm=scaffold --client_lr=0.5,1 "
      "--client_dropout=0.2"
    ),
    "rejected_in_chunks": _run(
      f"{_OVERFLOWING} --algorithm=moon --task=digits --client=sgd "
      "--client_lr=1 --client_chunk=3"
    ),
    "all_rejected": _run(
      "--task=lasso --rounds=6 --eval_every=2 --client=sgd "
      "--client_lr=1e-3,0.02,1e30 --grid_map=vmap"
    ),
  },
  "resume": {
    "grid_whole": _run(f"{_GRID} {_STOPPED}"),
    "grid_resumed": _run(f"{_GRID} {_STOPPED}", stop_after=4),
    "memory_resumed": _run(
      f"{_LOGISTIC} --algorithm=scaffold --client_memory=host "
      f"--client_lr=0.05,0.1 {_STOPPED}",
      stop_after=6,
    ),
    "traces_resumed": _run(f"{_DIGITS} --trace {_STOPPED}", stop_after=6),
    "disk_resumed": _run(
      "--task=digits_logistic --cohort_size=6 --batch_size=16 --client=sgdm "
      f"{_STOPPED}",
      convert=_ON_DISK,
      stop_after=6,
    ),
  },
  "numerics": {
    "mixed": _run(f"{_DIGITS} --precision=mixed --l2=0.01"),
    "bfloat16": _run(
      f"{_DIGITS} --precision=bfloat16 --client=adam --algorithm=fed_prox"
    ),
    "cnn": _run(
      f"--task=digits_cnn {_UNEVEN} --cohort_size=2 --rounds=2 --eval_every=1 "
      "--augmentation=crop_flip --client=sgd"
    ),
    "batch_norm": _run(
      "--task=digits_resnet20 --norm=batch --drop_remainder --num_clients=6 "
      "--examples_per_client=20-40 --cohort_size=2 --batch_size=8 "
      "--local_steps=2 --client=sgd --client_lr=0.05 --client_map=scan "
      "--rounds=2 --eval_every=1"
    ),
  },
  "simulate": {
    name: Part(["python", name])
    for name in ("delta_sgd", "scaffold", "disk", "momentum")
  },
}


# What a process of a part does.


def _hook(run: Any, params_path: pathlib.Path, stop_after: int | None) -> None:
  """Makes `experiments.run` save the parameters, and stop where it is told.

  Args:
    run: the module `experiments.run`.
    params_path: of the parameters.
    stop_after: see `Part`.
  """
  original = run.sweep

  def sweep(*args, on_evaluation=None, **settings):
    def then_stop(report):
      on_evaluation(report)
      if report.round == stop_after:
        os.kill(os.getpid(), signal.SIGTERM)

    told = on_evaluation if stop_after is None else then_stop
    result = original(*args, on_evaluation=told, **settings)
    save_tree(params_path, result.params)
    return result

  run.sweep = sweep


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

  where = pathlib.Path(fedjax_opt.__file__).resolve()
  print("fedjax_opt:", where)
  if pathlib.Path.cwd().resolve() not in where.parents:
    raise SystemExit(f"not the checkout in the current folder: {where}")
  if flags[0] == "python":
    save_python(folder, PYTHON[flags[1]](folder))
    return 0
  from experiments import run

  _hook(run, folder / "params.npz", stop_after)
  return run.main(["run", *flags])


# Runs from Python: `simulate`, where the command line has `sweep`.


def _problem():
  """Softmax regression on the digits: loss_fn, evaluate, params, data, test."""
  import jax.numpy as jnp
  import optax

  import fedjax_opt as fo

  train, test = fo.data.embedded.digits()
  sizes = 5 + 7 * np.arange(12)
  rows = np.split(np.arange(sizes.sum()), np.cumsum(sizes)[:-1])
  data = fo.ClientData.from_partition(train, rows)

  def logits(params, batch):
    x = batch["x"].reshape(len(batch["x"]), -1) / 16
    return x @ params["kernel"] + params["bias"]

  def loss_fn(params, batch, rng):
    del rng
    cross_entropy = optax.softmax_cross_entropy_with_integer_labels
    return cross_entropy(logits(params, batch), batch["y"])

  def per_example(params, batch):
    right = logits(params, batch).argmax(-1) == batch["y"]
    return {"loss": loss_fn(params, batch, None), "accuracy": right * 1.0}

  params = {"kernel": jnp.zeros((64, 10)), "bias": jnp.zeros(10)}
  evaluate = fo.evaluation.federated(per_example)
  return loss_fn, evaluate, params, data, test


_SETTINGS = {"rounds": 8, "cohort_size": 5, "batch_size": 16, "eval_every": 3}


def python_delta_sgd(folder: pathlib.Path) -> Any:
  """With traces, chunks of clients, a server's rule and dropout."""
  import optax

  import fedjax_opt as fo

  del folder
  loss_fn, evaluate, params, data, test = _problem()
  algorithm = fo.fed_avg(loss_fn, fo.delta_sgd(), optax.adam(0.01))
  return fo.simulate(
    algorithm, params, data, seed=3, test=test, evaluate=evaluate,
    trace=("step_size",), client_chunk=2, client_dropout=0.1,
    local_epochs=1.5, **_SETTINGS,
  )  # fmt: skip


def python_scaffold(folder: pathlib.Path) -> Any:
  """With the memory on the host, and checkpoints from which it goes on."""
  import fedjax_opt as fo

  loss_fn, evaluate, params, data, test = _problem()

  def run(**others):
    return fo.simulate(
      fo.scaffold(loss_fn, 0.1), params, data, test=test, evaluate=evaluate,
      client_memory="host", **(_SETTINGS | others),
    )  # fmt: skip

  checkpoints = folder / "checkpoints"
  run(checkpoints=fo.Checkpoints(checkpoints, every=4))
  newest = max(checkpoints.iterdir(), key=lambda path: path.name)
  shutil.rmtree(newest)
  again = fo.Checkpoints(checkpoints, every=4, resume=True)
  result = run(checkpoints=again)
  shutil.rmtree(checkpoints)
  return result


def python_disk(folder: pathlib.Path) -> Any:
  """With clients on disk."""
  import optax

  import fedjax_opt as fo

  loss_fn, evaluate, params, data, test = _problem()
  clients = (
    {name: leaf[rows[:size]] for name, leaf in data.examples.items()}
    for rows, size in zip(data.indices, data.sizes, strict=True)
  )
  written = folder / "clients"
  fo.Population.write(written, clients)
  result = fo.simulate(
    fo.fed_avg(loss_fn, optax.sgd(0.1)), params, fo.Population.open(written),
    test=test, evaluate=evaluate, **_SETTINGS,
  )  # fmt: skip
  shutil.rmtree(written)
  return result


def python_momentum(folder: pathlib.Path) -> Any:
  """Without an evaluation, one client after the other, in bfloat16."""
  import optax

  import fedjax_opt as fo

  del folder
  loss_fn, _, params, data, _ = _problem()
  algorithm = fo.fed_avg(loss_fn, optax.sgd(0.1, momentum=0.9))
  return fo.simulate(
    algorithm, params, data, replacement=True, weighting="uniform",
    client_map="scan", precision="mixed", **_SETTINGS,
  )  # fmt: skip


PYTHON: dict[str, Callable[[pathlib.Path], Any]] = {
  "delta_sgd": python_delta_sgd,
  "scaffold": python_scaffold,
  "disk": python_disk,
  "momentum": python_momentum,
}


def save_python(folder: pathlib.Path, result: Any) -> None:
  """Writes what `simulate` gave, in the files of the command line."""
  save_tree(folder / "params.npz", result.params)
  if result.traces:
    np.savez(folder / "traces.npz", **result.traces)
  columns = {n: np.ravel(v) for n, v in result.history.metrics.items()}
  lines = [["round", *columns]]
  for row, done in enumerate(result.history.rounds):
    lines.append([str(done), *[repr(float(v[row])) for v in columns.values()]])
  text = "".join(",".join(line) + "\n" for line in lines)
  (folder / "metrics.csv").write_text(text)
  summary = {"cost": result.cost, "padding_waste": float(result.padding_waste)}
  (folder / "summary.json").write_text(json.dumps(summary))


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
    if flags[0] != "python":
      flags += [f"--output_dir={output}", "--noprogress"]
      flags.append("--compilation_cache=none")
    me = [sys.executable, str(pathlib.Path(__file__).resolve()), "_child"]

    def start(stop_after, more, expected=0):
      command = [*me, str(folder), str(stop_after), *flags, *more]
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


def record(folder: pathlib.Path, names: Sequence[str]) -> None:
  """Runs the parts of those runs one after the other."""
  for name in names:
    start = time.monotonic()
    shutil.rmtree(folder / name, ignore_errors=True)
    for part, what in RUNS[name].items():
      record_part(what, folder / name / part)
    seconds = time.monotonic() - start
    print(f"{name}: {len(RUNS[name])} parts, {seconds:.0f} s", flush=True)


# Compare.


def differences(a: pathlib.Path, b: pathlib.Path) -> tuple[list, list]:
  """What differs between two folders of a part, and what only B has."""
  found: list[str] = []
  new: list[str] = []
  for name in ("metrics.csv", "summary.json", "traces.npz", "params.npz"):
    first, second = a / name, b / name
    if not first.exists() and not second.exists():
      continue
    if not first.exists() or not second.exists():
      where = "A" if first.exists() else "B"
      found.append(f"{name}: only {where} has it")
    elif name == "metrics.csv":
      found += _compare_csv(first, second, new)
    elif name == "summary.json":
      values = [dict(_flat(json.loads(p.read_text()))) for p in (first, second)]
      found += _compare_values(name, *values, new)
    else:
      found += _compare_arrays(name, first, second)
  return found, new


def _compare_csv(a: pathlib.Path, b: pathlib.Path, new: list) -> Iterator[str]:
  if a.read_bytes() == b.read_bytes():
    return
  first, second = _columns(a), _columns(b)
  new += [f"column {name}" for name in second if name not in first]
  for name, cells in first.items():
    if any(part in name for part in CLOCK):
      continue
    where = f"metrics.csv, column {name}"
    if name not in second:
      yield f"{where}: B lacks it"
    elif len(cells) != len(second[name]):
      yield f"{where}: {len(cells)} rows and {len(second[name])}"
    elif cells != second[name]:
      both = [np.array([float(c or "nan") for c in column])
              for column in (cells, second[name])]  # fmt: skip
      yield f"{where}: {_relative(*both)}"


def _columns(path: pathlib.Path) -> dict[str, list[str]]:
  with path.open(newline="") as file:
    head, *rows = csv.reader(file)
  return {name: [row[i] for row in rows] for i, name in enumerate(head)}


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
  """(path, value) of everything in what `json` gave."""
  if isinstance(value, (dict, list)):
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for name, inside in items:
      yield from _flat(inside, f"{path}.{name}" if path else str(name))
  else:
    yield path, value


def _compare_values(
  file: str, a: Mapping[str, Any], b: Mapping[str, Any], new: list
) -> Iterator[str]:
  new += [f"{file} {name}" for name in b if name not in a]
  for name, value in a.items():
    if name not in b:
      yield f"{file}, {name}: B lacks it"
    elif value != b[name]:
      numbers = [isinstance(v, (int, float)) for v in (value, b[name])]
      shown = f"{value!r} and {b[name]!r}"
      if all(numbers):
        shown = _relative(np.array([value]), np.array([b[name]]))
      yield f"{file}, {name}: {shown}"


def _compare_arrays(
  file: str, a: pathlib.Path, b: pathlib.Path
) -> Iterator[str]:
  with np.load(a) as first, np.load(b) as second:
    for name in sorted({*first.files, *second.files}):
      if name not in first.files or name not in second.files:
        yield f"{file}, {name}: only {'A' if name in first.files else 'B'}"
        continue
      one, other = first[name], second[name]
      kinds = [f"{x.dtype}{list(x.shape)}" for x in (one, other)]
      if kinds[0] != kinds[1]:
        yield f"{file}, {name}: {kinds[0]} and {kinds[1]}"
      elif one.tobytes() != other.tobytes():
        yield f"{file}, {name}: {_relative(one, other)}"


def _relative(a: np.ndarray, b: np.ndarray) -> str:
  """The largest relative difference, of single numbers and of the whole."""
  a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
  is_finite = np.isfinite(a) & np.isfinite(b)
  alike = np.where(np.isnan(a), np.isnan(b), a == b)
  odd = int(np.sum(~is_finite & ~alike))
  a, b = a[is_finite], b[is_finite]
  size, gap = np.maximum(abs(a), abs(b)), abs(a - b)
  single = np.max(gap / np.where(size > 0, size, 1), initial=0)
  whole = np.max(gap, initial=0) / (np.max(size, initial=0) or 1)
  text = f"relative {single:.1e}, of the largest {whole:.1e}"
  if not gap.any() and not odd:
    text = "other bits of the same numbers"
  return f"{text}, {odd} finite in one only" if odd else text


def compare(a: pathlib.Path, b: pathlib.Path, names: Sequence[str]) -> int:
  """Prints how the records differ; the exit status."""
  status = 0
  for name in names:
    parts = {p.name for f in (a, b) for p in (f / name).glob("*")}
    lines, news = [], []
    for part in sorted(parts):
      first, second = a / name / part, b / name / part
      if not first.exists() or not second.exists():
        lines.append(f"{part}: only {'A' if first.exists() else 'B'} has it")
        continue
      found, new = differences(first, second)
      lines += [f"{part}: {line}" for line in found]
      news += [f"{part}: {line}" for line in new]
    if not parts:
      lines.append("in neither record")
    verdict = f"differs ({len(lines)})" if lines else "identical"
    print(f"{name}: {verdict}, {len(parts)} parts")
    for line in lines:
      print(f"  {line}")
    for line in news:
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
      for part, what in RUNS[name].items():
        print(f"{name}/{part}: {' '.join(what.flags)}")
    return 0
  wanted = 1 if options.what == "record" else 2
  if len(options.folders) != wanted:
    parser.error(f"{options.what}: give {wanted} folder(s)")
  if options.what == "record":
    record(options.folders[0], names)
    return 0
  return compare(*options.folders, names)


if __name__ == "__main__":
  sys.exit(main())
