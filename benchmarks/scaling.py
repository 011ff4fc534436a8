"""Measures how rounds scale with the cohort, the grid and the devices.

  python benchmarks/scaling.py --fedjax_python=P --torch_python=Q \\
      --flower_python=R

prints a table and draws scaling.png. P, Q and R are Pythons that have FedJAX,
PyTorch, and Flower with PyTorch (`pip install "flwr[simulation]" torch`). Each
row is a process of its own, and the processes of a part take turns (see
round_time.py); only Flower comes after the others, since Ray never rests. Close
other programs first: the numbers are wall-clock times.

Cohort: every client takes part in every round. All clients draw their examples
from one small pool, that of ten clients, so the data are the same for every
cohort. fedjax_opt vectorizes ten clients at a time, chunk after chunk; "auto"
is what it chooses by itself. The floor takes the same local steps with one
model and no federation. The peak is the largest resident memory of the process
with all its libraries, and for Flower of Ray's processes too, pages that they
share counted for each; "planned" is what XLA says the compiled program needs,
data included.

Grid: FedDualAvg on LASSO I of the composite optimization paper, all points in
one program; what other frameworks take for so many is the time of one FedAvg
round of the same size times the points.

Devices: `simulate(..., client_devices=D)` in a process where JAX sees the CPU
as D devices. More devices than cores cannot be faster.
"""

import pathlib
from collections.abc import Mapping

import round_time
import shared

from fedjax_opt import plots

CHUNKS = {"client_map": "vmap", "client_chunk": 10}
OURS, AUTO = "fedjax_opt, chunks of ten", "fedjax_opt, auto"
LEAST_SQUARES = shared.WORKLOADS["least_squares"]
TASKS = (LEAST_SQUARES, shared.WORKLOADS["mlp"]._replace(num_steps=4))
DEVICE_COHORT = 80  # One chunk of ten for each of eight devices.
COHORTS, GRIDS, DEVICES = (10, 100, 1000), (1, 7, 49, 343), (1, 2, 4, 8)
TURNS = 3  # Of each process; the median counts.
Key = tuple[str, str, int]


def of_cohort(task: shared.Workload, clients: int) -> list[shared.Entry]:
  """All frameworks on rounds of so many clients; Flower is the last."""
  task = task._replace(num_clients=clients)
  entry = lambda *of, **more: shared.Entry(*of, task, size=clients, **more)
  return [
    entry("FedJAX", "fedjax", "fed_avg"),
    entry("PyTorch, eager", "torch", "fed_avg"),
    entry("floor", "fedjax_opt", "floor"),
    entry(OURS, "fedjax_opt", "fed_avg", settings=CHUNKS),
    entry(AUTO, "fedjax_opt", "fed_avg"),
    entry("Flower", "flower", "fed_avg"),
  ]


def measure_cohorts(pythons: Mapping[str, str]) -> dict:
  """Rounds of all frameworks, over the size of the cohort."""
  found = {}
  for task in TASKS:
    print(task.description, flush=True)
    of = [of_cohort(task, clients) for clients in COHORTS]
    # All sizes together: they are compared, and a machine's speed varies.
    groups = [[e for some in of for e in some[:-1]], *(e[-1:] for e in of)]
    for group in groups:
      found |= shared.measure(group, pythons, TURNS)
  return found


def measure_grids(pythons: Mapping[str, str]) -> dict:
  """Rounds of the LASSO, over the points of a grid."""
  entries = [
    shared.Entry(
      "LASSO grid", "fedjax_opt", "lasso_grid", LEAST_SQUARES,
      {"points": points}, points,
    )
    for points in GRIDS
  ]  # fmt: skip
  entries += of_cohort(LEAST_SQUARES, 1)[:2]
  # Their size is one point; their round is as large.
  entries[-2:] = [e._replace(workload=LEAST_SQUARES) for e in entries[-2:]]
  return shared.measure(entries, pythons, TURNS)


