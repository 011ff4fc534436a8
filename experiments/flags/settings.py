"""The flags that belong to no choice: rounds, results, computation, devices."""

from experiments.flags import command_line, sampler
from fedjax_opt.algorithms import ALGORITHMS
from fedjax_opt.rules import RULES

# Defaults: clients in a round, examples in a batch, and the latter where the
# clients come with the data.
COHORT_SIZE, BATCH_SIZE, BATCH_SIZE_OF_CLIENTS = 10, 64, 10

# Client rules whose step sizes `--trace` can record.
TRACED = [name for name, rule in RULES.items() if rule.traced]


def _cohorts(cohort: str) -> str:
  """The algorithms whose cohort this is."""
  return ", ".join(n for n, each in ALGORITHMS.items() if each.cohort == cohort)


def define() -> None:
  """Defines them."""
  with command_line.group("Rounds", "rounds"):
    _define_rounds()
  with command_line.group("Results", "results"):
    _define_results()
  with command_line.group("Computation", "computation"):
    _define_computation()
  with command_line.group("Devices and processes", "devices"):
    _define_devices()


def _define_rounds() -> None:
  command_line.integer("rounds", 100, "Communication rounds.")
  _define_stopping()
  command_line.integer(
    "cohort_size",
    None,
    f"Clients in a round. Default: {COHORT_SIZE}; {_cohorts('all')} takes "
    f"all, {_cohorts('first')} the first one.",
  )
  command_line.text(
    "sampler",
    "uniform",
    f"Who takes part in a round.{command_line.listed(sampler.SAMPLERS)}",
  )
  sampler.SAMPLER.define()
  command_line.integer(
    "batch_size",
    None,
    f"Examples in a local batch. Default: {BATCH_SIZE}; "
    f"{BATCH_SIZE_OF_CLIENTS} where the clients come with the data.",
  )
  command_line.number(
    "local_epochs",
    None,
    "Passes of a client over its examples in a round; may be a fraction. "
    "Default: 1, unless local_steps is given.",
  )
  command_line.integer(
    "local_steps", None, "Local steps in a round, instead of local_epochs."
  )
  command_line.text(
    "sampling",
    "shuffle",
    "Local batches: shuffle (all examples, in a new order each epoch) or "
    "replacement (each batch drawn afresh).",
  )
  command_line.switch(
    "drop_remainder", False, "Drop the last batch of an epoch if not full."
  )
  command_line.text(
    "weighting",
    "examples",
    "Weights of clients in means: examples (the number of a client's "
    "examples) or uniform.",
  )
  command_line.number(
    "client_dropout",
    0.0,
    "Probability, in [0, 1), that a client drops out of a round: the mean is "
    "over the others.",
  )
  command_line.number(
    "max_update_norm",
    None,
    "Largest Euclidean norm, above 0, of what a client sends; in most "
    "algorithms it is the change of its model. Default: no limit.",
  )
  command_line.text(
    "max_update_action",
    "reject",
    "What becomes of a longer one: reject (the client is left out of the round "
    "and counted in rejected_clients) or clip (it is scaled to the norm, and "
    "the client is counted in clipped_clients).",
  )
  command_line.text(
    "seed",
    "0",
    "[list] Seed of the partition, the initial model, cohorts, batches, and "
    "dropout.",
  )


def _define_stopping() -> None:
  command_line.number(
    "target_accuracy",
    None,
    "End the run when each point that has not diverged has reached this "
    "accuracy, in (0, 1], on the examples of select_on. summary.json says what "
    "it took.",
  )
  command_line.integer(
    "patience",
    None,
    "End the run when for so many evaluations no point has improved the metric "
    "by which points are selected.",
  )


