"""Runs cells that a reference lacks, or methods that join it; ranks them."""

import pathlib
import sys
from collections.abc import Mapping
from typing import Any

from experiments.processes import command, executors
from experiments.reference import cells, definition, page, standing
from experiments.reference.standing import Leaderboard
from experiments.single_run.job import output_dir_of
from experiments.stored import records
from experiments.stored.store import Store
from experiments.studies.request import Request
from fedjax_opt import plots
from fedjax_opt.checks.values import brief
from fedjax_opt.files import folders, locks

# What a reference takes of a request; flags of runs are checked apart.
_REFERENCE_FIELDS = (
  "methods", "flags", "output_dir", "progress", "study", "reference", "jobs",
  "executor", "budget",
)  # fmt: skip


def run(request: Request) -> int:
  """Runs `compare --reference=NAME`; returns the exit status.

  Raises:
    ValueError: for a flag that a reference cannot have, before anything runs.
  """
  unfit_flags = dict(request.flags)
  data_dir = unfit_flags.pop("data_dir", None)
  unfit_flags |= {
    n: v for n, v in request.changed().items() if n not in _REFERENCE_FIELDS
  }
  if unfit_flags:
    name, value = next(iter(unfit_flags.items()))
    raise ValueError(
      f"{name}={value}: a reference takes no such flag; leave {name} out"
    )
  output_dir = f"runs/reference/{pathlib.Path(request.reference).stem}"
  if request.output_dir is not None:
    output_dir = output_dir_of(request.output_dir)
  folder, _ = folders.contents("output_dir", output_dir)
  leaderboard = join(
    request.reference,
    *request.methods,
    data_dir=data_dir,
    output_dir=folder,
    jobs=request.jobs,
    executor=request.executor,
    budget=request.budget,
    progress=request.progress,
  )
  print(leaderboard)
  print(f"page: {page.write(leaderboard, folder)}")
  return 0


def _check_method(name: str, method: Any) -> None:
  """Raises TypeError if a method is no dict of flags in text."""
  is_text = isinstance(method, Mapping) and all(
    isinstance(value, str) for value in method.values()
  )
  if not is_text or "algorithm" not in method:
    raise TypeError(
      f"{name}={brief(method)}: must be a dict of texts with the algorithm, "
      "such as {'algorithm': 'scaffold', 'client_lr': '0.1,0.3'}"
    )


def join(
  reference: str,
  *methods: Mapping[str, Any],
  data_dir: str | None = None,
  output_dir: str | pathlib.Path,
  jobs: int = 1,
  executor: str | None = None,
  budget: str = "equal",
  progress: bool = False,
) -> Leaderboard:
  """Runs methods under a reference's conditions, and places them.

  Only what has no record yet runs, in the published folder or in `output_dir`.

  Args:
    reference: name or path, see `definition.read`.
    *methods: flags by name, as text: `{"algorithm": "scaffold", "client_lr":
      "0.1,0.3", ...}`, perhaps `label` and `conditions`. None: what the
      reference itself lacks.
    data_dir: folder of the data.
    output_dir: the folder of the records of what runs now.
    jobs: cells at a time.
    executor: what runs them instead, see `executors.check`.
    budget: 'equal' or 'unequal' numbers of settings.
    progress: whether a line is printed for each cell that is done.

  Returns:
    Where each method stands among all that are recorded.

  Raises:
    ValueError: naming the invalid flag, before anything runs.
    TypeError: if a method is no dict of texts.
  """
  plots.check_installed()
  executors.check(executor)
  comparison, folder = definition.read(reference), pathlib.Path(output_dir)
  folders = [folder, comparison.records]
  for number, method in enumerate(methods):
    _check_method(f"methods[{number}]", method)
  own_methods = comparison.methods
  # No method that joins may have the name of another.
  comparison = definition.named(
    comparison._replace(methods=[*own_methods, *methods])
  )
  methods = comparison.methods[len(own_methods) :]
  stored = comparison.cells(own_methods, data_dir)
  joined = comparison.cells(methods, data_dir, budget) if methods else stored
  missing = [cell for cell in joined if cells.read(cell, folders) is None]
  store = Store(folder / "runs")
  cells.check(missing, store.loader)
  with locks.held("output_dir", folder):
    done_cells = executors.map_cells(
      cells.run_cell, missing, store, jobs, executor, folder
    )
    for number, (cell, cell_records) in enumerate(done_cells, 1):
      (folder / cell.file).parent.mkdir(parents=True, exist_ok=True)
      records.write(folder / cell.file, cell_records)
      line = f"[{number}/{len(missing)}] {cell.condition.name}: "
      line += cell.planned.method
      command.set_last_line(
        f"interrupted after {line}; the same command continues it", 2
      )
      if progress:
        print(line, file=sys.stderr, flush=True)
  all_cells = [*stored, *(joined if methods else [])]
  labels = dict.fromkeys(c.planned.method for c in joined) if methods else ()
  return standing.leaderboard(comparison, all_cells, folders, [*labels])
