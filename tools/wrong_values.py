"""Gives every public function wrong values, one argument at a time.

  python -m tools.wrong_values --folder=NEW_FOLDER [PATTERN ...]

The functions and classes are all that users reach from `fedjax_opt`; a pattern
such as `prox.*` takes some of them. The other arguments are valid, from the
table EXAMPLES. A wrong value must be refused in one line that names the
argument; or be accepted because the description of the argument accepts it, or
for a reason in wrong_values.toml. It prints how many calls there were, those
that ended in anything else, and what was accepted for which reason.

What became of each argument is kept in the folder: a run that was stopped goes
on there, and several may run at once.
"""

import argparse
import collections
import contextlib
import fnmatch
import inspect
import json
import os
import pathlib
import re
import resource
import signal
import tempfile
import tomllib
import types
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas
import PIL.Image
import scipy.sparse
from matplotlib.figure import Figure

import fedjax_opt as fo
from fedjax_opt.checks import errors
from fedjax_opt.models import layers
from fedjax_opt.results.history import History
from tests.helpers import linear, public_names
from tools import bit_flips

# A call that takes more seconds hangs.
LIMIT = 30
# Bytes that a call may take beside what the process has.
MEMORY = 6 << 30
_FILE = pathlib.Path(__file__).with_suffix(".toml")
# Pattern of function.argument=kind of value -> why that is accepted.
ACCEPTED = tomllib.loads(_FILE.read_text())
FOLDER = tempfile.mkdtemp()
OTHER_CLIENTS = fo.ClientData.from_client_ids(
  {"x": linear.X + 1, "y": linear.Y}, linear.OWNERS
)
TRAIN, HELD_OUT = linear.DATA.split(0.4)


CLIENTS = pathlib.Path(FOLDER) / "clients.npz"
linear.DATA.to_npz(CLIENTS)


def _fresh(call):
  """An argument that is new in each call."""
  call.is_fresh = True
  return call


@_fresh
def new_folder():
  return tempfile.mkdtemp()


@_fresh
def population():
  folder = tempfile.mkdtemp()
  fo.Population.of_client_data(folder, linear.DATA)
  return folder


@_fresh
def run_folder():
  bit_flips.run(folder := pathlib.Path(tempfile.mkdtemp()) / "run")
  return folder


def _deleted():
  array = jnp.zeros(3)
  array.delete()
  return array


# Kind -> what makes a value that nearly no argument accepts.
OF_NO_KIND = {
  "True": lambda: True,
  "10**400": lambda: 10**400,
  "nan": lambda: float("nan"),
  "complex": lambda: 1j,
  "text": lambda: "zzz",
  "bytes": lambda: b"abc",
  "object": object,
  "class": lambda: dict,
  "function of nothing": lambda: lambda: 0,
  "module": lambda: fo,
  "set": lambda: {1, 2},
  "empty list": list,
  "list of None": lambda: [None],
  "deep list": lambda: [[[1.0]], [2.0, 3.0]],
  "empty dict": dict,
  "dict of text": lambda: {"x": "a"},
  "empty array": lambda: np.zeros((0, 3), np.float32),
  "array of text": lambda: np.array(["a", "b"]),
  "array of objects": lambda: np.array([object(), None]),
  "big-endian": lambda: np.ones(4, ">f4"),
  "masked": lambda: np.ma.masked_array(np.ones(4), [0, 1, 0, 0]),
  "sparse": lambda: scipy.sparse.eye(3),
  "key": lambda: jax.random.key(0),
  "shapes": lambda: jax.ShapeDtypeStruct((3,), jnp.float32),
}
# With those that some arguments accept.
WRONG = OF_NO_KIND | {
  "None": lambda: None,
  "-1": lambda: -1,
  "1.5": lambda: 1.5,
  "10**12": lambda: 10**12,
  "inf": lambda: float("inf"),
  "empty text": lambda: "",
  "function of five": lambda: lambda a, b, c, d, e: 0,
  "dict of None": lambda: {"x": None},
  "generator": lambda: (i for i in ()),
  "array of 4 axes": lambda: np.zeros((2, 2, 2, 2), np.float32),
  "array of NaN": lambda: np.full((4, 3), np.nan, np.float32),
  "complex array": lambda: np.ones(3, np.complex64),
  "masked pool": lambda: {
    "x": np.ma.masked_array(linear.X, linear.X > 0),
    "y": linear.Y,
  },
  "big-endian pool": lambda: {"x": linear.X.astype(">f4"), "y": linear.Y},
  "half precision": lambda: np.ones((4, 3), np.float16),
  "64 bits": lambda: np.full(4, 1 << 40),
  "truth values": lambda: np.ones((4, 3), bool),
  "other device": lambda: jax.device_put(np.ones((4, 3)), jax.devices()[-1]),
  "read-only": lambda: np.broadcast_to(np.float32(1), (4, 3)),
  "pool of keys": lambda: {"x": jax.random.split(jax.random.key(0), 3)},
  "deleted": _deleted,
  "pool of deleted": lambda: {"x": _deleted()},
  "ragged pool": lambda: {"x": np.ones(3), "y": np.ones(4)},
  "NaN pool": lambda: {"x": linear.X * np.nan, "y": linear.Y},
  "wrong tree": lambda: {"v": np.zeros((7, 2), np.float32)},
}
IMAGES = pathlib.Path(FOLDER) / "images"
for kind in "ab":
  (IMAGES / kind).mkdir(parents=True)
  PIL.Image.new("L", (4, 4)).save(IMAGES / kind / "1.png")
