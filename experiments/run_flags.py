"""The flags of a run, those of its parts included, by importing this."""

from absl import flags

from experiments import command_line, config, population, tasks

tasks.define_flags()
population.define_flags()
config.define_flags(
  {n: t.client_lr for n, t in tasks.TASKS.items() if t.client_lr is not None}
)

with command_line.group("Rounds"):
  flags.DEFINE_integer("rounds", 100, "Communication rounds.")
  flags.DEFINE_integer(
    "cohort_size",
    None,
    "Clients in a round, drawn uniformly without replacement. Default: 10; "
    "centralized takes all, local the first one.",
  )
  flags.DEFINE_integer(
    "batch_size",
    None,
    "Examples in a local batch. Default: 64; 10 where the clients come with "
    "the data.",
  )
  flags.DEFINE_float(
    "local_epochs",
    None,
    "Passes of a client over its examples in a round, any fraction. Default: "
    "1, unless local_steps is given.",
  )
  flags.DEFINE_integer(
    "local_steps", None, "Local steps in a round, instead of local_epochs."
  )
  flags.DEFINE_string(
    "sampling",
    "shuffle",
    "Local batches: shuffle (all examples, in a new order each epoch) or "
    "replacement (each batch drawn afresh).",
  )
  flags.DEFINE_bool(
    "drop_remainder", False, "Drop the last batch of an epoch if not full."
  )
  flags.DEFINE_string(
    "weighting",
    "examples",
    "Clients' weights in means: examples (as many as it has) or uniform.",
  )
  flags.DEFINE_float(
    "client_dropout",
    0.0,
    "How likely a client drops out of a round, in [0, 1): it is left out of "
    "the mean, with its weight.",
  )
  flags.DEFINE_string(
    "seed",
    "0",
    "[list] Of the partition, the initial model, cohorts, batches, dropout.",
  )

with command_line.group("Results"):
  flags.DEFINE_string(
    "output_dir",
    None,
    "New folder for the results, or with resume that of the run. Default: "
    "runs/TASK-ALGORITHM-CLIENT-TIME.",
  )
  flags.DEFINE_integer(
    "eval_every",
    10,
    "Rounds between evaluations; round 0 and the last are always evaluated.",
  )
  flags.DEFINE_bool(
    "grad_norm",
    False,
    "Also measure grad_norm_sq, the squared norm of the gradient of the mean "
    "loss over all clients' examples (l2 included, a regularizer not).",
  )
  flags.DEFINE_string(
    "x_axis",
    "rounds",
    "What curves.png is drawn against: rounds, or what a client has spent in "
    "them, in gradient_evaluations (examples) or bytes (down and up).",
  )
  flags.DEFINE_bool(
    "optimum",
    False,
    "Also find the least value of the objective (FISTA in float64 on the data "
    "of all clients) and measure optimality_gap, what a model is above it. For "
    "convex tasks and algorithms with a regularizer.",
  )
  flags.DEFINE_bool(
    "trace",
    False,
    "Record delta_sgd's step sizes, of every client and local step, in "
    "traces.npz and step_sizes.png.",
  )

with command_line.group("Computation"):
  flags.DEFINE_string(
    "client_map",
    "auto",
    "How a cohort is computed: vmap (clients side by side), scan (one after "
    "the other) or auto (what is faster on this device).",
  )
  flags.DEFINE_string(
    "grid_map",
    "auto",
    "How a grid is computed: vmap (points side by side), scan (one after the "
    "other; diverged points then take no more time) or auto (by the size of "
    "a step).",
  )
  flags.DEFINE_integer(
    "client_chunk",
    None,
    "Clients side by side at a time, for cohorts that do not fit into memory.",
  )
  flags.DEFINE_string(
    "client_memory",
    "auto",
    "Where what each client keeps between rounds is (SCAFFOLD, MOON): device, "
    "host (its cohort's part goes to the device before each round) or auto "
    "(host where it would fill half of the device's memory).",
  )
  flags.DEFINE_integer(
    "grid_chunk",
    None,
    "Settings of a grid side by side at a time. Default: as many as fit into "
    "memory, by what the compiled program says that it needs.",
  )
  flags.DEFINE_string(
    "precision",
    "float32",
    "In which numbers clients compute: float32, mixed (losses and gradients in "
    "bfloat16, all else in float32) or bfloat16 (also the local steps, with "
    "the rule's state). The server's model and evaluation stay float32.",
  )
  flags.DEFINE_integer(
    "checkpoint_every",
    None,
    "Rounds between checkpoints, in output_dir/checkpoints; the newest two are "
    "kept. Then SIGTERM saves one more and ends the run. Default: none.",
  )
  flags.DEFINE_bool(
    "resume",
    False,
    "Go on with the run in output_dir, given with the same flags, from its "
    "newest checkpoint: it ends as if it had never been stopped.",
  )
  flags.DEFINE_string(
    "compilation_cache",
    "~/.cache/fedjax_opt",
    "Folder that keeps compiled programs for other runs, or none. The variable "
    "JAX_COMPILATION_CACHE_DIR goes before it.",
  )
  flags.DEFINE_bool("progress", True, "Show progress.")

with command_line.group("Devices and processes"):
  flags.DEFINE_integer(
    "client_devices",
    None,
    "Devices over which the clients of a cohort are divided. Default: all that "
    "are not needed for the grid.",
  )
  flags.DEFINE_integer(
    "grid_devices",
    None,
    "Devices over which the settings of a grid are divided. Default: as many "
    "as divide their number.",
  )
  flags.DEFINE_string(
    "coordinator",
    None,
    "HOST:PORT of the first of several processes, which run the same command, "
    "each with its process_id.",
  )
  flags.DEFINE_integer("num_processes", None, "Processes, with coordinator.")
  flags.DEFINE_integer(
    "process_id", None, "Which of them this is, from 0, with coordinator."
  )
  flags.DEFINE_bool(
    "cluster",
    False,
    "One of several processes that find each other by themselves, as on Slurm, "
    "on a TPU pod, under Open MPI or Kubernetes.",
  )
