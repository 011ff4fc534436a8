"""What runs: one frozen record, made once from flags.

Each field of `Spec` is a flag: the docstring of `Spec` has its help, the field
has all else. An option of the engine has the engine's default and help. The
flags of hyperparameters are made from the registries. `resolve.resolve` makes
the record, checks all that needs no data, and fills in the defaults.
"""

import dataclasses
import functools
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.specification import choice_flags
from experiments.specification.choice_flags import ChosenEntry
from experiments.specification.flag import Flag, Group, flags_of
from fedjax_opt import plots
from fedjax_opt.checks.fields import (
  SEED_OF_RUN,
  Field,
  integer,
  one_of,
  plain_number,
)
from fedjax_opt.engine.run_options import GRID_DEFAULTS, GridOptions, RunOptions
from fedjax_opt.files import json_files
from fedjax_opt.registry import meanings, read_leaf_paths
from fedjax_opt.scores import SCORES

# The rules if none is given; averaging is a server step of size 1.
CLIENT_DEFAULT, SERVER_DEFAULT = "delta_sgd", "sgd"
# Clients in a round; examples in a batch; and the same if the clients come with
# the data.
COHORT_SIZE, BATCH_SIZE, BATCH_SIZE_OF_CLIENTS = 10, 64, 10
# Flags whose defaults the clients may limit, and the entry of config.json that
# names those of a run which they did.
SIZE_FLAGS, LIMITED = ("cohort_size", "batch_size"), "limited_defaults"
# The clients' data, if clients do not come with the task.
PARTITION_DEFAULT, NUM_CLIENTS = "dirichlet", 100
VALIDATION_SEED = 0
DP_DELTA = 1e-5
DECAY, MILESTONES = 0.998, "0.5,0.75"

# The examples on which a setting may be chosen.
SPLITS = ("validation", "clients", "test", "train", "truth", "support")
TRACKERS = ("wandb", "mlflow", "tensorboard")
SELECTED_BY = ("accuracy", "loss", *SCORES)