FRAME = pandas.DataFrame({"x": [1.0, 2.0, 3.0, 4.0], "y": [0, 1, 0, 1]})
TABLE = pathlib.Path(FOLDER) / "table.csv"
FRAME.to_csv(TABLE, index=False)
TRACE = pathlib.Path(FOLDER) / "trace.csv"
TRACE.write_text("client,start,end\n0,0,1\n1,0,2\n")
DEVICES = pathlib.Path(FOLDER) / "devices.csv"
DEVICES.write_text("seconds_per_step,bytes_down,bytes_up\n0.5,1e6,1e5\n")
CLOCK = {
  "durations": fo.systems.sample(4, fo.systems.constant(1.0)).durations(),
  "server_steps": 3,
}
PLAY = "Ann:\nGood day to you, and more, and all the rest.\n\n" * 3
TOKENIZER = fo.datasets.tokenization.train(["a b", "b c"], 100)
HISTORY = History([0, 1], {"test_loss": np.array([[1.0, 2.0], [0.5, 3.0]])})
POINTS = [{"lr": 0.1, "seed": 0}, {"lr": 0.2, "seed": 0}]
SCORES = np.arange(6.0).reshape(3, 2)
DENSE = {"dense": {"kernel": np.ones((9, 8), np.float32)}}
KEY = jax.random.key(0)
CURVES = {"a": fo.plots.Curve([1.0, 2.0], [0.5, 0.25])}
# Of any function.
BY_NAME = {
  "loss_fn": linear.loss_fn,
  "mean_loss": lambda params: jnp.sum(params["w"]),
  "features_fn": lambda params, batch, rng: batch["x"],
  "per_example": linear.per_example,
  "client": linear.SGD,
  "rule": linear.SGD,
  "psi": fo.prox.zero(),
  "fraction": 0.4,
  "algorithm": linear.ALGORITHM,
  "params": linear.PARAMS,
  "center": linear.PARAMS,
  "received": linear.PARAMS,
  "previous": linear.PARAMS,
  "data": linear.DATA,
  "rounds": 2,
  "make": lambda lr: fo.fed_avg(linear.loss_fn, optax.sgd(lr)),
  "grid": {"lr": [0.1, 0.2]},
  "labels": linear.Y,
  "num_clients": 2,
  "cohort_size": 2,
  "delta": 1e-5,
  "history": HISTORY,
  "points": POINTS,
  "criterion": fo.Criterion("test_loss"),
  "folder": FOLDER,
  "data_dir": FOLDER,
  "path": pathlib.Path(FOLDER) / "a.png",
  "metric": "test_loss",
  "examples": linear.TEST,
  "values": [0.5, 0.25, 0.75],
  "w": np.ones((3, 2)),
  "w_real": np.ones((3, 2)),
  "name": "test_loss",
  "accuracy": np.array([0.5, 0.75]),
  "sizes": np.array([1, 2]),
  "curves": CURVES,
  "scores": SCORES,
  "a": [0.5, 0.25, 0.75],
  "b": [0.25, 0.25, 0.5],
  "rows": ("lr", [0.1, 0.2]),
  "columns": ("mu", [1, 2, 3]),
  "bunch": {"data": linear.X, "target": linear.Y},
  "train": linear.TEST,
  "message": linear.PARAMS,
  "combine": lambda messages, counts: messages,
  "aggregator": fo.aggregators.median(),
  "corrupt": lambda message, key: message,
  "fault": fo.faults.flip(0.2),
  "grad_h": lambda x: x,
  "grad_h_plus_psi_conjugate": lambda z, psi, t: z,
  "term": lambda params: 0.0,
  "logits": np.ones((12, 2), np.float32),
  "table": fo.schedules.by_hand([[0, 1]]),
  "vocab_size": 100,
  "key": KEY,
  "layers": ["dense"],
  "function": linear.loss_fn,
  "adapted": fo.lora.adapt(DENSE, ["dense"], KEY),
  "seconds_per_step": fo.systems.constant(1.0),
  "low": 1.0,
  "high": 2.0,
  "of": lambda outputs, y: 0.0,
  "direction": "max",
  "kinds": ("numbers",),
  "help": "a score",
  "losses": np.ones(2, np.float32),
  "running": {"mean": np.zeros(2, np.float32)},
  "new": {"mean": np.ones(2, np.float32)},
  "client_ids": linear.OWNERS,
  "color": "red",
  "linestyle": "-",
  "marker": "o",
  "axis": Figure().add_subplot().xaxis,
  "profiles": CURVES,
  "x_name": "lr",
  "grids": {
    "a": fo.plots.Grid(np.ones((1, 2)), ("lr", [1]), ("mu", [1, 2])),
  },
  "where": lambda path, leaf: True,
  "matrix": np.ones((3, 2)),
  "draw": lambda key, round, sizes, size: None,
  "thresholds": [0.5, 1.0],
  "devices": jax.devices(),
  "paths": ["w"],
  "upload": fo.transforms.top_k(0.5),
  "personal": ["w"],
  "momentum": linear.PARAMS,
}
# Of some functions.
EXAMPLES = {
  "evaluation.with_perplexity": {"evaluate": linear.evaluate},
  "lora.adapt": {"params": DENSE},
  "objectives.token_mean": {
    "of_tokens": np.zeros((2, 3), np.float32),
    "targets": np.zeros((2, 3), np.int32),
  },
  "objectives.next_token": {
    "logits": np.zeros((2, 3, 4), np.float32),
    "targets": np.zeros((2, 3), np.int32),
  },
  "plots.timetable": {"groups": np.array([0, 0])},
  "schedules.speed_groups": {"seconds": np.ones(3)},
  "ClientData": {
    "indices": np.asarray(linear.DATA.indices),
    "sizes": np.asarray(linear.DATA.sizes),
  },
  "image_folders.image_folder": {"data_dir": IMAGES},
  "shakespeare.clients": {"text": PLAY, "length": 3},
  "shakespeare.speeches": {"text": PLAY},
  "tables.from_frame": {"frame": FRAME, "label": "y"},
  "tables.read_frame": {"path": TABLE},
  "tables.read_table": {"path": TABLE, "label": "y"},
  "texts.load": {"name": "ag_news", "split": "train"},
  "texts.load_tokens": {
    "name": "ag_news",
    "split": "train",
    "tokenizer": TOKENIZER,
    "max_length": 8,
  },
  "texts.train_tokenizer": {"name": "ag_news"},
  "tfds.load": {"name": "mnist", "split": "train"},
  "tokenization.encode": {
    "tokenizer": TOKENIZER,
    "texts": ["a b"],
    "max_length": 8,
  },
  "tokenization.from_text": {"text": TOKENIZER.to_str()},
  "tokenization.train": {"texts": ["a b", "b c"]},
  "evaluate_clients": {
    "model": linear.PARAMS,
    "held_out": HELD_OUT,
    "train": TRAIN,
    "local_steps": 1,
    "batch_size": 1,
    "algorithm": None,
    "point": None,
    "loss_fn": linear.loss_fn,
    "client": linear.SGD,
  },
  "compare": {
    "methods": {"a": fo.Method(BY_NAME["make"], {"lr": [0.1]})},
    "seeds": [0],
    "report_seeds": [1, 2],
    "validation": linear.TEST,
    "evaluate": linear.evaluate,
    "metric": "validation_loss",
    "batch_size": 2,
    "data": OTHER_CLIENTS,
  },
  **{
    f"scores.{name}": {
      "outputs": np.ones((12, 2), np.float32),
      "y": np.arange(12) % 2,
    }
    for name in ("auc", "balanced_accuracy", "f1")
  },
  **{
    f"scores.{name}": {"outputs": np.ones(12), "y": np.arange(12.0)}
    for name in ("mae", "r2")
  },
  "schedules.by_hand": {"clients": [[0, 1], [2, -1]]},
  "schedules.buffered": CLOCK | {"concurrency": 2},
  "schedules.replay": {"path": TRACE},
  "schedules.synchronous": CLOCK,
  "systems.from_csv": {"path": DEVICES},
  "partition.split": {"name": "iid", "client_ids": None},
  "plots.method_styles": {"labels": ["a", "b"]},
  "plots.Curve": {"x": [0, 1], "mean": [0, 1], "low": [0, 1], "high": [0, 1]},
  "plots.Grid": {"values": np.ones((2, 3))},
  "plots.study_values": {
    "values": {"a": ([0.5, 0.25], [0.4, 0.2], [0.6, 0.3])},
    "x_name": "lr",
    "x_values": [1, 2],
  },
  "plots.heat_map": {"values": np.ones((2, 3)), "label": "loss"},
  "plots.figure": {"columns": 1, "rows": 1},
  "plots.label_histogram": {"counts": np.ones((2, 3), int), "title": "a"},
  "plots.client_distribution": {"values": {"a": [0.5, 0.25]}, "sizes": None},
  "plots.partition_title": {"partition": "iid", "alpha": None},
  "plots.step_sizes": {
    "trace": {
      name: np.ones((2, 1, 3)) for name in ("step_size", "smoothness", "growth")
    },
    "title": "a",
  },
  "plots.curves": {
    "history": fo.metrics.History(
      [0, 1], {"test_loss": np.array([[1.0, 2.0], [0.5, 3.0]])}
    )
  },
  "privacy.calibrated_noise": {"num_clients": 100},
  "privacy.epsilon": {"num_clients": 100},
  "prox.box": {"low": 0.0, "high": 1.0},
  "prox.Regularizer": {
    "kind": "own",
    "value": lambda x: 0.0,
    "prox": lambda x, t: x,
  },
  "samplers.draw": {"sampler": fo.samplers.uniform(), "sizes": np.ones(4, int)},
  "samplers.fixed": {"cohorts": [[0, 1]]},
  "samplers.resolve": {"sampler": "uniform"},
  "samplers.weighted": {"weights": [0.5, 0.5]},
  "simulate": {
    "batch_size": 2,
    "test": linear.TEST,
    "evaluate": linear.evaluate,
  },
  "sweep": {"batch_size": 2},
  "Simulator": {
    "algorithm": BY_NAME["make"],
    "grid": BY_NAME["grid"],
    "seeds": None,
    "batch_size": 2,
  },
  "statistics.expected_best": {
    "validation": [0.5, 0.25],
    "report": [0.75, 0.5],
  },
  "statistics.probability_of_improvement": {"a": SCORES, "b": SCORES[:, ::-1]},
  "train_only": {
    "make": lambda loss_fn: fo.fed_avg(loss_fn, linear.SGD),
    "paths": ["w"],
  },
  "transforms.Upload": {"rule": linear.SGD},
  "local": {"client": 0},
  "sarah": {"direction": linear.PARAMS},
  "models.Encoder": {
    "config": fo.models.EncoderConfig(
      vocab_size=8, hidden=4, layers=1, heads=1, intermediate=4
    )
  },
  "models.Decoder": {
    "max_length": 4,
    "width": 4,
    "num_blocks": 1,
    "num_heads": 1,
  },
  "models.ResNet": {"blocks": (1,), "widths": (8,), "norm": "group"},
  "models.CNN": {"kernel_size": 3},
  "Algorithm": {
    "init": lambda params: params,
    "round": lambda state, cohort: (state, None),
    "params": lambda state: state,
  },
  "load_run": {"folder": run_folder},
  "partition.class_q": {"class_fraction": 0.5},
  "ClientData.from_partition": {"rows": [[0, 1], [2]]},
  "ClientData.from_npz": {"path": CLIENTS},
  "ClientData().to_npz": {"path": pathlib.Path(FOLDER) / "a.npz"},
  "Population.open": {"folder": population},
  "Population.write": {
    "folder": new_folder,
    "clients": [linear.TEST, linear.TEST],
  },
  "Population.of_client_data": {"folder": new_folder},
  "models.VGG": {"stages": ((2,),)},
}
# What needs files of others: of these the arguments alone are looked at.
WITHOUT_DATA = (
  *("femnist.load", "fmri.load", "shakespeare.load", "texts.load"),
  *("texts.load_tokens", "texts.train_tokenizer", "tfds.load"),
  "tokenization.read",
)
# Classes without descriptions are what functions return, but for these.
MADE_BY_USERS = ("ClientData", "ClientOutput", "Simulator")
# What a model is called on.
INPUTS = {
  "CNN": np.zeros((1, 16, 16, 1), np.float32),
  "LSTM": np.zeros((1, 4), np.int32),
  "MLP": np.zeros((1, 3), np.float32),
  "VGG": np.zeros((1, 4, 4, 1), np.float32),
  "Decoder": np.zeros((1, 4), np.int32),
  "Encoder": np.zeros((1, 4), np.int32),
  "LinearModel": np.zeros((1, 3), np.float32),
  "ResNet": np.zeros((1, 4, 4, 1), np.float32),
}


