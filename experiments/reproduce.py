"""Makes the tables and figures of the four papers again.

  python -m experiments.reproduce --list
  python -m experiments.reproduce --artefact=domo/table1 --size=cpu \\
      --data_dir=D --jobs=2

Each table or figure is an artefact, made of runs of `experiments.run`. A run is
identified by its flags, and runs once, even if several artefacts need it. The
same command continues a run that was stopped. Runs that are recorded in the
repository, in experiments/PAPER/records/, do not run again.

For each artefact the folder gets report.md with tables, pictures and verdicts,
and commands.txt with the command of every run.

Exit status: 0; 1 for bad input or if a run failed; 128 + n if signal n ended
it, 130 for Ctrl-C.
"""

import dataclasses
import functools
import re
from collections.abc import Callable, Sequence

from experiments.artefacts import (
  ARTEFACTS,
  captions,
  listing,
  paper_pages,
  publishing,
)
from experiments.artefacts.artefact import (
  SIZES,
  Artefact,
  GridChoices,
  Recipe,
  RunOf,
  spec_of,
)
from experiments.artefacts.recipe_runner import ArtefactResult, RecipeRunner
from experiments.command_line import exits, flag_words, help, parser
from experiments.processes import command, executors
from experiments.specification.flag import (
  Group,
  check_fields,
  flags_of,
  kinds_of,
)
from experiments.stored.records import Record
from fedjax_opt import plots
from fedjax_opt.checks import fields
from fedjax_opt.checks.values import nearest
from fedjax_opt.files import json_files
from fedjax_opt.files.folders import user_path
from fedjax_opt.registry import meanings

_FLAGS = Group("flags", "Flags", "say which artefacts are made, and how")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ArtefactRequest:
  """What was asked for.

  Attributes:
    list: Show every artefact with its paper's setting, the cost of its sizes,
      and whether they are done. If the size cpu is not done, its minutes are
      estimated from recorded runs of the same task.
    artefact: The artefacts, separated by commas: names of --list, a paper, or
      all.
    size: How large the runs are.
      - smoke: seconds, to see that it works; needs no data
      - cpu: hours on a few cores; smaller than the paper, as each caption says
      - paper: the paper's own setting; most want an accelerator
    data_dir: Folder of tensorflow_datasets.
    pretrained_dir: Folder of pretrained encoders, each in a folder with its
      name. Without it, runs that need one are left out.
    output_dir: Folder of the runs and reports. One command at a time may use
      it; --jobs does several runs.
    jobs: Runs at a time, each on one core.
    executor: Other machines that do the runs, as for experiments.compare.
    only_found: Run nothing; show the results that exist.
    anew: Run the recorded runs again too.
    publish: In a checkout: write the records, the pictures and the file in
      experiments/PAPER/artefacts/, and fill the parts of
      experiments/PAPER/README.md. Only for the sizes cpu and paper, and if all
      runs of an artefact are done. With a paper, or all, artefacts that are not
      done are named and left out.
  """

  list: bool = _FLAGS.option(False)
  artefact: Sequence[str] = _FLAGS.option(
    (), type=flag_words.names, form="=NAME,..."
  )
  size: str = _FLAGS.option("smoke", field=fields.one_of(*SIZES), form="=NAME")
  data_dir: str | None = _FLAGS.option(form="=DIR")
  pretrained_dir: str | None = _FLAGS.option(form="=DIR")
  output_dir: str = _FLAGS.option("runs/reproduce", form="=DIR")
  jobs: int = _FLAGS.option(1, field=fields.integer(1), form="=N")
  executor: str | None = _FLAGS.option(form="=NAME")
  only_found: bool = _FLAGS.option(False)
  anew: bool = _FLAGS.option(False)
  publish: bool = _FLAGS.option(False)

  def __post_init__(self):
    check_fields(self, FLAGS)
    executors.check(self.executor)


FLAGS = flags_of(ArtefactRequest, meanings(ArtefactRequest))


def main(argv: Sequence[str]) -> int:
  """Makes artefacts; may be called again. Returns the exit status."""
  # The help is one screen, whatever it is asked about.
  if any(re.match(r"--?h(elp(full)?)?(=|$)", word) for word in argv[1:]):
    parser.show(f"{__doc__.strip()}\n\n{help.of_group(FLAGS, _FLAGS)}")
    return 0
  line = lambda: "interrupted: the same command continues"
  work = functools.partial(_main, argv)
  return exits.run_program(argv, work, line, 2, FLAGS)


