"""Measures how rounds scale with the cohort, the grid and the devices.

  python benchmarks/scaling.py --fedjax_python=P --torch_python=Q \\
      --flower_python=R

prints tables and draws scaling.png, in the folder where it is started. P, Q and
R are Pythons that have FedJAX, PyTorch, and Flower with PyTorch (`pip install
"flwr[simulation]" torch`). Each row is a process of its own, and the processes
of a part take turns (see round_time.py); only Flower comes after the others,
since Ray never rests. Close other programs first: the numbers are wall-clock
times.

Cohort: every client takes part in every round. All clients draw their examples
from one small pool, that of ten clients, so the data are the same for every
cohort. fedjax_opt vectorizes ten clients at a time, chunk after chunk; "auto"
is what it chooses by itself. The floor takes the same local steps with one
model and no federation. The peak is the largest resident memory of the process
with all its libraries, for Flower without Ray's processes; "planned" is what
XLA says the compiled program needs, data included.

Grid: FedDualAvg on LASSO I of the composite optimization paper, all points in
one program; what other frameworks take for so many is the time of one FedAvg
round of the same size times the points.

Devices: `simulate(..., client_devices=D)` in a process where JAX sees the CPU
as D devices. More devices than cores cannot be faster.
"""

import os
import pathlib
from collections.abc import Mapping

import round_time
import shared

from fedjax_opt import plots
from fedjax_opt.study.plots import panels

CHUNKS = {"client_map": "vmap", "client_chunk": 10}
OURS, AUTO = "fedjax_opt, chunks of ten", "fedjax_opt, auto"
LEAST_SQUARES = shared.WORKLOADS["least_squares"]
TASKS = (LEAST_SQUARES, shared.WORKLOADS["mlp"]._replace(num_steps=4))
DEVICE_COHORT = 80  # One chunk of ten for each of eight devices.
COHORTS, GRIDS, DEVICES = (10, 100, 1000), (1, 7, 49, 343), (1, 2, 4, 8)
TURNS = 3  # Of each process; the median counts.
Key = tuple[str, str, int]


def cohorts() -> list[list[shared.Entry]]:
  """Rounds of all frameworks, over the size of the cohort."""
  groups = []
  for task in TASKS:
    of = [
      round_time.entries(
        task._replace(num_clients=clients), {OURS: CHUNKS, AUTO: {}}, clients
      )
      for clients in COHORTS
    ]
    # All sizes together: they are compared, and a machine's speed varies.
    groups += [[e for some in of for e in some[:-1]], *(e[-1:] for e in of)]
  return groups


def grids() -> list[list[shared.Entry]]:
  """Rounds of the LASSO, over the points of a grid."""
  grid = [
    shared.Entry(
      "LASSO grid", "fedjax_opt", "lasso_grid", LEAST_SQUARES,
      {"points": points}, points,
    )
    for points in GRIDS
  ]  # fmt: skip
  # The round of the others is as large as that of one point.
  return [[*grid, *round_time.entries(LEAST_SQUARES, {}, 1)[:2]]]


def devices() -> list[list[shared.Entry]]:
  """Rounds of one large cohort, over devices."""
  flag = "--xla_force_host_platform_device_count"
  given = os.environ.get("XLA_FLAGS", "")
  return [
    [
      shared.Entry(
        OURS, "fedjax_opt", "fed_avg",
        task._replace(num_clients=DEVICE_COHORT),
        CHUNKS | {"client_devices": number}, number,
        shared.ON_CPU | {"XLA_FLAGS": f"{given} {flag}={number}"},
      )
      for number in DEVICES
    ]
    for task in TASKS
  ]  # fmt: skip


# Title -> label of the sizes, and groups of entries that take turns.
PARTS = {
  "Cohorts": ("Clients in a round", cohorts),
  "Grids": ("Points of the grid", grids),
  f"{DEVICE_COHORT} clients": ("Devices", devices),
}
HEADER = (
  "task", "framework", "size", "ms / round", "range", "of the smallest",
  "peak, MB", "of the smallest", "planned, MB", "start + compile, s",
)  # fmt: skip


def rows(found: Mapping[Key, shared.Run]) -> list[list[str]]:
  """The cells of a part, beside those of the least size."""
  cells = []
  for (task, name, size), run in found.items():
    least = found[min(k for k in found if k[:2] == (task, name))]
    planned = run.last.get("planned")
    cells.append(
      [
        *(task, name, f"{size:,}", *run.cells),
        f"{run.seconds / least.seconds:.3g}",
        f"{run.last['peak']:.4g}",
        f"{run.last['peak'] / least.last['peak']:.3g}",
        f"{planned:.4g}" if planned else "-",
        f"{run.start:.1f}",
      ]
    )
  return cells


def draw(parts: Mapping[str, tuple[str, dict]], path: pathlib.Path) -> None:
  """A panel for each task of a part: rounds a second over the size."""
  lines, entries = {}, {}
  for title, (label, found) in parts.items():
    for (task, name, size), run in found.items():
      own = lines.setdefault((f"{title}, {task}", label), {})
      # A grid does as many rounds at once as it has points.
      rate = (size if name == "LASSO grid" else 1) / run.seconds
      own.setdefault(name, []).append((size, rate))
  looks = plots.method_styles(sorted({n for v in lines.values() for n in v}))
  with plots.figure(2, -(-len(lines) // 2), (1.2, 1)) as (figure, axes):
    for unused in axes.flat[len(lines) :]:
      unused.remove()
    for panel, (title, label) in zip(axes.flat, lines, strict=False):
      for name, points in lines[title, label].items():
        sizes, rates = zip(*sorted(points), strict=True)
        (entries[name],) = panel.plot(sizes, rates, **looks[name]._asdict())
      plots.log_scale(panel.xaxis)
      plots.log_scale(panel.yaxis)
      panel.set(title=title, xlabel=label, ylabel="Rounds per second")
    panels.add_below(figure, entries, 2 * 2.8 * 1.2)
  panels.save(figure, path)


def main() -> None:
  parser = shared.parser(__doc__, shared.FRAMEWORKS)
  pythons, parts = shared.pythons(parser.parse_args()), {}
  plots.check_installed()
  print(f"{shared.machine()}\n{round_time.product()}", flush=True)
  for title, (label, groups) in PARTS.items():
    found = {}
    for group in groups():
      found |= shared.measure(group, pythons, TURNS)
    print(f"\n{title}\n{shared.table(HEADER, rows(found))}", flush=True)
    parts[title] = label, found
  draw(parts, pathlib.Path("scaling.png"))


if __name__ == "__main__":
  main()
