"""Compares methods, all tuned alike, and writes a report.

  python -m experiments.compare --method='fed_avg client=sgd' \\
      --method=scaffold --method='fed_avg client=delta_sgd' \\
      --client_lr=0.03,0.1,0.3,1 --seed=0,1,2 --alpha=1,0.1 \\
      --output_dir=runs/study

Flags to begin with:
  --method='NAME ...'  A method: an algorithm, then its flags, flag=value; one
                       --method for each.
  --client_lr=X,...    Step sizes to try, for the methods that have one.
  --seed=N,...         Seeds for tuning. Default: 0.
  --report_seeds=N     Fresh seeds for the report. Default: 10.
  --task=NAME          Data set and model, such as mnist_cnn. Default: digits.
  --alpha=X,...        How alike the clients are: 100 very, 0.01 hardly; each
                       value is a condition, under which all methods run.
  --rounds=N           Rounds. Default: 100.
  --study=FILE         All of this from a TOML file.
  --jobs=N             Cells at a time, each on one core. Default: 1.
  --output_dir=FOLDER  Where the study is; the same command continues it.

Or from a file, from existing runs, or beside recorded methods:

  python -m experiments.compare --study=FILE.toml
  python -m experiments.compare --runs=runs/one,runs/two
  python -m experiments.compare --reference=field --method='scaffold ...'

A method is an algorithm, then its own flags, flag=value. A flag outside of
--method holds for all methods that know it. Flags of the task, of the clients'
data and of a round, such as --alpha, --local_steps and --cohort_size, take
lists here. Each combination is a condition, under which every method runs.

For each method and condition, all settings (the lists of its hyperparameters)
run with all seeds as one program. The best setting, by the mean over the seeds
on the examples of --select_on, then runs again with fresh seeds, which the
report shows. Nothing in the folder runs again. So the same command continues a
study that was stopped, and if you add a method, only this method runs.

--help=study explains all flags of a study, beside those of a run.

The folder has report.html with all pictures and tables, table.md, table.tex,
table.csv, pictures/, and in runs/ a folder for each run. The name of a run has
a few words, such as digits-fed_avg-sgd-alpha=0.1-6x5 for six settings with five
seeds, and a digest of all that its results depend on. Labels and titles are no
part of it, so a new one runs nothing again.

Exit status: 0, also if every method collapsed, which the last lines say; 1 for
bad input, if a run failed or if every method diverged; 128 + n if signal n
ended it, 130 for Ctrl-C.
"""

import dataclasses
import functools
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.command_line import exits
from experiments.processes import command, executors
from experiments.reference import joining
from experiments.single_run import tracking
from experiments.single_run.job import output_dir_of
from experiments.stored.store import Store
from experiments.studies import (
  cell_runs,
  existing_runs,
  seeds_needed,
  study_facts,
)
from experiments.studies.planned_cells import PlannedCell
from experiments.studies.request import FLAGS, Request, read_request
from fedjax_opt import plots
from fedjax_opt.files import folders, json_files, locks
from fedjax_opt.study.cells import Cell
from fedjax_opt.study.report import sentences
from fedjax_opt.study.study import Study
from fedjax_opt.study.words import condition_label, counted, setting_label

_MARK = "study.json"  # The file that marks the folder of a study.
_REPORT = "report.html"


def main(argv: Sequence[str]) -> int:
  """Runs a study; may be called again. Returns the exit status."""
  done: list[Cell] = []
  line = lambda: (
    f"interrupted: {counted(len(done), 'cell')} complete; the same command "
    "continues the study"
  )
  work = functools.partial(_main, argv, done)
  return exits.run_program(argv, work, line, 2, FLAGS)


def _main(argv: Sequence[str], done: list[Cell]) -> int:
  """Runs a study, and notes the cells that are done."""
  request = read_request(argv, __doc__)
  if request.seeds_needed is not None:
    print("\n".join(seeds_needed.table(request)))
    return 0
  if request.reference is not None:
    return joining.run(request)
  plots.check_installed()
  tracking.check_installed(request.track)
  executors.check(request.executor)
  planned, existing = existing_runs.planned_and_existing(request)
  folder = _folder(request)
  store = Store(folder / "runs")
  cell_runs.check(planned, store, request)
  existing_runs.check_data(existing, planned, store)
  _check_metric(request, existing)
  with locks.held("output_dir", folder):
    _mark(folder, request)
    if request.progress and planned:
      print(_announced(planned), file=sys.stderr)
    ran = executors.map_cells(
      cell_runs.run_cell, planned, store, request.jobs, request.executor, folder
    )
    for planned_cell, cell in ran:
      done.append(cell)
      _check_metric(request, [cell])
      if request.progress:
        _say(f"[{len(done)}/{len(planned)}]", planned_cell, cell)
    study = study_facts.study_of(
      request, argv, planned, existing, done, store.loader
    )
    study.write(folder)
    if request.track is not None:
      tracking.log_study(request.track, folder, study)
  print(_closing(study, folder))
  if any(cell.report_runs for cell in study.cells):
    return 0
  print("error: every method diverged", file=sys.stderr)
  return 1