def _main(argv: Sequence[str]) -> int:
  given = flag_words.read(parser.expanded(argv[1:]), kinds_of(FLAGS))
  request = ArtefactRequest(**dict(given))
  artefacts = [entry for name in request.artefact for entry in _named(name)]
  artefacts = list(dict.fromkeys(artefacts))
  if request.list:
    parser.show(listing.text(artefacts or list(ARTEFACTS.values())))
    return 0
  if not artefacts:
    raise ValueError("artefact: give a name of --list, a paper, or all")
  plots.check_installed()
  checked = _checked(artefacts, request)
  runner = RecipeRunner(
    user_path(request.output_dir) / "runs",
    request.data_dir,
    request.jobs,
    request.executor,
    request.only_found,
    pretrained_dir=request.pretrained_dir,
  )
  papers = dict.fromkeys(artefact.paper for artefact in checked)
  recorded = {
    paper: [] if request.anew else publishing.records_of(paper)
    for paper in papers
  }
  published = [
    artefact.paper
    for artefact in checked
    if _make(artefact, request, runner, recorded[artefact.paper])
  ]
  for paper in dict.fromkeys(published):
    publishing.publish_page(paper, _named(paper))
  return 0


def _named(name: str) -> list[Artefact]:
  """The artefacts that a word of `--artefact` names."""
  if name == "all":
    return list(ARTEFACTS.values())
  if name in ARTEFACTS:
    return [ARTEFACTS[name]]
  of_paper = [entry for entry in ARTEFACTS.values() if entry.paper == name]
  if of_paper:
    return of_paper
  papers = dict.fromkeys(entry.paper for entry in ARTEFACTS.values())
  near = nearest(name, [*ARTEFACTS, *papers])
  hint = f"; did you mean {near[0]}?" if near else ""
  raise ValueError(
    f"artefact={name!r}: must be all, a paper ({', '.join(papers)}) or a name "
    f"of --list{hint}"
  )


def _checked(
  artefacts: Sequence[Artefact], request: ArtefactRequest
) -> list[Artefact]:
  """The artefacts that have the size, checked before any of them runs."""
  size = request.size
  # With a paper, or all, artefacts without this size are left out.
  for artefact in artefacts:
    if artefact.name in request.artefact and size not in artefact.sizes:
      raise ValueError(
        f"size={size!r}: {artefact.name} has no such size; must be "
        f"{' or '.join(artefact.sizes)}"
      )
  with_size = [entry for entry in artefacts if size in entry.sizes]
  for artefact in with_size:
    for recipe in artefact.recipes(GridChoices(size)).values():
      if isinstance(recipe, RunOf):
        spec_of(recipe.arguments)
  if request.publish:
    publishing.check(size)
  return with_size


def _make(
  artefact: Artefact,
  request: ArtefactRequest,
  runner: RecipeRunner,
  records: Sequence[Record],
) -> bool:
  """Runs an artefact, writes its report; returns whether it was published.

  Args:
    artefact: which.
    request: what the command line asks for.
    runner: that of all artefacts, which loads equal data once.
    records: those of the paper, which are not run again.
  """
  folder, size = user_path(request.output_dir), request.size
  print(f"{artefact.name}, {size}: {artefact.title}", flush=True)
  result = runner.run(artefact, size, records)
  if recorded := captions.reuse_note(result, records):
    print(f"  {recorded}", flush=True)
  report_dir = folder / artefact.name.replace("/", "-") / size
  report_dir.mkdir(parents=True, exist_ok=True)
  json_files.write_text(
    report_dir / "report.md", paper_pages.markdown(result, ".")
  )
  paper_pages.draw(result, report_dir)
  text = commands(result, runner.completed)
  json_files.write_text(report_dir / "commands.txt", text)
  print(f"  {report_dir / 'report.md'}", flush=True)
  missing = len(result.recipes) - len(result.cell_records)
  missing_text = f"{missing} of {len(result.recipes)} cells have not run"
  if not request.publish:
    if missing and request.only_found:
      print(f"  {missing_text}", flush=True)
    return False
  if not missing:
    publishing.publish(result)
    return True
  if artefact.name in request.artefact:
    raise ValueError(
      f"publish=True: {artefact.name}: {missing_text}; run them first"
    )
  # With a paper, or all, only complete artefacts are published.
  print(f"  not published: {missing_text}", flush=True)
  return False


def commands(
  result: ArtefactResult, completed: Callable[[Recipe], Recipe]
) -> str:
  """The command of every run, one a line; the runs of tuning come first.

  Args:
    result: the artefact's runs.
    completed: function from a recipe to the same with the folders that it
      reads.
  """
  recipes = [*map(RunOf, result.tuning), *result.recipes.values()]
  runs = [completed(r) for r in recipes if isinstance(r, RunOf)]
  lines = [f"{command.line('run', run.arguments)}\n" for run in runs]
  return "".join(dict.fromkeys(lines))


if __name__ == "__main__":
  command.run(main)
