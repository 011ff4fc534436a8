"""Runs a federated algorithm on a task, or a whole grid of settings at once.

  python -m experiments.run --client=sgd --client_lr=0.01,0.1,1 --seed=0,1,2

Flags to begin with:
  --task=NAME          Data set and model, such as mnist_cnn. Default: digits.
  --algorithm=NAME     What a round does. Default: fed_avg.
  --client=RULE        How a client takes a local step. Default: delta_sgd.
  --client_lr=X,...    Step size, if the rule has one, as --client=sgd has;
                       several make a grid.
  --alpha=X            How alike the clients are: 100 very, 0.01 hardly.
  --cohort_size=N      Clients in a round. Default: 10.
  --local_epochs=N     Passes of a client over its examples. Default: 1.
  --rounds=N           Rounds. Default: 100.
  --seed=N,...         Seeds; each runs every setting. Default: 0.
  --output_dir=FOLDER  A new folder for the results.

With no flag: Δ-SGD on scikit-learn's digits, 100 clients, no download.

  python -m experiments.run
  python -m experiments.run --task=mnist_cnn --data_dir=~/tensorflow_datasets
  python -m experiments.run --task=lasso --algorithm=fed_dual_avg \\
      --client_lr=0.0003,0.001,0.003 --strength=0.1
  python -m experiments.run --flagfile=experiments/delta_sgd/mnist.flags

A flag marked [list] takes several numbers, separated by commas; all
combinations then run as one compiled program. Some flags are accepted only with
certain rules, algorithms or partitions. Their help ends in the names of these,
each with its default, such as (sgd 0.1, adam 0.001).

The output folder holds config.json (every flag), flags.txt (those given),
metrics.csv (every evaluated round), summary.json (final and best values,
timing, cost), params.safetensors (the model), curves.png, clients.png (labels
of each client, if there are any), TensorBoard events and digests.json; with
client_test_fraction also per_client.csv, of clients' own test examples. After
Ctrl-C these files have all that was measured before.

Exit status: 0; 1 for bad input, or if every point diverged; 128 + n if signal n
ended the run.
"""

from collections.abc import Sequence

import jax

from experiments import start_of_run
from experiments.command_line import exits, parser
from experiments.processes import command, failures, hosts
from experiments.single_run import execution
from experiments.specification.resolve import resolve

# What JAX raises, in one place or another, if another process has ended.
_OF_LOSS = (jax.errors.JaxRuntimeError, ValueError, OSError)


def main(argv: Sequence[str]) -> int:
  """Runs one command; may be called again. Returns the exit status."""
  started, signals = start_of_run(), command.Signals()
  command.set_last_line(lambda: signals.line)
  try:
    with signals:
      flag_values = parser.parse(argv, __doc__)
      hosts.join(flag_values)
      with hosts.all_or_none():
        spec = resolve(flag_values)
      return execution.perform(spec, signals, started)
  except Exception as error:
    if isinstance(error, _OF_LOSS) and hosts.is_loss(error):
      return hosts.exit_as_lost(str(error))
    # A defect is raised: its whole traceback is shown.
    if not failures.is_refusal(error):
      raise
    return hosts.exit_if_watched(exits.refuse(error, argv))
  except KeyboardInterrupt as error:
    print(signals.line)
    return command.status_of(error)


if __name__ == "__main__":
  command.run(main)