def measure_devices(pythons: Mapping[str, str]) -> dict:
  """Rounds of one large cohort, over devices."""
  found = {}
  for task in TASKS:
    workload = task._replace(num_clients=DEVICE_COHORT)
    entries = [
      shared.Entry(
        OURS, "fedjax_opt", "fed_avg", workload,
        CHUNKS | {"client_devices": number}, number, number,
      )
      for number in DEVICES
    ]  # fmt: skip
    found |= shared.measure(entries, pythons, TURNS)
  return found


HEADER = (
  "task", "framework", "size", "ms / round", "range", "of the floor",
  "of the smallest", "peak, MB", "of the smallest", "planned, MB",
  "start + compile, s",
)  # fmt: skip


def rows(found: Mapping[Key, shared.Measured]) -> list[list[str]]:
  """The cells of a part, beside the floor of that size and the least size."""
  ratio = lambda a, b: f"{a / b:.3g}" if a and b else "-"
  number = lambda a: f"{a:.4g}" if a else "-"
  cells = []
  for (task, name, size), measured in found.items():
    floor = found.get((task, "floor", size))
    least = found[min(k for k in found if k[:2] == (task, name))]
    cells.append(
      [
        *(task, name, f"{size:,}", *measured.cells),
        ratio(measured.seconds, floor and floor.seconds),
        ratio(measured.seconds, least.seconds),
        *(number(measured.peak), ratio(measured.peak, least.peak)),
        *(number(measured.planned), f"{measured.compile_seconds:.1f}"),
      ]
    )
  return cells


def draw(parts: Mapping[str, tuple[str, dict]], path: pathlib.Path) -> None:
  """A panel for each task of a part: rounds a second over the size."""
  panels = [
    (title, label, task, found)
    for title, (label, found) in parts.items()
    for task in dict.fromkeys(task for task, _, _ in found)
  ]
  with plots.figure(columns=len(panels)) as (figure, axes):
    for panel, (title, label, task, found) in zip(axes[0], panels, strict=True):
      for name in dict.fromkeys(n for t, n, _ in found if t == task):
        sizes = sorted(s for t, n, s in found if (t, n) == (task, name))
        # A grid does as many rounds at once as it has points.
        points = lambda s, name=name: s if name == "LASSO grid" else 1
        rates = [points(s) / found[task, name, s].seconds for s in sizes]
        panel.plot(sizes, rates, marker="o", markersize=4, label=name)
      plots.log_scale(panel.xaxis)
      plots.log_scale(panel.yaxis)
      panel.set(title=f"{title}, {task}", xlabel=label)
      panel.legend()
    axes[0, 0].set_ylabel("Rounds per second")
    figure.savefig(path)


def main() -> None:
  parser = shared.parser(
    __doc__, fedjax="FedJAX", torch="PyTorch", flower="Flower and PyTorch"
  )
  parser.add_argument(
    "--output_dir", type=pathlib.Path, default=pathlib.Path("runs/scaling"),
    help="where to write scaling.png (default: %(default)s)",
  )  # fmt: skip
  options = parser.parse_args()
  pythons = shared.pythons(options)
  plots.check_installed()
  options.output_dir.mkdir(parents=True, exist_ok=True)
  print(shared.machine())
  print(f"matrix product: {round_time.gflops():.0f} GFLOP/s", flush=True)
  parts = {}
  for title, label, measure in (
    ("Cohorts", "Clients in a round", measure_cohorts),
    ("Grids", "Points of the grid", measure_grids),
    (f"{DEVICE_COHORT} clients", "Devices", measure_devices),
  ):
    found = measure(pythons)
    print(f"\n{title}\n{shared.table(HEADER, rows(found))}", flush=True)
    parts[title] = label, found
  draw(parts, options.output_dir / "scaling.png")
  print(f"\n{options.output_dir / 'scaling.png'}")


if __name__ == "__main__":
  main()