def _define_results() -> None:
  command_line.text(
    "output_dir",
    None,
    "New folder for the results, or with resume that of the run. "
    "Default: runs/TASK-ALGORITHM-CLIENT-TIME.",
  )
  command_line.integer(
    "eval_every",
    10,
    "Rounds between evaluations; round 0 and the last are always evaluated.",
  )
  command_line.switch(
    "grad_norm",
    False,
    "Also measure grad_norm_sq, the squared norm of the gradient of the mean "
    "loss over all clients' examples (l2 included, a regularizer not).",
  )
  command_line.text(
    "x_axis",
    "rounds",
    "Horizontal axis of curves.png: rounds, or what a client has spent in "
    "them, in gradient_evaluations (examples) or bytes (down and up).",
  )
  command_line.switch(
    "optimum",
    False,
    "Also find the least value of the objective (FISTA in float64 on the "
    "data of all clients) and measure optimality_gap, the difference from "
    "it. For convex tasks and algorithms with a regularizer.",
  )
  command_line.switch(
    "trace",
    False,
    "Record the step sizes of every client and local step in traces.npz and "
    f"step_sizes.png. For client {', '.join(TRACED)}.",
  )


def _define_computation() -> None:
  command_line.switch(
    "profile",
    False,
    "Trace the rounds between the first two evaluations, in the folder profile "
    "of output_dir: for Perfetto, and for TensorBoard's profiler.",
  )
  command_line.text(
    "client_map",
    "auto",
    "How the clients of a cohort are computed: vmap (all at once), scan (one "
    "after the other) or auto (the faster one on this device).",
  )
  command_line.text(
    "grid_map",
    "auto",
    "How the points of a grid are computed: vmap (all at once), scan (one "
    "after the other; a point that has diverged then takes no time) or auto "
    "(by the size of a step).",
  )
  command_line.integer(
    "client_chunk",
    None,
    "Clients computed at once, for cohorts that do not fit into memory.",
  )
  command_line.text(
    "client_memory",
    "auto",
    "Where the state is stored that each client keeps between rounds "
    "(SCAFFOLD, MOON): device, host (the cohort's part goes to the device "
    "before each round) or auto (host if it would fill half of the device's "
    "memory).",
  )
  command_line.integer(
    "grid_chunk",
    None,
    "Points of a grid computed at once, not counting seeds. Default: as many "
    "as fit into memory, by the size that the compiled program reports.",
  )
  command_line.text(
    "precision",
    "float32",
    "Types in which clients compute: float32, mixed (losses and gradients in "
    "bfloat16, all else in float32) or bfloat16 (also the local steps, with "
    "the rule's state). The server's model and evaluation stay float32.",
  )
  command_line.integer(
    "checkpoint_every",
    None,
    "Rounds between checkpoints, in output_dir/checkpoints; the newest two "
    "are kept. With it, SIGTERM saves one more and ends the run. Default: "
    "none.",
  )
  command_line.switch(
    "resume",
    False,
    "Go on with the run in output_dir, which had the same flags, from its "
    "newest checkpoint, or start it if there is none: it ends as if it had "
    "never been stopped. With more rounds it is extended.",
  )
  command_line.text(
    "compilation_cache",
    "~/.cache/fedjax_opt",
    "Folder that keeps compiled programs for other runs, or none. The "
    "variable JAX_COMPILATION_CACHE_DIR takes precedence.",
  )
  command_line.switch("progress", True, "Show progress.")


def _define_devices() -> None:
  command_line.integer(
    "client_devices",
    None,
    "Devices over which the clients of a cohort are divided. Default: all "
    "that are not needed for the grid.",
  )
  command_line.integer(
    "grid_devices",
    None,
    "Devices over which the points of a grid are divided, seeds not counted. "
    "Default: as many as divide their number.",
  )
  command_line.text(
    "coordinator",
    None,
    "HOST:PORT of the first of several processes, which run the same "
    "command, each with its process_id.",
  )
  command_line.integer("num_processes", None, "Processes, with coordinator.")
  command_line.integer(
    "process_id", None, "Number of this process, from 0, with coordinator."
  )
  command_line.switch(
    "cluster",
    False,
    "This is one of several processes that find each other, as on Slurm, "
    "on a TPU pod, under Open MPI or Kubernetes.",
  )