def public():
  """{name: function or class} of all that users reach."""
  by_id = {}

  def walk(prefix, module):
    for name in public_names.names_of(module):
      value = getattr(module, name)
      ours = (getattr(value, "__module__", None) or "").startswith("fedjax_opt")
      if isinstance(value, types.ModuleType) and module in (fo, fo.datasets):
        walk(f"{name}.", value)
      elif callable(value) and ours and not name.startswith("_"):
        by_id.setdefault(id(value), (prefix + name, value))

  walk("", fo)
  methods = {
    "ClientData": ("from_partition", "from_client_ids", "from_npz"),
    "Population": ("open", "write", "of_client_data"),
  }
  named = dict(by_id.values())
  for owner, names in methods.items():
    named |= {f"{owner}.{name}": getattr(named[owner], name) for name in names}
  named |= {
    f"ClientData().{name}": getattr(linear.DATA, name)
    for name in ("split", "split_clients", "label_counts", "to_npz")
  }
  is_made = lambda name, value: (
    not inspect.isclass(value) or name in MADE_BY_USERS or fields_of(value)
  )
  return {n: f for n, f in named.items() if is_made(n, f)}


def fields_of(function):
  """{argument: its description}, of those that have one."""
  if not inspect.isclass(function):
    return getattr(function, "checked_fields", {})
  if issubclass(function, layers.Network):
    return layers._fields_of(function)
  init_fields = getattr(function.__init__, "checked_fields", {})
  return getattr(function, "checked_fields", init_fields)


