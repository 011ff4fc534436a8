"""Measures how rounds scale with the cohort, the grid and the devices.

  python benchmarks/scaling.py --fedjax_python=P --torch_python=Q \\
      --flower_python=R

prints tables, and writes scaling.csv and its picture, scaling.png, where it is
started; `--csv=FILE` only draws such a file. P, Q and R are Pythons that have
FedJAX, PyTorch, and Flower with PyTorch (`pip install "flwr[simulation]"
torch`). Each row is a process of its own, and the processes
of a part take turns (see round_time.py); only Flower comes after the others,
since Ray never rests. Close other programs first: the numbers are wall-clock
times.

Cohort: every client takes part in every round. All clients draw their examples
from one small pool, that of ten clients, so the data are the same for every
cohort. fedjax_opt vectorizes ten clients at a time, chunk after chunk; "auto"
is what it chooses by itself. The floor takes the same local steps with one
model and no federation. The peak is the largest resident memory of the process
with all its libraries, for Flower without Ray's processes.

Grid: FedDualAvg on LASSO I of the composite optimization paper, all points in
one program; what other frameworks take for so many is the time of one FedAvg
round of the same size times the points.

Devices: `simulate(..., client_devices=D)` in a process where JAX sees the CPU
as D devices. More devices than cores cannot be faster.
"""

import pathlib

import pandas
import round_time
import shared

from fedjax_opt import plots
from fedjax_opt.study.plots import panels

CHUNKS = {"client_map": "vmap", "client_chunk": 10}
OURS, AUTO = "fedjax_opt, chunks of ten", "fedjax_opt, auto"
GRID = "LASSO grid"
ROWS = {"floor": {}, OURS: CHUNKS, AUTO: {}}
TASKS = (shared.LEAST_SQUARES, shared.WORKLOADS["mlp"]._replace(num_steps=4))
DEVICE_COHORT = 80  # One chunk of ten for each of eight devices.
COHORTS, GRIDS, DEVICES = (10, 100, 1000), (1, 7, 49, 343), (1, 2, 4, 8)
TURNS = 3  # Of each process; the median counts.
COLUMNS = ["panel", "label", "framework", "size", "ms / round"]  # Of the file.


def cohorts() -> list[list[shared.Entry]]:
  """Rounds of all frameworks, over the size of the cohort."""
  groups = []
  for task in TASKS:
    rows = [
      round_time.entries(task._replace(num_clients=clients), ROWS, clients)
      for clients in COHORTS
    ]
    # All sizes together: they are compared, and a machine's speed varies.
    groups += [[e for row in rows for e in row[:-1]], *(e[-1:] for e in rows)]
  return groups


def grids() -> list[list[shared.Entry]]:
  """Rounds of the LASSO, over the points of a grid."""
  grid = [
    shared.Entry(
      GRID, "fedjax_opt", "lasso_grid", shared.LEAST_SQUARES,
      {"points": points}, points,
    )
    for points in GRIDS
  ]  # fmt: skip
  # The round of the others is as large as that of one point.
  return [[*grid, *round_time.entries(shared.LEAST_SQUARES, {}, 1)[:2]]]


def devices() -> list[list[shared.Entry]]:
  """Rounds of one large cohort, over devices."""
  flag = "--xla_force_host_platform_device_count"
  return [
    [
      shared.Entry(
        OURS, "fedjax_opt", "fed_avg",
        task._replace(num_clients=DEVICE_COHORT),
        CHUNKS | {"client_devices": number}, number,
        shared.ON_CPU | {"XLA_FLAGS": f"{flag}={number}"},
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


def draw(frame: pandas.DataFrame, path: pathlib.Path) -> None:
  """A panel for each task of a part: rounds a second over the size."""
  # A grid does as many rounds at once as it has points.
  rounds = frame["size"].where(frame["framework"] == GRID, 1)
  frame["rate"] = 1e3 * rounds / frame["ms / round"]
  frame = frame.assign(framework=frame["framework"].replace(GRID, AUTO))
  styles = plots.method_styles(sorted({*frame["framework"]}))

  def draw_one(axes, panel):
    rows = frame[frame["panel"] == panel].sort_values("size")
    is_grid = rows["label"].iloc[0] == "Points of the grid"
    title = "Grids, LASSO" if is_grid else panel
    axes.set_title(title.replace("_", " ").replace("mlp", "MLP"))
    entries = {}
    axes.set(xlabel=rows["label"].iloc[0], ylabel="Rounds per second")
    plots.log_scale(axes.xaxis)
    if rows["label"].iloc[0] == "Devices":  # Few percents shall look few.
      axes.set_ylim(0, 1.1 * rows["rate"].max())
    else:
      plots.log_scale(axes.yaxis)
    axes.set_xticks(sizes := rows["size"].unique(), map("{:,}".format, sizes))
    axes.minorticks_off()
    # Others take one point of a grid after the other.
    others = rows[is_grid & (rows["size"] == 1) & (rows["framework"] != AUTO)]
    for name, rate in others.groupby("framework")["rate"]:
      line = axes.axhline(rate.iloc[0], color=styles[name].color, ls="--")
      entries[f"{name}, without a grid"] = line
    return entries | {
      name: axes.plot(group["size"], group["rate"], **styles[name]._asdict())[0]
      for name, group in rows.groupby("framework")
    }

  names = list(frame["panel"].unique())
  panels.save(panels.draw_panels(names, None, draw_one, list(styles)), path)


def main() -> None:
  parser = shared.parser(__doc__, shared.FRAMEWORKS)
  parser.add_argument("--csv", help="what an earlier run wrote: is drawn only")
  options = parser.parse_args()
  plots.check_installed()
  picture = pathlib.Path("scaling.png")
  if options.csv:
    draw(pandas.read_csv(options.csv), picture)
    return
  pythons, frames = shared.pythons(options), []
  print(f"{shared.machine()}\n{round_time.product()}", flush=True)
  for title, (label, groups) in PARTS.items():
    runs = {}
    for group in groups():
      runs |= shared.measure(group, pythons, TURNS)
    frame = shared.frame_of(runs)
    print(f"\n{title}\n{shared.table_of(frame)}", flush=True)
    frames.append(frame.assign(label=label, panel=f"{title}, " + frame["task"]))
  frame = pandas.concat(frames)
  frame[COLUMNS].to_csv("scaling.csv", index=False, float_format="%.4g")
  draw(frame, picture)


if __name__ == "__main__":
  main()
