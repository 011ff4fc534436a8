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
and no federation; the last line is what the machine's matrix product reaches.
Close other programs first: the numbers are wall-clock times.
"""

import functools
import sys

import shared

_ours = functools.partial(shared.Entry, worker="fedjax_opt", program="fed_avg")
# The table has one column of ratios for each of these.
BASELINES = ("FedJAX", "PyTorch eager", "Flower", "floor", "fedjax_opt")


def entries(workload: shared.Workload) -> list[shared.Entry]:
  """The programs of one round, in the order of their turns."""
  ours = functools.partial(_ours, workload=workload)
  return [
    shared.Entry("FedJAX", "fedjax", "fed_avg", workload),
    shared.Entry("PyTorch eager", "torch", "fed_avg", workload),
    shared.Entry("floor", "fedjax_opt", "floor", workload),
    ours("fedjax_opt"),
    ours("  clients by scan", settings={"client_map": "scan"}),
    ours("  clients by vmap", settings={"client_map": "vmap"}),
    ours("  Delta-SGD, reused", settings={"rule": "delta_sgd_reused"}),
    ours("  Delta-SGD", settings={"rule": "delta_sgd"}),
  ]


def rows(found: dict) -> list[list[str]]:
  """The cells of one workload, one row per program that ran."""
  seconds = {name: measured.seconds for (_, name, _), measured in found.items()}
  return [
    [
      *(task, name, *measured.cells),
      *(
        f"{measured.seconds / seconds[baseline]:.3f}"
        if baseline in seconds
        else "-"
        for baseline in BASELINES
      ),
      f"{measured.compile_seconds:.1f}",
    ]
    for (task, name, _), measured in found.items()
  ]


def gflops() -> float:
  """GFLOP/s of a large float32 matrix product, best of five."""
  worker = shared.Worker("fedjax_opt", sys.executable)
  workload = shared.WORKLOADS["cnn"]  # It says how many products a turn has.
  turn = lambda: worker.run("matrix_product", workload)["seconds"]
  times = [turn() for _ in range(6)][1:]
  worker.close()
  return workload.rounds_per_turn * 2 * 2048**3 / min(times) / 1e9


def main() -> None:
  parser = shared.parser(
    __doc__, fedjax="FedJAX", torch="PyTorch", flower="Flower and PyTorch"
  )
  parser.add_argument(
    "--repetitions", type=int, default=9, help="turns; their median counts"
  )
  options = parser.parse_args()
  print(shared.machine())
  found = []
  for workload in shared.WORKLOADS.values():
    print(workload.description, flush=True)
    flower = shared.Entry("Flower", "flower", "fed_avg", workload)
    measured = {}
    for together in entries(workload), [flower]:
      measured |= shared.measure(
        together, shared.pythons(options), options.repetitions
      )
    found += rows(measured)
  ratios = (f"time / {baseline}" for baseline in BASELINES)
  header = ("workload", "framework", "ms / round", "range", *ratios)
  print(f"\n{shared.table((*header, 'start + compile, s'), found)}")
  print(f"matrix product: {gflops():.0f} GFLOP/s")


if __name__ == "__main__":
  main()