def number(field, argument):
  """One that a description accepts; None if it accepts none of these."""
  for value in (2, 0.5):
    with contextlib.suppress(ValueError, TypeError, AttributeError):
      field.check(argument, value)
      return value
  return None


def arguments(name, function):
  """{argument: its example}; the examples are those of which it needs one."""
  examples = EXAMPLES.get(name, {})
  values = {}
  for argument, parameter in inspect.signature(function).parameters.items():
    # Of flax, or of any name.
    if argument == "parent" or parameter.kind in (
      parameter.VAR_KEYWORD,
      parameter.VAR_POSITIONAL,
    ):
      continue
    default = parameter.default
    if argument in examples:
      values[argument] = examples[argument]
    elif default is not inspect.Parameter.empty:
      values[argument] = default
    elif argument in BY_NAME:
      values[argument] = BY_NAME[argument]
    else:
      values[argument] = number(fields_of(function).get(argument), argument)
      assert values[argument], f"EXAMPLES lacks {argument} of {name}"
  if name in ("simulate", "sweep", "Simulator"):
    table = fo.engine.run_options.GRID_DEFAULTS
    names = fo.GridOptions if name == "sweep" else fo.RunOptions
    option_names = {*fo.RunOptions.__annotations__, *names.__annotations__}
    values |= {key: table[key] for key in table if key in option_names}
  return values | examples