_IN_MEMORY = {"population_dir": "needs the data of all clients in memory"}
_ALONE = dict.fromkeys(
  ("coordinator", "cluster"), "is measured by one process alone"
)
_CLIPPED = {
  name: f"{name} would change what clients send after it was clipped"
  for name in ("upload", "aggregator", "fault")
}
_SCHEDULED = {
  "sampler": "decides who takes part",
  "privacy": "the accounting of privacy does not cover its cohorts",
}
_OPTIMUM = {
  "l2": "its gap is measured on the reported losses, which do not include l2",
  "trainable": "the optimum is that of all leaves of the model",
}
_TASK = Group("task", "Task", "choose data and model, or use your own data")
_DATA = Group(
  "data", "Clients' data", "divide the data among clients; test each client"
)
_ALGORITHM = Group(
  "algorithm", "Algorithm", "choose the algorithm, and set its constants"
)
_CLIENT = Group(
  "client",
  "Clients' rule",
  "choose how a client steps: its rule, step size and schedule",
)
_SERVER = Group("server", "Server's rule", "choose how the server steps")
_REGULARIZER = Group(
  "regularizer", "Regularizer", "add a penalty or a constraint"
)
_PRIVACY = Group(
  "privacy",
  "Differential privacy",
  "simulate differential privacy, and count epsilon",
)
_MESSAGES = Group(
  "messages",
  "Messages",
  "compress uploads, aggregate robustly, simulate faults",
)
_SELECTION = Group(
  "selection", "Selection", "say how the best setting of a grid is chosen"
)
_ROUNDS = Group(
  "rounds", "Rounds", "set rounds, cohorts, batches and local work"
)
_TIME = Group(
  "time", "Simulated time", "simulate time: slow, late, asynchronous clients"
)
_RESULTS = Group(
  "results", "Results", "say what is measured, and where it is written"
)
_COMPUTATION = Group(
  "computation",
  "Computation",
  "fit into memory, go faster, save checkpoints and resume",
)
_DEVICES = Group(
  "devices", "Devices and processes", "use several devices, processes or hosts"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Spec:
  """What runs, with all defaults filled in; None for what is absent.

  What is not described here is an option of the engine, see `GridOptions`.

  Attributes:
    task: Data set and model, joined as in mnist_cnn (digits alone is
      digits_mlp), or a task with a name of its own. The clients of
      {tasks_with_clients} come with their data.
    data_dir: Folder of the data. Default: $TFDS_DATA_DIR or
      ~/tensorflow_datasets, where TFDS prepares missing data if TensorFlow is
      installed; for fmri $NILEARN_DATA or ~/nilearn_data, into which missing
      files are downloaded. femnist10 and femnist62 have no default: give the
      folder of the sqlite files of TensorFlow Federated or FedJAX.
    data_file: File of the npz_... tasks, in NumPy's .npz format, with arrays x
      and y. x is [N, H, W, channels] or [N, H, W], and for logistic and mlps
      also [N, d]. uint8 is divided by 255; other types are taken as they are. y
      is [N], labels, which are whole numbers from 0. The file may also have
      client_ids [N], the client of each example (otherwise partition divides
      the examples); x_test and y_test (otherwise see test_fraction); and
      num_classes (otherwise the largest label plus 1). For the table_... tasks:
      a .csv, .tsv or .parquet file with names of columns, or a folder that
      Hugging Face's `datasets` has saved.
    label_column: Column that a table_... task predicts; separate several by
      commas.
    client_column: Column of the table that says to which client a row belongs.
      Default: none; partition divides the rows.
    time_column: Column of numbers or dates of the table; the latest rows, of
      each client if there are clients, are then the test part.
    ignore_columns: Columns of the table that are left out, separated by commas.
    metrics: Scores of the table_... tasks to measure beside loss and accuracy,
      separated by commas: {scores}.
    pretrained: Folder of an encoder in Hugging Face's layout, from which the
      ..._distilbert tasks start: config.json (model_type distilbert or bert),
      model.safetensors, and tokenizer.json or vocab.txt. The head is
      DistilBERT's. Its weights come from this folder if they are for the task's
      number of classes, and are otherwise drawn at random. Default: the whole
      encoder is drawn at random, see encoder and vocab_size.
    l2: Adds l2 / 2 ||w||^2, over all parameters, to each client's loss, but not
      to the reported losses.
    trainable: Train only these leaves of the model: the starts of their paths,
      separated by commas, such as output or layers_1,output/kernel. Only these
      leaves are sent, and only they count in l2. Default: all.
    population_dir: Folder of clients from `python -m experiments.convert`,
      which replace the task's clients. They stay on disk. The clients of a
      cohort are read while earlier rounds are computed.
    num_clients: Clients in the population. Default: {NUM_CLIENTS}.
    partition: How the training examples are divided among the clients, for
      tasks whose clients do not come with the data. Default:
      {PARTITION_DEFAULT}.
    partition_seed: Seed of the partition alone, so that all values of seed have
      the same partition. Default: seed decides the partition too.
    client_test_fraction: Fraction of each client's examples that is held out of
      training as its own test examples, drawn by the seed. After the run the
      selected model is measured on them, client by client: per_client.csv and
      per_client in summary.json. Default: none; {CLIENT_TEST_FRACTION} for
      algorithms whose clients have models of their own, if the data are in
      memory.
    personalize_steps: Also measure personalized models: the global model after
      so many local steps of the clients' rule on the client's training
      examples. Needs client_test_fraction. Default: none.
    heldout_clients: Number of clients that never train, and share no example
      with clients that train. The same partition makes them, in addition to the
      num_clients that train; if the clients come with the data, some of them
      are held out. They are measured after the run: heldout_clients.csv.
      Default: none.
    algorithm: What a round does.
    client: How a client takes a local step. Default: {CLIENT_DEFAULT}; sgd
      for the algorithms that take no other: {plain_algorithms}{own_clients}.
    client_schedule: Clients' learning rate over rounds: constant; step_decay,
      divided by 10 at each of client_milestones; or exponential, multiplied by
      client_decay after each round.
    client_milestones: Fractions of the rounds after which step_decay divides
      the rate, separated by commas. Default: {MILESTONES}.
    client_decay: Factor by which exponential multiplies the rate after each
      round. Default: {DECAY}.
    server: The server's rule, whose gradient is the mean of the clients'
      differences: {servers}. Default: {SERVER_DEFAULT} with step size 1, which
      is plain averaging, or what the algorithm's name says{own_servers}. Some
      algorithms take any of these rules, some take only sgd, and some have
      none.
    regularizer: What {composite} add to the loss: a penalty, or a constraint
      on a norm or on signs. It acts on each kernel w by itself, and not on
      biases. Default: the task's own.
    privacy: Simulates differential privacy of clients; it protects no real
      client. The table has the epsilon of each setting. Needs
      --weighting=uniform. With --sampler=poisson epsilon is for adding or
      removing a client. With cohorts of fixed size it is for replacing one,
      which gives a larger number. Default: none.
    dp_delta: The delta for which epsilon is computed. Default: {DP_DELTA}.
    dp_seed: Seed of the noise, a whole number from 0 to 4294967295, to repeat a
      run; such a run is NOT private, because the noise can be computed again
      and removed. Default: none; the operating system's entropy makes new noise
      in each run and at each grid point.
    upload: How clients compress the differences that they send; the compressed
      bytes are counted. Default: not at all.
    error_feedback: A client adds the part that it did not send to its next
      difference. Needs upload.
    aggregator: How the server combines the messages of a cohort; all but mean
      need --weighting=uniform.
    fault: What faulty clients send, to test aggregators.
    faulty_fraction: Share of the clients that are faulty, in [0, 1]; the same
      clients in all rounds and with every seed. Needs fault.
    select_on: Examples on which the best setting is chosen, by its mean over
      the seeds. Default: validation; clients for algorithms whose clients have
      models of their own, if the data are in memory; train for nonconvex, whose
      objective is known exactly, and for clients on disk without a validation
      part.
      - validation: examples held out of training; the default
      - clients: examples of each client held out of training, with the model
        that the client uses itself; the default of algorithms whose clients
        have models of their own
      - test: the test examples, as many papers do; the values of the best
        setting are then too good
      - train: the training examples
      - truth: the distance to the true coefficients, which lasso and low_rank
        know
      - support: the F1 of the nonzero coefficients, which lasso knows
    select_metric: The metric that chooses the best setting: accuracy, loss, or
      one of metrics. Default: accuracy on validation and test examples, loss on
      training examples; the regularized loss for fmri; tasks without labels
      have their own metric.
    select_over: Number of last rounds, such as 100; the worst evaluation in
      them counts, but not the one before the first round. Default: only the
      last evaluation; for lasso and low_rank the mean over the last 100 rounds,
      for femnist10 and femnist62 with --select_on=train the mean over the last
      10 evaluations.
    validation_fraction: Fraction of the training examples that is held out of
      training, in [0, 1). It is taken from each client with --select_on=clients
      or if the data have clients, else from each class. Default:
      {VALIDATION_FRACTION} with --select_on=validation or clients, else 0.
      lasso and low_rank draw their own validation examples.
    validation_seed: Seed of the validation part; the same part for all seeds
      of a run. Not with --select_on=clients, where each seed has its own part.
      Default: {VALIDATION_SEED}.
    rounds: Communication rounds.
    target_accuracy: End the run when each point that has not diverged has
      reached this accuracy, in (0, 1], on the examples of select_on.
      summary.json has the costs.
    patience: End the run when, in so many evaluations, no point has improved
      the metric by which points are selected.
    cohort_size: Clients in a round. Default: {COHORT_SIZE}, or all if there are
      fewer; always all for {all_clients}; always the first client for
      {first_client}.
    sampler: Who takes part in a round.
    batch_size: Examples in a local batch. Default: {BATCH_SIZE};
      {BATCH_SIZE_OF_CLIENTS} if the clients come with the data; those of the
      largest client if it has fewer.
    sampling: Local batches: shuffle (all examples, in a new order each epoch)
      or replacement (each batch drawn afresh).
    max_update_norm: Largest Euclidean norm, above 0, of a client's update; in
      most algorithms the update is the change of its model. Default: no limit.
    seed: [list] Seed of everything that is drawn: the partition (see
      partition_seed), the initial model, cohorts, batches, dropout and the
      clock.
    system: Gives the run simulated time: how many seconds clients take, drawn
      by the seed of the run. For bytes per second see system_bytes_down and
      system_bytes_up. Default: no clock.
    availability: When clients can be sent out; a client that has begun always
      finishes. Default: always.
    schedule: Who is sent out when, and whom the server waits for. Default:
      synchronous if system is given, else no clock.
    max_time: End the run after so many simulated seconds, unless rounds ends it
      earlier. Default: no limit.
    output_dir: New folder for the results, or with resume the folder of the
      run. Default: runs/TASK-ALGORITHM-CLIENT-TIME.
    grad_norm: Also measure grad_norm_sq, the squared norm of the gradient of
      the mean loss over all clients' examples (with l2, without a regularizer).
    x_axis: Horizontal axis of curves.png: rounds; the cost of a client so far,
      as gradient_evaluations (examples) or bytes (down and up); or time, in
      simulated seconds.
    optimum: Also find the least value of the objective (FISTA in float64 on the
      data of all clients), and measure optimality_gap, the distance from this
      value. For convex tasks and algorithms with a regularizer.
    trace: Record the step sizes of every client and local step in traces.npz
      and step_sizes.png. Only with client {traced}.
    track: Also log config, metrics and pictures at the end, with this tracker,
      which must be installed.
      - wandb: Weights & Biases, offline unless WANDB_MODE is set
      - mlflow: MLflow, in output_dir unless MLFLOW_TRACKING_URI is set
      - tensorboard: TensorBoard, in output_dir: beside the metrics, which a run
        always logs there, also config and pictures
    profile: Trace the rounds between the first two evaluations, for Perfetto
      and for TensorBoard's profiler, in the folder profile of output_dir.
    checkpoint_every: Rounds between checkpoints, in output_dir/checkpoints; the
      newest two are kept. SIGTERM then saves one more and ends the run.
      Default: none.
    resume: Continue the run in output_dir, which had the same flags, from its
      newest checkpoint, or start the run if there is none. It ends as if it had
      never been stopped. With more rounds the run is extended.
    compilation_cache: Folder that keeps compiled programs for later runs, or
      none. The variable JAX_COMPILATION_CACHE_DIR takes precedence.
    progress: Show progress.
    coordinator: HOST:PORT of the first process, if several processes run the
      same command, each with its process_id.
    num_processes: Number of processes. Needs coordinator.
    process_id: Number of this process, from 0. Needs coordinator.
    cluster: This process is one of several that find each other: on Slurm, on a
      TPU pod, under Open MPI or Kubernetes.
  """

  task: ChosenEntry = _TASK.flag("digits")
  data_dir: str | None = _TASK.flag(is_identity=False)
  data_file: str | None = _TASK.flag()
  label_column: str | None = _TASK.flag()
  client_column: str | None = _TASK.flag()
  time_column: str | None = _TASK.flag()
  ignore_columns: str | None = _TASK.flag()
  metrics: str | None = _TASK.flag()
  pretrained: str | None = _TASK.flag()
  l2: float = _TASK.flag(0.0, field=plain_number("[0, inf)"), is_condition=True)
  trainable: str | None = _TASK.flag(field=Field(read_leaf_paths))

  population_dir: str | None = _DATA.flag()
  num_clients: int | None = _DATA.flag(is_condition=True)
  partition: ChosenEntry | None = _DATA.flag()
  partition_seed: int | None = _DATA.flag(field=SEED_OF_RUN)
  client_test_fraction: float | None = _DATA.flag(
    field=plain_number("[0, 1)"), excludes=_IN_MEMORY | _ALONE
  )
  personalize_steps: int | None = _DATA.flag(
    field=integer(1), needs="client_test_fraction"
  )
  heldout_clients: int | None = _DATA.flag(
    field=integer(), excludes=_IN_MEMORY | _ALONE
  )

  algorithm: ChosenEntry = _ALGORITHM.flag("fed_avg")

  client: ChosenEntry = _CLIENT.flag()
  client_schedule: str = _CLIENT.flag(
    "constant", field=one_of("constant", "step_decay", "exponential")
  )
  client_milestones: str | None = _CLIENT.flag(
    needs="client_schedule=step_decay"
  )
  client_decay: float | None = _CLIENT.flag(
    field=plain_number("(0, 1)"), needs="client_schedule=exponential"
  )

  server: ChosenEntry | None = _SERVER.flag()

  regularizer: ChosenEntry | None = _REGULARIZER.flag()

  privacy: ChosenEntry | None = _PRIVACY.flag(
    needs="weighting=uniform", excludes=_CLIPPED
  )
  dp_delta: float | None = _PRIVACY.flag(
    field=plain_number("(0, 1)"), needs="privacy"
  )
  dp_seed: int | None = _PRIVACY.flag(field=SEED_OF_RUN, needs="privacy")

  upload: ChosenEntry | None = _MESSAGES.flag()
  error_feedback: bool = _MESSAGES.flag(False, needs="upload")
  aggregator: ChosenEntry = _MESSAGES.flag("mean", needs="weighting=uniform")
  fault: ChosenEntry | None = _MESSAGES.flag(needs="faulty_fraction")
  faulty_fraction: float | None = _MESSAGES.flag(
    field=plain_number("[0, 1]"), needs="fault", counts_zero=True
  )

  select_on: str = _SELECTION.flag(field=one_of(*SPLITS))
  select_metric: str | None = _SELECTION.flag(field=one_of(*SELECTED_BY))
  select_over: int | None = _SELECTION.flag(field=integer(1))
  validation_fraction: float | None = _SELECTION.flag(
    field=plain_number("[0, 1)")
  )
  validation_seed: int | None = _SELECTION.flag(
    field=SEED_OF_RUN, needs="validation_fraction"
  )

  rounds: int = _ROUNDS.flag(100, field=integer())
  target_accuracy: float | None = _ROUNDS.flag(field=plain_number("(0, 1]"))
  patience: int | None = _ROUNDS.flag(field=integer(1))
  cohort_size: int | None = _ROUNDS.flag(is_condition=True)
  sampler: ChosenEntry = _ROUNDS.flag("uniform")
  batch_size: int = _ROUNDS.flag(None, is_condition=True)
  local_epochs: float | None = _ROUNDS.flag(is_condition=True)
  local_steps: int | None = _ROUNDS.flag(is_condition=True)
  sampling: str = _ROUNDS.flag(
    "shuffle", field=one_of("shuffle", "replacement"), is_condition=True
  )
  drop_remainder: bool = _ROUNDS.flag()
  weighting: str = _ROUNDS.flag(is_condition=True)
  client_dropout: float = _ROUNDS.flag(is_condition=True)
  max_update_norm: float | None = _ROUNDS.flag()
  max_update_action: str = _ROUNDS.flag()
  seed: list[int] = _ROUNDS.flag("0")

  system: ChosenEntry | None = _TIME.flag()
  availability: ChosenEntry | None = _TIME.flag(needs="system")
  schedule: ChosenEntry | None = _TIME.flag(excludes=_SCHEDULED)
  max_time: float | None = _TIME.flag(
    field=plain_number("(0, inf)"), needs="schedule", is_condition=True
  )

  output_dir: str | None = _RESULTS.flag(is_identity=False, is_of_process=True)
  eval_every: int = _RESULTS.flag(field=integer(1))
  grad_norm: bool = _RESULTS.flag(False)
  x_axis: str = _RESULTS.flag(
    "rounds", field=one_of(*plots.X_AXES), is_identity=False
  )
  optimum: bool = _RESULTS.flag(
    False, needs="regularizer", excludes=_IN_MEMORY | _OPTIMUM
  )
  trace: bool = _RESULTS.flag(False)
  track: str | None = _RESULTS.flag(field=one_of(*TRACKERS), is_identity=False)

  profile: bool = _COMPUTATION.flag(False, is_identity=False)
  client_map: str = _COMPUTATION.flag()
  grid_map: str = _COMPUTATION.flag()
  client_chunk: int | None = _COMPUTATION.flag()
  client_memory: str = _COMPUTATION.flag()
  grid_chunk: int | None = _COMPUTATION.flag()
  precision: str = _COMPUTATION.flag(is_condition=True)
  checkpoint_every: int | None = _COMPUTATION.flag(
    field=integer(1), is_identity=False
  )
  resume: bool = _COMPUTATION.flag(False, is_identity=False, is_of_process=True)
  compilation_cache: str = _COMPUTATION.flag(
    "~/.cache/fedjax_opt", is_identity=False
  )
  progress: bool = _COMPUTATION.flag(
    True, is_identity=False, is_of_process=True
  )

  client_devices: int | None = _DEVICES.flag()
  grid_devices: int | None = _DEVICES.flag()
  model_devices: int | None = _DEVICES.flag()
  coordinator: str | None = _DEVICES.flag(is_identity=False, is_of_process=True)
  num_processes: int | None = _DEVICES.flag(
    needs="coordinator", is_identity=False, is_of_process=True
  )
  process_id: int | None = _DEVICES.flag(
    needs="coordinator", is_identity=False, is_of_process=True
  )
  cluster: bool = _DEVICES.flag(False, is_of_process=True)

  # Flags given that are no defaults: what to type for the same run again.
  user_flags: Mapping[str, Any]

  @property
  def trainable_paths(self) -> tuple[str, ...]:
    """The starts of the paths of the leaves that are trained; () for all."""
    return (
      read_leaf_paths("trainable", self.trainable) if self.trainable else ()
    )

  @property
  def tunable(self) -> list[ChosenEntry]:
    """What the numbers of a grid belong to."""
    flags = [n for n, f in choice_flags.CHOICE_FLAGS.items() if f.has_lists]
    choices = [getattr(self, name) for name in flags]
    return [entry for entry in choices if entry is not None]

  @property
  def grid(self) -> dict[str, list[float]]:
    """Flag -> values, of all that may be tuned."""
    return {f: v for chosen in self.tunable for f, v in chosen.grid.items()}

  @functools.cached_property
  def identity(self) -> dict[str, Any]:
    """All flags on which the results depend, as JSON has them.

    Do not change it.
    """
    return json_files.to_json(identity_of_config(self.values()))

  def at(self, point: Mapping[str, float], seeds: Sequence[int]) -> "Spec":
    """The specification with one setting of the grid, and with other seeds."""
    choices = {entry.flag: entry.with_point(point) for entry in self.tunable}
    tuned = {f: f"{point[f]!r}" for f in self.grid if f in point}
    changes = {**tuned, "seed": ",".join(map(str, seeds))}
    return dataclasses.replace(
      self,
      **choices,
      seed=list(seeds),
      user_flags={**self.user_flags, **changes},
    )

  def crossed(self, partition_seed: int, seeds: Sequence[int]) -> "Spec":
    """The whole grid with these seeds, all of which share one partition."""
    spec, partition = self.at({}, seeds), {"partition_seed": partition_seed}
    user_flags = {**spec.user_flags, **partition}
    return dataclasses.replace(spec, **partition, user_flags=user_flags)

  def as_limited_in(self, config: Mapping[str, Any]) -> "Spec":
    """With the defaults that the clients limited when a run was prepared.

    Args:
      config: that of the run.
    """
    open_names = [n for n in SIZE_FLAGS if getattr(self, n) is None]
    names = {*config.get(LIMITED, ()), *open_names} - self.user_flags.keys()
    sizes = {n: config[n] for n in names if n in config}
    return dataclasses.replace(self, **sizes) if sizes else self

  def values(self) -> dict[str, Any]:
    """Every flag that has a value, in the order of the help."""
    flags = {}
    for name in FLAGS:
      value = getattr(self, name)
      if isinstance(value, ChosenEntry):
        flags[name] = value.name
        parameters = {f: single_or_list(v) for f, v in value.grid.items()}
        parameters |= value.static
        flags |= {f: v for f, v in parameters.items() if v is not None}
      elif value is not None:
        flags[name] = single_or_list(value)
    return flags


def _shown(text: str, name: str) -> str:
  """The help of an option on the command line, which adds its default."""
  text = re.sub(r"['`](\w+)['`]", r"\1", text[0].upper() + text[1:])
  has_default = GRID_DEFAULTS[name] is not None
  return re.sub(r" Default: \S+\.$", "", text) if has_default else text


_OF_ENGINE = meanings(GridOptions) | meanings(RunOptions)
_OF_ENGINE = {name: _shown(text, name) for name, text in _OF_ENGINE.items()}
FLAGS = flags_of(Spec, _OF_ENGINE | meanings(Spec))
GROUPS = list(dict.fromkeys(flag.group for flag in FLAGS.values()))


def identity_of_config(
  config: Mapping[str, Any], *others: str
) -> dict[str, Any]:
  """The flags on which results depend; equal for two equal runs.

  Args:
    config: flag -> value.
    *others: flags that may differ, such as rounds. If two runs differ only in
      these, one is the beginning of the other.
  """
  identity = {
    name: value
    for name, value in config.items()
    if (name not in FLAGS or FLAGS[name].is_identity)
    and name not in (LIMITED, *others)
  }
  if identity.get("pretrained") is not None:  # Folders are moved.
    identity["pretrained"] = pathlib.Path(identity["pretrained"]).name
  if "cluster" in identity:  # Names of stored runs depend on its default.
    identity["cluster"] = False
  return identity


@choice_flags.made_of_registries
def all_flags() -> dict[str, Flag]:
  """All flags, also of hyperparameters, in the order of the help.

  Do not change the result.
  """
  flags = {}
  for name, flag in FLAGS.items():
    flags[name] = flag
    choice_flag = flag.choice_flag
    for key, owners in (choice_flag.owners() if choice_flag else {}).items():
      flags[key] = Flag(
        flag.group,
        None,
        choice_flag.type_of(next(iter(owners.values()))),
        owners=owners,
        is_condition=choice_flag.numbers_are_conditions,
      )
  return flags


def not_default(flag_values: Mapping[str, Any]) -> dict[str, Any]:
  """The flags among these that have another value than their default."""
  flags = all_flags()
  return {
    name: value
    for name, value in flag_values.items()
    if name in flags and value != flags[name].default
  }


def conditions() -> list[str]:
  """The flags for which a comparison takes several values."""
  return [name for name, flag in all_flags().items() if flag.is_condition]


def single_or_list(values: Any) -> Any:
  """A list as a flag has it: one value stands alone."""
  is_single = isinstance(values, list) and len(values) == 1
  return values[0] if is_single else values