def _folder(request: Request) -> pathlib.Path:
  """The folder of the study: new, empty, or that of a study."""
  path = output_dir_of(request.output_dir, "study")
  folder, names = folders.contents("output_dir", path)
  if _MARK not in names:
    unfinished = json_files.beside(folder / _MARK).name  # Left by a kill.
    others = [name for name in names if name != unfinished]
    folders.check_empty("output_dir", folder, others)
  return folder


def _mark(folder: pathlib.Path, request: Request) -> None:
  """Writes the request, which marks the folder as a study's.

  Says so if a report is there that has cells which this study has not.
  """
  with folders.writing("output_dir", folder):
    folder.mkdir(parents=True, exist_ok=True)
  fields = json_files.to_json(dataclasses.asdict(request))
  if (folder / _REPORT).exists() and not _has_all_of(folder / _MARK, fields):
    print(
      f"note: {folder / _REPORT} is of another command, and is replaced; its "
      "runs are kept, so that command makes it again",
      file=sys.stderr,
    )
  json_files.write_json(folder / _MARK, fields)


def _has_all_of(mark: pathlib.Path, fields: Mapping[str, Any]) -> bool:
  """Whether a request has all methods and conditions of an earlier one.

  Args:
    mark: file of the earlier request; one that cannot be read is another's.
    fields: of the request.
  """
  unlabelled = lambda methods: [{**m, "label": None} for m in methods]
  values = lambda flag_value: set(str(flag_value).split(","))
  flags = fields["flags"]
  try:
    earlier = json_files.read_json(mark)
    earlier_flags = earlier["flags"]
    return (
      earlier_flags.keys() == flags.keys()
      and all(values(earlier_flags[n]) <= values(flags[n]) for n in flags)
      and earlier["runs"] == fields["runs"]
      and all(
        method in unlabelled(fields["methods"])
        for method in unlabelled(earlier["methods"])
      )
    )
  except (OSError, ValueError, KeyError, AttributeError, TypeError):
    return False


def _announced(planned: Sequence[PlannedCell]) -> str:
  """The line before the first cell."""
  methods = {cell.method for cell in planned}
  conditions = {condition_label(cell.condition) for cell in planned}
  cells = counted(len(planned), "cell")
  if len(planned) > 1:
    cells += ", each a method under a condition"
  return (
    f"{counted(len(methods), 'method')}, "
    f"{counted(len(conditions), 'condition')}: {cells}; a line follows when "
    f"{'one' if len(planned) > 1 else 'it'} is done"
  )


def _say(place: str, planned: PlannedCell, cell: Cell) -> None:
  """Prints a line about a cell that is done."""
  name = cell.method
  if cell.condition:
    name += f", {condition_label(cell.condition)}"
  if cell.report_runs is None:
    outcome = "every setting diverged"
  elif planned.grid:
    chosen = {flag: cell.chosen[flag] for flag in planned.grid}
    word = "mostly" if len(cell.choices) > 1 else "chosen"
    outcome = f"{word} {setting_label(chosen)}"
    if cell.num_collapsed:
      outcome += f", {cell.num_collapsed} of {cell.budget} settings collapsed"
  else:
    outcome = "one setting"
  was_there = all(part.was_stored for part in cell.parts)
  note = "was there" if was_there else f"{cell.seconds:.1f} s"
  print(f"{place} {name}: {outcome} ({note})", file=sys.stderr)


def _check_metric(request: Request, cells: Sequence[Cell]) -> None:
  """Checks that these cells measured the metric of the comparison."""
  for cell in cells:
    if cell.report_runs is None:
      continue
    metric = request.metric or study_facts.metric_of([cell])
    measured = cell.report_runs.history.metrics
    cell_runs.check_measured(metric, cell.method, measured)
    request.check_numbers(metric)


def _closing(study: Study, folder: pathlib.Path) -> str:
  """The lines that the terminal shows at the end."""
  lines = [*study.table_lines(), "", sentences.answer(study)]
  lines += [f"note: {line}" for line in sentences.limits_of(study)]
  if study_facts.AS_READ in study.about:
    lines.append(study.about[study_facts.AS_READ])
  return "\n".join([*lines, f"report: {folder / _REPORT}"])


if __name__ == "__main__":
  command.run(main)