def call(name, function, given_arguments):
  """Calls it, and what it makes if that alone checks nothing."""
  fresh = lambda x: x() if getattr(x, "is_fresh", False) else x
  result = function(**{n: fresh(x) for n, x in given_arguments.items()})
  if name.startswith("models.") and name.split(".")[1] in INPUTS:
    inputs = INPUTS[name.split(".")[1]]
    jax.eval_shape(lambda key: result.init(key, inputs), jax.random.key(0))
  if isinstance(result, contextlib.AbstractContextManager) and "use" in name:
    with result:
      pass


class _TooLong(BaseException):
  """No Exception: what calls functions of users would take it for theirs."""


# Of these the line may name the file.
FILES = ("path", "folder", "data_dir")


def outcome(name, function, argument, arguments, value):
  """What became of a value: "refused", "accepted", or what went wrong."""

  def too_long(*_):
    raise _TooLong

  signal.signal(signal.SIGALRM, too_long)
  # Again and again: what XLA calls swallows it.
  signal.setitimer(signal.ITIMER_REAL, LIMIT, 1)
  try:
    call(name, function, arguments | {argument: value})
  except _TooLong:
    return "hangs"
  except (ValueError, TypeError) as error:
    text = str(error)
    is_named = re.search(rf"(?<!\w){re.escape(argument)}(?!\w)", text)
    is_file = argument in FILES and isinstance(value, str) and value in text
    if "\n" not in text and len(text) <= 300:
      if is_named or is_file:
        return "refused"
      if errors.is_own(error):
        return f"refused by another argument: {text[:100]}"
    return f"{type(error).__name__}: {text[:100]!r}"
  except Exception as error:
    return f"{type(error).__name__}: {str(error)[:100]!r}"
  finally:
    signal.setitimer(signal.ITIMER_REAL, 0)
  return "accepted"


