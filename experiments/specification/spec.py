"""What runs: one frozen record, made once from flags.

Each field of `Spec` is a flag, with its help and its default; the flags of
hyperparameters are made from the registries. `resolve.resolve` makes it, checks
all that needs no data, and fills in the defaults.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from experiments import tasks
from experiments.specification.fields import Flag, Group
from experiments.specification.kinds import (
  AGGREGATOR,
  ALGORITHM,
  CLIENT,
  FAULT,
  PARTITION,
  PRIVACY,
  REGULARIZER,
  SAMPLER,
  SERVER,
  TASK,
  UPLOAD,
  Chosen,
  listed,
)
from experiments.specification.schedule import Schedule
from experiments.tasks import images
from fedjax_opt import plots
from fedjax_opt.registry import Paths

# The rules where none is given; averaging is a server step of size 1.
CLIENT_DEFAULT, SERVER_DEFAULT = "delta_sgd", "sgd"
# Clients in a round, examples in a batch, and the latter where the clients come
# with the data.
COHORT_SIZE, BATCH_SIZE, BATCH_SIZE_OF_CLIENTS = 10, 64, 10
# The clients' data where they do not come with the task.
PARTITION_DEFAULT, NUM_CLIENTS = "dirichlet", 100
# The share of own test examples of algorithms with personal models.
TESTS_OF_PERSONAL = 0.2
VALIDATION_FRACTION, VALIDATION_SEED = 0.1, 0
DP_DELTA = 1e-5
DECAY, MILESTONES = 0.998, "0.5,0.75"

TRAINABLE = Paths("trainable", None, "leaves of the model that are trained")

# What a setting may be chosen on.
SPLITS = {
  "validation": "examples held out of training; the default",
  "test": "the test examples, as many papers do: the best is then too good",
  "train": "the training examples",
  "truth": "the distance to the true coefficients, which lasso and low_rank "
  "know",
}

_TASK = Group("task", "Task")
_DATA = Group("data", "Clients' data")
_ALGORITHM = Group("algorithm", "Algorithm")
_CLIENT = Group("client", "Clients' rule")
_SERVER = Group("server", "Server's rule")
_REGULARIZER = Group("regularizer", "Regularizer")
_PRIVACY = Group("privacy", "Differential privacy")
_MESSAGES = Group("messages", "Messages")
_SELECTION = Group("selection", "Selection")
_ROUNDS = Group("rounds", "Rounds")
_RESULTS = Group("results", "Results")
_COMPUTATION = Group("computation", "Computation")
_DEVICES = Group("devices", "Devices and processes")


def algorithms(has: Callable[[Any], bool]) -> str:
  """The names of the algorithms that have something."""
  return ", ".join(n for n, each in ALGORITHM.registry.items() if has(each))


def plain_rules() -> list[str]:
  """The client rules that are gradient descent and nothing else."""
  return [name for name, rule in CLIENT.registry.items() if rule.is_plain]


def traced_rules() -> list[str]:
  """The client rules whose step sizes can be recorded."""
  return [name for name, rule in CLIENT.registry.items() if rule.traced]


# Helps that depend on the registries.


def _help_of_task() -> str:
  entries = {name: each.help for name, each in images.DATASETS.items()}
  entries["npz"] = "your own data, see data_file"
  entries |= {f"..._{name}": each.help for name, each in images.MODELS.items()}
  own = tasks.by_own_name()
  entries |= {n: each.help for n, each in own.items() if n not in entries}
  lines = "".join(f"\n{name:13}  {help}" for name, help in entries.items())
  with_clients = [name for name, each in own.items() if each.has_clients]
  return (
    "Data set and model, joined as in mnist_cnn (digits alone is digits_mlp), "
    "or a task with a name of its own. The clients of "
    f"{', '.join(with_clients)} come with their data.{lines}"
  )


def _own_defaults(field: str) -> str:
  """Which algorithms have a default rule of their own."""
  of_rule: dict[str, list[str]] = {}
  for name, choice in ALGORITHM.registry.items():
    rule = getattr(choice, field)
    if rule is not None:
      of_rule.setdefault(rule, []).append(name)
  parts = [f"; {rule} of {', '.join(of)}" for rule, of in of_rule.items()]
  return "".join(parts)


def _help_of_client() -> str:
  plain = algorithms(lambda choice: choice.client == "plain")
  return (
    f"How a client takes a local step. Default: {CLIENT_DEFAULT}; "
    f"{plain_rules()[0]} for the algorithms that take no other: {plain}"
    f"{_own_defaults('default_client')}.{listed(CLIENT.registry)}"
  )


def _help_of_server() -> str:
  return (
    "How the server uses the mean of the clients' differences as a gradient: "
    f"{', '.join(SERVER.registry)}. Default: {SERVER_DEFAULT} with step size "
    "1, which is plain averaging, or what the algorithm's name says"
    f"{_own_defaults('default_server')}; algorithms of plain steps take only "
    f"{plain_rules()[0]}, some any, some have none."
  )


def _help_of_regularizer() -> str:
  composite = algorithms(lambda choice: choice.takes_regularizer)
  return (
    f"What {composite} add to the loss: a penalty, or a constraint on the "
    "radius or sign. w is each kernel by itself, without biases. Default: the "
    f"task's own.{listed(REGULARIZER.registry)}"
  )


def _help_of_selection() -> str:
  width = max(map(len, SPLITS))
  lines = "".join(f"\n{name:{width}}  {help}" for name, help in SPLITS.items())
  return (
    "On what the best setting is chosen, by its mean over the seeds. Default: "
    "validation; train for nonconvex, whose objective is known exactly, and "
    f"for clients on disk without a validation part.{lines}"
  )


def _help_of_cohort() -> str:
  of = lambda cohort: algorithms(lambda each: each.cohort == cohort)
  return (
    f"Clients in a round. Default: {COHORT_SIZE}; {of('all')} takes all, "
    f"{of('first')} the first one."
  )


def _with(text: str, kind: Any) -> Callable[[], str]:
  """A help that ends with what there is to choose."""
  return lambda: text + listed(kind.registry)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Spec:
  """What runs, all defaults filled in; None for what there is none of."""

  task: Chosen = _TASK.choice(TASK, "digits", _help_of_task)
  data_dir: str | None = _TASK.text(
    None,
    "Folder of the data. Default: $TFDS_DATA_DIR or ~/tensorflow_datasets, "
    "where TFDS prepares what is lacking, if TensorFlow is installed; for "
    "fmri $NILEARN_DATA or ~/nilearn_data; what it lacks is downloaded. "
    "For femnist10 and femnist62 it must be given: the folder of the sqlite "
    "files of TensorFlow Federated or FedJAX.",
    is_identity=False,
  )
  data_file: str | None = _TASK.text(
    None,
    "File of the npz_... tasks, in NumPy's .npz format, with arrays x and y. "
    "x [N, H, W, channels], [N, H, W], or for logistic and mlps [N, d]: "
    "uint8 is divided by 255, other types are taken as they are. y [N]: "
    "labels, whole numbers from 0. It may also hold client_ids [N], the "
    "client of each example (without, partition divides them); x_test and "
    "y_test (without, see test_fraction); num_classes (without, the largest "
    "label plus 1).",
  )
  pretrained: str | None = _TASK.text(
    None,
    "Folder of an encoder in Hugging Face's layout, from which the "
    "..._distilbert tasks start: config.json (model_type distilbert or "
    "bert), model.safetensors, and tokenizer.json or vocab.txt. The head is "
    "DistilBERT's; it is taken from there if it is for as many classes, else "
    "drawn at random. Default: the whole encoder is drawn at random, see "
    "encoder and vocab_size.",
  )
  l2: float = _TASK.number(
    0.0,
    "Adds l2 / 2 ||w||^2, over all parameters, to each client's loss; not to "
    "the losses that are reported.",
    interval="[0, inf)",
    is_condition=True,
  )
  trainable: str | None = _TASK.text(
    None,
    "Train only these leaves of the model, such as output or "
    "layers_1,output/kernel: the starts of their paths, between commas. "
    "Messages have these only; l2 counts these only. Default: all.",
  )

  population_dir: str | None = _DATA.text(
    None,
    "Folder of clients as `python -m experiments.convert` writes it, instead "
    "of the task's: they stay on disk, and those of each cohort are read "
    "while the rounds before it are computed.",
  )
  num_clients: int | None = _DATA.whole(
    None,
    f"Clients in the population. Default: {NUM_CLIENTS}.",
    is_condition=True,
  )
  partition: Chosen | None = _DATA.choice(
    PARTITION,
    None,
    _with(
      "How the training examples come to the clients, for tasks whose clients "
      f"do not come with the data. Default: {PARTITION_DEFAULT}.",
      PARTITION,
    ),
  )
  client_test_fraction: float | None = _DATA.number(
    None,
    "Fraction of each client's examples that is held out of training as its "
    "own test examples, drawn by the seed. On them the selected model is "
    "measured after the run, client by client: per_client.csv and per_client "
    f"in summary.json. Default: none; {TESTS_OF_PERSONAL:g} for algorithms "
    "whose clients have models of their own, if the data are in memory.",
    interval="[0, 1)",
  )
  personalize_steps: int | None = _DATA.whole(
    None,
    "Also measure models personalized by so many local steps of the clients' "
    "rule on the client's training examples, from the global model. With "
    "client_test_fraction. Default: none.",
  )
  heldout_clients: int | None = _DATA.whole(
    None,
    "Clients beside those that train, who share no example with them: drawn "
    "by the same partition, or of those that come with the data. They are "
    "measured after the run: heldout_clients.csv. Default: none.",
  )

  algorithm: Chosen = _ALGORITHM.choice(
    ALGORITHM, "fed_avg", _with("What a round does.", ALGORITHM)
  )
  client: Chosen = _CLIENT.choice(CLIENT, None, _help_of_client)
  client_schedule: str = _CLIENT.text(
    "constant",
    "Clients' learning rate over rounds: constant; step_decay, divided by 10 "
    "at each of client_milestones; or exponential, multiplied with "
    "client_decay after each round.",
    accepted=("constant", "step_decay", "exponential"),
  )
  client_milestones: str | None = _CLIENT.text(
    None,
    "Fractions of the rounds after which step_decay divides the rate, between "
    f"commas. Default: {MILESTONES}.",
  )
  client_decay: float | None = _CLIENT.number(
    None,
    "What exponential multiplies the rate with after each round. Default: "
    f"{DECAY}.",
    interval="(0, 1)",
  )
  server: Chosen | None = _SERVER.choice(SERVER, None, _help_of_server)
  regularizer: Chosen | None = _REGULARIZER.choice(
    REGULARIZER, None, _help_of_regularizer
  )
  privacy: Chosen | None = _PRIVACY.choice(
    PRIVACY,
    None,
    _with(
      "Makes the server's model private for clients; the table has the epsilon "
      "of each setting. Needs --weighting=uniform. With --sampler=poisson "
      "epsilon is for adding or removing a client; with cohorts of fixed size "
      "it is for replacing one, and larger. Default: none.",
      PRIVACY,
    ),
  )
  dp_delta: float | None = _PRIVACY.number(
    None,
    f"The delta for which epsilon is computed. Default: {DP_DELTA:g}.",
    interval="(0, 1)",
  )
  dp_seed: int | None = _PRIVACY.whole(
    None,
    "Seed of the noise, a whole number from 0 to 4294967295, for runs that "
    "are to be repeated; such a run is NOT private, as the noise can be made "
    "again and taken away. Default: none; the noise is of the operating "
    "system's entropy, and another one in each run and at each grid point.",
  )

  upload: Chosen | None = _MESSAGES.choice(
    UPLOAD,
    None,
    _with(
      "What clients send instead of their differences, with its bytes counted "
      "as sent. Default: the differences.",
      UPLOAD,
    ),
  )
  error_feedback: bool = _MESSAGES.switch(
    False,
    "With upload: what a client did not send is added to its next difference.",
  )
  aggregator: Chosen = _MESSAGES.choice(
    AGGREGATOR,
    "mean",
    _with(
      "How the server combines the messages of a cohort; all but mean need "
      "--weighting=uniform.",
      AGGREGATOR,
    ),
  )
  fault: Chosen | None = _MESSAGES.choice(
    FAULT, None, _with("What faulty clients send, to test aggregators.", FAULT)
  )
  faulty_fraction: float | None = _MESSAGES.number(
    None,
    "Share of the clients that are faulty, in [0, 1]; who they are is the "
    "same in all rounds and with every seed. With fault.",
    interval="[0, 1]",
  )

  select_on: str = _SELECTION.text(None, _help_of_selection)
  select_metric: str | None = _SELECTION.text(
    None,
    "By what of these examples it is chosen: accuracy or loss. Default: "
    "accuracy of validation and test examples, loss of training examples; "
    "the regularized loss for fmri; for tasks without labels their own.",
  )
  select_over: int | None = _SELECTION.whole(
    None,
    "Rounds at the end of a run of whose evaluations the worst counts, such "
    "as 100. Default: only the last evaluation; for lasso and low_rank the "
    "mean over the last 100 rounds, for femnist10 and femnist62 with "
    "--select_on=train that of the last 10 evaluations.",
    interval="[1, inf)",
  )
  validation_fraction: float | None = _SELECTION.number(
    None,
    "Fraction of the training examples that is held out of training, in "
    f"[0, 1); of each class alike. Default: {VALIDATION_FRACTION} with "
    "--select_on=validation, else 0. lasso and low_rank draw theirs.",
    interval="[0, 1)",
  )
  validation_seed: int | None = _SELECTION.whole(
    None,
    "Seed of the validation part; the same part for all seeds of a run. "
    f"Default: {VALIDATION_SEED}.",
    interval="[0, 4294967295]",
  )

  rounds: int = _ROUNDS.whole(100, "Communication rounds.", interval="[0, inf)")
  target_accuracy: float | None = _ROUNDS.number(
    None,
    "End the run when each point that has not diverged has reached this "
    "accuracy, in (0, 1], on the examples of select_on. summary.json says what "
    "it took.",
  )
  patience: int | None = _ROUNDS.whole(
    None,
    "End the run when for so many evaluations no point has improved the metric "
    "by which points are selected.",
  )
  cohort_size: int | None = _ROUNDS.whole(
    None, _help_of_cohort, is_condition=True
  )
  sampler: Chosen = _ROUNDS.choice(
    SAMPLER, "uniform", _with("Who takes part in a round.", SAMPLER)
  )
  batch_size: int = _ROUNDS.whole(
    None,
    f"Examples in a local batch. Default: {BATCH_SIZE}; "
    f"{BATCH_SIZE_OF_CLIENTS} where the clients come with the data.",
    is_condition=True,
  )
  local_epochs: float | None = _ROUNDS.number(
    None,
    "Passes of a client over its examples in a round; may be a fraction. "
    "Default: 1, unless local_steps is given.",
    is_condition=True,
  )
  local_steps: int | None = _ROUNDS.whole(
    None,
    "Local steps in a round, instead of local_epochs.",
    is_condition=True,
  )
  sampling: str = _ROUNDS.text(
    "shuffle",
    "Local batches: shuffle (all examples, in a new order each epoch) or "
    "replacement (each batch drawn afresh).",
    accepted=("shuffle", "replacement"),
    is_condition=True,
  )
  drop_remainder: bool = _ROUNDS.switch(
    False, "Drop the last batch of an epoch if not full."
  )
  weighting: str = _ROUNDS.text(
    "examples",
    "Weights of clients in means: examples (the number of a client's "
    "examples) or uniform.",
    is_condition=True,
  )
  client_dropout: float = _ROUNDS.number(
    0.0,
    "Probability, in [0, 1), that a client drops out of a round: the mean is "
    "over the others.",
    is_condition=True,
  )
  max_update_norm: float | None = _ROUNDS.number(
    None,
    "Largest Euclidean norm, above 0, of what a client sends; in most "
    "algorithms it is the change of its model. Default: no limit.",
  )
  max_update_action: str = _ROUNDS.text(
    "reject",
    "What becomes of a longer one: reject (the client is left out of the round "
    "and counted in rejected_clients) or clip (it is scaled to the norm, and "
    "the client is counted in clipped_clients).",
  )
  seed: list[int] = _ROUNDS.text(
    "0",
    "[list] Seed of the partition, the initial model, cohorts, batches, and "
    "dropout.",
  )

  output_dir: str | None = _RESULTS.text(
    None,
    "New folder for the results, or with resume that of the run. "
    "Default: runs/TASK-ALGORITHM-CLIENT-TIME.",
    is_identity=False,
    is_of_process=True,
  )
  eval_every: int = _RESULTS.whole(
    10,
    "Rounds between evaluations; round 0 and the last are always evaluated.",
  )
  grad_norm: bool = _RESULTS.switch(
    False,
    "Also measure grad_norm_sq, the squared norm of the gradient of the mean "
    "loss over all clients' examples (l2 included, a regularizer not).",
  )
  x_axis: str = _RESULTS.text(
    "rounds",
    "Horizontal axis of curves.png: rounds, or what a client has spent in "
    "them, in gradient_evaluations (examples) or bytes (down and up).",
    accepted=tuple(plots.X_AXES),
    is_identity=False,
  )
  optimum: bool = _RESULTS.switch(
    False,
    "Also find the least value of the objective (FISTA in float64 on the "
    "data of all clients) and measure optimality_gap, the difference from "
    "it. For convex tasks and algorithms with a regularizer.",
  )
  trace: bool = _RESULTS.switch(
    False,
    lambda: (
      "Record the step sizes of every client and local step in traces.npz and "
      f"step_sizes.png. For client {', '.join(traced_rules())}."
    ),
  )

  profile: bool = _COMPUTATION.switch(
    False,
    "Trace the rounds between the first two evaluations, in the folder profile "
    "of output_dir: for Perfetto, and for TensorBoard's profiler.",
    is_identity=False,
  )
  client_map: str = _COMPUTATION.text(
    "auto",
    "How the clients of a cohort are computed: vmap (all at once), scan (one "
    "after the other) or auto (the faster one on this device).",
  )
  grid_map: str = _COMPUTATION.text(
    "auto",
    "How the points of a grid are computed: vmap (all at once), scan (one "
    "after the other; a point that has diverged then takes no time) or auto "
    "(by the size of a step).",
  )
  client_chunk: int | None = _COMPUTATION.whole(
    None, "Clients computed at once, for cohorts that do not fit into memory."
  )
  client_memory: str = _COMPUTATION.text(
    "auto",
    "Where the state is stored that each client keeps between rounds "
    "(SCAFFOLD, MOON): device, host (the cohort's part goes to the device "
    "before each round) or auto (host if it would fill half of the device's "
    "memory).",
  )
  grid_chunk: int | None = _COMPUTATION.whole(
    None,
    "Points of a grid computed at once, not counting seeds. Default: as many "
    "as fit into memory, by the size that the compiled program reports.",
  )
  precision: str = _COMPUTATION.text(
    "float32",
    "Types in which clients compute: float32, mixed (losses and gradients in "
    "bfloat16, all else in float32) or bfloat16 (also the local steps, with "
    "the rule's state). The server's model and evaluation stay float32.",
    is_condition=True,
  )
  checkpoint_every: int | None = _COMPUTATION.whole(
    None,
    "Rounds between checkpoints, in output_dir/checkpoints; the newest two "
    "are kept. With it, SIGTERM saves one more and ends the run. Default: "
    "none.",
    is_identity=False,
  )
  resume: bool = _COMPUTATION.switch(
    False,
    "Go on with the run in output_dir, which had the same flags, from its "
    "newest checkpoint, or start it if there is none: it ends as if it had "
    "never been stopped. With more rounds it is extended.",
    is_identity=False,
    is_of_process=True,
  )
  compilation_cache: str = _COMPUTATION.text(
    "~/.cache/fedjax_opt",
    "Folder that keeps compiled programs for other runs, or none. The "
    "variable JAX_COMPILATION_CACHE_DIR takes precedence.",
    is_identity=False,
  )
  progress: bool = _COMPUTATION.switch(
    True, "Show progress.", is_identity=False, is_of_process=True
  )

  client_devices: int | None = _DEVICES.whole(
    None,
    "Devices over which the clients of a cohort are divided. Default: all "
    "that are not needed for the grid.",
  )
  grid_devices: int | None = _DEVICES.whole(
    None,
    "Devices over which the points of a grid are divided, seeds not counted. "
    "Default: as many as divide their number.",
  )
  coordinator: str | None = _DEVICES.text(
    None,
    "HOST:PORT of the first of several processes, which run the same "
    "command, each with its process_id.",
    is_identity=False,
    is_of_process=True,
  )
  num_processes: int | None = _DEVICES.whole(
    None, "Processes, with coordinator.", is_of_process=True
  )
  process_id: int | None = _DEVICES.whole(
    None,
    "Number of this process, from 0, with coordinator.",
    is_identity=False,
    is_of_process=True,
  )
  cluster: bool = _DEVICES.switch(
    False,
    "This is one of several processes that find each other, as on Slurm, "
    "on a TPU pod, under Open MPI or Kubernetes.",
    is_of_process=True,
  )

  # What was given and is no default: what to type for the same again.
  given: Mapping[str, Any] = dataclasses.field(compare=False)

  @property
  def schedule(self) -> Schedule:
    """The clients' learning rate over rounds."""
    if self.client_schedule == "exponential":
      return Schedule(decay=self.client_decay)
    if self.client_schedule == "step_decay":
      fractions = self.client_milestones.split(",")
      return Schedule(tuple(map(float, fractions)))
    return Schedule()

  @property
  def trainable_paths(self) -> tuple[str, ...]:
    """The starts of the paths of the leaves that are trained; () for all."""
    return TRAINABLE.of(self.trainable) if self.trainable else ()

  @property
  def tuned(self) -> list[Chosen]:
    """What the numbers of a grid belong to."""
    every = (
      self.algorithm, self.client, self.server, self.regularizer, self.privacy,
    )  # fmt: skip
    return [chosen for chosen in every if chosen is not None]

  @property
  def grid(self) -> dict[str, list[float]]:
    """Flag -> values, of all that may be tuned."""
    return {f: v for chosen in self.tuned for f, v in chosen.grid.items()}

  def at(self, point: Mapping[str, float], seeds: Sequence[int]) -> "Spec":
    """The same with one setting of the grid, and with other seeds."""
    own = lambda chosen: chosen and chosen.with_point(point)
    names = ("algorithm", "client", "server", "regularizer", "privacy")
    chosen = {name: own(getattr(self, name)) for name in names}
    tuned = {f: f"{point[f]!r}" for f in self.grid if f in point}
    given = {**self.given, **tuned, "seed": ",".join(map(str, seeds))}
    return dataclasses.replace(self, **chosen, seed=list(seeds), given=given)

  def values(self) -> dict[str, Any]:
    """Every flag that has a value, in the order of the help."""
    found = {}
    for name in FLAGS:
      value = getattr(self, name)
      if isinstance(value, Chosen):
        found[name] = value.name
        both = {f: single_or_list(v) for f, v in value.grid.items()}
        both |= value.static
        found |= {f: v for f, v in both.items() if v is not None}
      elif value is not None:
        found[name] = single_or_list(value)
    return found

  def identity(self) -> dict[str, Any]:
    """The flags on which the results depend."""
    return {
      name: value for name, value in self.values().items() if is_identity(name)
    }


# name of a field -> its flag.
FLAGS: dict[str, Flag] = {
  field.name: field.metadata["flag"]
  for field in dataclasses.fields(Spec)
  if field.metadata
}
GROUPS = list(dict.fromkeys(flag.group for flag in FLAGS.values()))


def is_identity(name: str) -> bool:
  """Whether results depend on a flag."""
  return name not in FLAGS or FLAGS[name].is_identity


def names() -> dict[str, Group]:
  """All flags, in the order of the help, and where they stand there."""
  found = {}
  for name, flag in FLAGS.items():
    found[name] = flag.group
    if flag.choice is not None:
      found |= dict.fromkeys(flag.choice.owners(), flag.group)
  return found


def conditions() -> list[str]:
  """The flags of which a comparison takes several values."""
  found = []
  for name, flag in FLAGS.items():
    kind = flag.choice
    if flag.is_condition or (kind is not None and kind.is_condition):
      found.append(name)
    if kind is not None and kind.are_conditions:
      found += kind.owners()
  return found


def single_or_list(values: Any) -> Any:
  """A list as a flag has it: one value stands alone."""
  is_single = isinstance(values, list) and len(values) == 1
  return values[0] if is_single else values
