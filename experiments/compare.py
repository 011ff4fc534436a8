"""Compares methods, each tuned alike, and writes a report.

  python -m experiments.compare --method='fed_avg client=sgd' \\
      --method=scaffold --method='fed_avg client=delta_sgd' \\
      --client_lr=0.03,0.1,0.3,1 --seed=0,1,2 --alpha=1,0.1 \\
      --output_dir=runs/study
  python -m experiments.compare --study=FILE.toml
  python -m experiments.compare --runs=runs/one,runs/two

A method is an algorithm, then flags of its own, flag=value. Flags outside of
--method are for all methods; a hyperparameter is given to the methods that have
it. Flags of the task, of the clients' data and of a round, such as --alpha,
--local_steps and --cohort_size, take lists here: each combination is a
condition, under which every method runs.

For each method and condition all settings (the lists of its hyperparameters)
run with all seeds as one program. The best setting, by the mean over the seeds
of what --select_on says, then runs again with fresh seeds; the report shows
these. What is in the folder already is not run again, so a study that was
stopped goes on with the same command, and one method more runs alone.

Flags of a study, beside those of a run:
  --method='ALGORITHM [flag=value ...] [label=NAME]'
                       A method; give as many as there are.
  --study=FILE         All of this from a TOML file: flags by name, lists for
                       several values, and a table [[method]] for each method.
                       Flags of the command line replace those of the file.
  --runs=FOLDER,...    Folders of runs that are there. Each becomes a method, or
                       a condition of one, by what differs between their flags.
  --jobs=N             Cells at a time, each on one core. Default: 1.
  --report_seeds=N     Fresh seeds of the report. Default: as many as --seed.
  --budget=WORD        equal: methods that are tuned must try as many settings.
                       unequal: they need not. Default: equal.
  --metric=NAME        By what methods are compared. Default: test_accuracy, or
                       what the task has.
  --target=X           Also report what reaching this value of the metric costs.
  --title=TEXT         Title of the report.

The folder holds report.html with all pictures and tables, table.md, table.tex,
table.csv, pictures/, and in runs/ a folder for each cell.

Exit status: 0; 1 for bad input or if a run failed; 130 for Ctrl-C.
"""

import datetime
import pathlib
import shlex
import sys
from collections.abc import Sequence
from typing import Any

from experiments import command
from experiments.flags import command_line
from experiments.studies import cells, collect, plan, request
from fedjax_opt import folders, plots
from fedjax_opt.comparison import verdicts
from fedjax_opt.comparison.cells import (
  Cell,
  Study,
  condition_label,
  setting_label,
)
from fedjax_opt.results import json_files
from fedjax_opt.results.history import direction

_MARK = "study.json"  # Says that a folder is that of a study.


def main(argv: Sequence[str]) -> int:
  """Runs a study; may be called again. Returns the exit status."""
  done = 0
  try:
    asked = request.parse(argv, __doc__)
    plots.check_installed()
    planned = plan.plan(asked) if asked.methods or not asked.own.runs else []
    existing = collect.cells_of_runs(asked.own.runs) if asked.own.runs else []
    folder = _folder(asked)
    _mark(folder, asked)
    found = list(existing)
    for each in cells.run_all(planned, folder / "runs", asked.own.jobs):
      found.append(collect.cell_of(each))
      done += 1
      if asked.progress:
        _say(done, len(planned), each, found[-1])
    study = _study(asked, planned, found, argv)
    study.write(folder)
    print(_closing(study, folder))
    return 0
  except (cells.Interrupted, KeyboardInterrupt):
    print(
      f"interrupted: {done} cells are complete; the same command goes on",
      file=sys.stderr,
    )
    return 130
  except (ValueError, OSError, ImportError, cells.RunFailed) as error:
    return command_line.refuse(error)


def _folder(asked: request.Request) -> pathlib.Path:
  """The folder of the study: new, empty, or that of a study."""
  given = asked.output_dir
  if given is None:
    now = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    given = f"runs/study-{now}"
  folder, inside = folders.contents("output_dir", given)
  if _MARK not in inside:
    folders.check_empty("output_dir", folder, inside)
  return folder


def _mark(folder: pathlib.Path, asked: request.Request) -> None:
  """Writes what was asked for, which marks the folder as a study's."""
  folder.mkdir(parents=True, exist_ok=True)
  known = {"methods": asked.methods, "flags": asked.flags}
  json_files.write_json(
    folder / _MARK, json_files.plain(known | asked.own._asdict())
  )


def _say(number: int, total: int, done: cells.Done, cell: Cell) -> None:
  """A line about a cell that is done."""
  name = cell.method
  if cell.condition:
    name += f", {condition_label(cell.condition)}"
  if cell.measured is None:
    what = "every setting diverged"
  elif done.cell.grid:
    best = {flag: cell.chosen[flag] for flag in done.cell.grid}
    what = f"best {setting_label(best)}"
  else:
    what = "one setting"
  took = f"{done.seconds:.1f} s" if done.seconds else "was there"
  print(f"[{number}/{total}] {name}: {what} ({took})", file=sys.stderr)


def _study(
  asked: request.Request,
  planned: Sequence[plan.Planned],
  found: Sequence[Cell],
  argv: Sequence[str],
) -> Study:
  """The study of all cells, in the order in which they were asked for."""
  order = {
    (each.method, str(each.condition)): i for i, each in enumerate(planned)
  }
  place = lambda cell: order.get((cell.method, str(dict(cell.condition))), -1)
  found = sorted(found, key=place)
  metric = asked.own.metric or collect.metric_of(found, found[0].criterion)
  if direction(metric) is None:
    raise ValueError(
      f"metric={metric!r}: it is not known whether larger or smaller values "
      "are better; must be an accuracy, a loss or such as f1"
    )
  for cell in found:
    if cell.measured and metric not in cell.measured.history.metrics:
      raise ValueError(
        f"metric={metric!r}: {cell.method} did not measure it; must be one of "
        f"{', '.join(cell.measured.history.metrics)}"
      )
  return Study(
    tuple(found),
    metric,
    title=asked.own.title or _title(asked),
    target=asked.own.target,
    about=_about(asked, planned),
    command=f"{_called()} {shlex.join(argv[1:])}",
  )


def _called() -> str:
  return command.as_called_here("python -m experiments.compare")


def _title(asked: request.Request) -> str:
  task = asked.flags.get("task", "digits" if asked.methods else "runs")
  return f"Study: {task}"


def _about(
  asked: request.Request, planned: Sequence[plan.Planned]
) -> dict[str, Any]:
  """What the cells share."""
  if not planned:
    return {}
  return collect.shared_flags(planned) | {
    "seeds of tuning": planned[0].seeds,
    "seeds of the report": planned[0].report_seeds,
  }


def _closing(study: Study, folder: pathlib.Path) -> str:
  """What the terminal shows at the end."""
  found = verdicts.verdicts(study)
  lines = [*study.table_lines(), "", *verdicts.sentences(study, found)]
  lines += [f"note: {line}" for line in verdicts.warnings(study, found)]
  return "\n".join([*lines, f"report: {folder / 'report.html'}"])


if __name__ == "__main__":
  command.run(main)
