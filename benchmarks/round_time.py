"""Times one federated round in several frameworks, on the CPU.

  python benchmarks/round_time.py --fedjax_python=P --torch_python=Q \\
      --flower_python=R

P, Q and R are Pythons that have FedJAX (`pip install fedjax dm-haiku`), PyTorch
(`pip install torch numpy`), and Flower with PyTorch (`pip install
"flwr[simulation]" torch`); each is by default the one that runs this file. The
processes take turns, A B C A B C, so that the noise of the machine is shared;
while one works, the others wait. Only Flower comes after the others, since Ray
never rests. Compilation is reported apart. A framework that cannot run is named
as skipped, with the reason. The floor takes the same local steps with one model
and no federation; the first and the last line say what the machine's matrix
product reaches. Close other programs first: the numbers are wall-clock times.
"""

from collections.abc import Mapping

import pandas
import shared

TURNS = 5  # Of each process; the median counts.
# The table has one column of ratios for each of these.
BASELINES = ("FedJAX", "PyTorch, eager", "floor", "fedjax_opt")
OURS = {
  "fedjax_opt": {},
  "fedjax_opt, Δ-SGD, reused": {"rule": "delta_sgd_reused"},
  "fedjax_opt, Δ-SGD": {"rule": "delta_sgd"},
  "fedjax_opt, AdamW": {"rule": "adamw"},
}
FLOORS = {
  "floor": {},
  "floor, Δ-SGD, reused": {"rule": "delta_sgd_by_hand"},
  "floor, AdamW": {"rule": "adamw"},
}


def entries(
  workload: shared.Workload, ours: Mapping[str, Mapping], size: int = 0
) -> list[shared.Entry]:
  """The programs of one round, in the order of their turns; Flower is last.

  Args:
    workload: the round.
    ours: name -> settings of a row of this package, or of `FLOORS`.
    size: see `shared.Entry`.
  """
  row = lambda *args: shared.Entry(*args[:3], workload, *args[3:], size=size)
  *theirs, flower = (
    row(name, worker, "fed_avg") for worker, name in shared.FRAMEWORKS.items()
  )
  rows = (
    row(name, "fedjax_opt", "floor" if name in FLOORS else "fed_avg", how)
    for name, how in ours.items()
  )
  return [*theirs, *rows, flower]


def with_ratios(frame: pandas.DataFrame) -> pandas.DataFrame:
  """Of the programs that ran, with their times over those of the baselines."""
  for name in BASELINES:
    times = frame[frame["framework"] == name].set_index("task")["ms / round"]
    ratios = frame["ms / round"] / frame["task"].map(times)
    frame = frame.assign(**{f"time / {name}": ratios})
  return frame


def product() -> str:
  """What a large float32 matrix product reaches on the processor."""
  tflops = shared.in_process(
    "fedjax_opt_worker", "tflops", {"n": 2048}, variables=shared.ON_CPU
  )
  return f"matrix product: {1e3 * tflops:.0f} GFLOP/s"


def main() -> None:
  parser = shared.parser(__doc__, shared.FRAMEWORKS)
  pythons, runs = shared.pythons(parser.parse_args()), {}
  print(f"{shared.machine()}\n{product()}")
  for workload in shared.WORKLOADS.values():
    *other_entries, flower = entries(workload, FLOORS | OURS)
    for group in other_entries, [flower]:
      runs |= shared.measure(group, pythons, TURNS)
  frame = with_ratios(shared.frame_of(runs).drop(columns="size"))
  print(f"\n{shared.table_of(frame)}\n{product()}")


if __name__ == "__main__":
  main()