def reason(name, function, argument, kind, value):
  """Why a value may be accepted; None if that is not known."""
  field = fields_of(function).get(argument)
  if field is not None:
    try:
      field.check(argument, value)
    except (ValueError, TypeError):
      return None
    return "its description accepts it"
  case = f"{name}.{argument}={kind}"
  for why, patterns in ACCEPTED.items():
    if any(fnmatch.fnmatchcase(case, pattern) for pattern in patterns):
      return why
  return None


def try_values(name, function, argument, examples):
  """{kind: [what became of it, why that may be]} of one argument."""
  outcomes = {}
  for kind, make in WRONG.items():
    result = outcome(name, function, argument, examples, make())
    is_accepted = result.startswith(("accepted", "refused by")) or (
      result != "refused" and name in WITHOUT_DATA
    )
    why = is_accepted and reason(name, function, argument, kind, make())
    outcomes[kind] = result, why or None
  return outcomes


def run(folder, patterns=("*",)):
  """{function.argument: what `try_values` found}, also kept in a folder."""
  warnings.simplefilter("ignore")
  folder = pathlib.Path(folder).absolute()
  folder.mkdir(exist_ok=True)
  os.chdir(FOLDER)  # Where a text is taken for a path.
  table = {}
  for name, function in public().items():
    if not any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns):
      continue
    examples = arguments(name, function)
    for argument in examples:
      case = f"{name}.{argument}"
      file = folder / f"{case}.json"
      if not file.exists():
        if name not in WITHOUT_DATA:
          call(name, function, examples)
        outcomes = try_values(name, function, argument, examples)
        file.write_text(json.dumps(outcomes))
      table[case] = json.loads(file.read_text())
  return table


def unclear(table):
  """{case: what became of it}, where it was not refused, nor for a reason."""
  return {
    f"{case}={kind}": result
    for case, outcomes in table.items()
    for kind, (result, why) in outcomes.items()
    if result != "refused" and why is None
  }


def limit_memory():
  """Lets this process have little more memory than now."""
  now = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * 4096
  hard = resource.getrlimit(resource.RLIMIT_AS)[1]
  resource.setrlimit(resource.RLIMIT_AS, (now + MEMORY, hard))


def main():
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("patterns", nargs="*", default=["*"])
  parser.add_argument("--folder", required=True)
  options = parser.parse_args()
  limit_memory()
  table = run(options.folder, options.patterns)
  reasons = collections.Counter(
    why for outcomes in table.values() for _, why in outcomes.values() if why
  )
  for why, number in reasons.most_common():
    print(f"accepted, {number}: {why}")
  wrong = unclear(table)
  for case, result in wrong.items():
    print(f"{case}: {result}")
  hangs = sum(result == "hangs" for result in wrong.values())
  number = sum(map(len, table.values()))
  print(f"{number} calls, {len(wrong)} not in one clear line, {hangs} hang")


if __name__ == "__main__":
  main()
