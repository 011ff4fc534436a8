"""Times a round of each method over FedAvg's, and what gradients explain.

  PYTHONPATH=. python benchmarks/method_time.py

The rounds are those of workloads.py: the same clients, batches and local steps
for all methods, each with plain steps. The programs take turns in one process,
so that the noise of the machine is shared; medians count. "gradients" is how
many gradients of an example a method evaluates for one of FedAvg, and the last
column what is left of the time when they are divided out: state that is kept,
what is sent besides the model, and element-wise work in the local steps.
"""

import argparse
import statistics
from collections.abc import Callable

import fedjax_opt_worker as ours
import jax
import optax
import workloads
from round_time import cpu_model, load_average, print_table

import fedjax_opt as fo

_RATES = ("scaffold", "domo", "fed_nova", "fed_cm", "mime_lite", "prox_skip",
          "mo_fed_sam", "fed_speed")  # fmt: skip
_RULES = ("fed_avg", "fed_prox", "fed_dyn", "fed_exp", "fed_sam", "diloco",
          "ditto")  # fmt: skip
NAMES = (*_RULES, *_RATES)
HEADER = ("round", "method", "ms", "of FedAvg", "gradients", "left")


def make(name: str, loss_fn: Callable, rate: float) -> fo.Algorithm:
  """A method with plain steps of this rate."""
  factory = getattr(fo, name)
  given = rate if name in _RATES else optax.sgd(rate)
  return factory(loss_fn, given)


def rows_of(
  workload: workloads.Workload, turns: int, names: tuple[str, ...]
) -> list[list[str]]:
  """The cells of one workload, a row for each method."""
  loss_fn, params = ours.make_loss(workload)
  data = jax.device_put(ours.client_data(workload))
  made = {n: make(n, loss_fn, workload.learning_rate) for n in names}
  seconds = {name: [] for name in names}
  gradients = {}
  for turn in range(1 + turns):
    for name, algorithm in made.items():
      result = fo.simulate(
        algorithm,
        params,
        data,
        rounds=workload.rounds_per_turn,
        batch_size=workload.batch_size,
        local_steps=workload.num_steps,
        eval_every=ours.MAX_ROUNDS,
      )
      gradients[name] = result.cost["gradient_evaluations_per_round"]
      if turn:  # The first one compiles.
        seconds[name].append(result.run_seconds / workload.rounds_per_turn)
  medians = {name: statistics.median(seconds[name]) for name in names}
  rows = []
  for name in names:
    ratio = medians[name] / medians["fed_avg"]
    work = gradients[name] / gradients["fed_avg"]
    rows.append(
      [
        workload.name,
        name,
        f"{1e3 * medians[name]:.3g}",
        f"{ratio:.2f}",
        f"{work:.2f}",
        f"{ratio / work:.2f}",
      ]
    )
  return rows


def main() -> None:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  every = list(workloads.WORKLOADS)
  parser.add_argument("--workloads", nargs="+", choices=every, default=every)
  parser.add_argument("--turns", type=int, default=9)
  parser.add_argument("--methods", nargs="+", choices=NAMES, default=NAMES)
  arguments = parser.parse_args()
  names = tuple(dict.fromkeys(["fed_avg", *arguments.methods]))
  print(f"CPU: {cpu_model()}; jax {jax.__version__}")
  print(f"Load before the start: {load_average()}")
  for name in arguments.workloads:
    workload = workloads.WORKLOADS[name]
    print_table(HEADER, rows_of(workload, arguments.turns, names))
    print(flush=True)


if __name__ == "__main__":
  main()
