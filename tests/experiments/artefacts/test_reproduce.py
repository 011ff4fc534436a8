"""`experiments.reproduce`: what it lists, refuses, runs once and publishes."""

import dataclasses
import json
import pathlib
import re
import shlex

import numpy as np
import pytest

from experiments import reproduce
from experiments.artefacts import (
  ARTEFACTS,
  captions,
  listing,
  main_claims,
  paper_pages,
  publishing,
  recipe_runner,
)
from experiments.artefacts.artefact import (
  Artefact,
  Computed,
  RunOf,
  grid_of,
  spec_of,
)
from experiments.artefacts.blocks import Claim, Picture, Quantity, Table
from experiments.artefacts.recipe_runner import ArtefactResult, RecipeRunner
from experiments.single_run import execution
from experiments.stored import records, store
from fedjax_opt import plots
from fedjax_opt.results.history import History
from tests.helpers.commands import call, table

TINY = (
  "--task=digits_logistic",
  "--num_clients=8",
  "--cohort_size=4",
  "--client=sgd",
  "--rounds=2",
)


def computed(seed, values):
  history = History([0, 1], {"gap": np.array([[1.0, v] for v in values])})
  return history, [{"seed": seed, "rate": v} for v in values]


def cells(choices):
  rate = choices.best(*TINY, "--client_lr=1e-6,0.1", "--select_on=validation")
  cells_by_key = {
    ("best",): RunOf((*TINY, *rate, "--seed=1,2")),
    ("other",): RunOf((*TINY, "--client_lr=1e-6", "--seed=1,2")),
    ("same",): RunOf((*TINY, "--client_lr=0.000001", "--seed=1,2")),
    ("gap",): Computed(computed, {"seed": 0, "values": [0.5, 0.25]}),
  }
  if choices.size == "paper":
    cells_by_key[("best",)] = RunOf((*TINY, *rate, "--seed=1,2", "--rounds=9"))
    cells_by_key[("more",)] = RunOf((*TINY, "--client_lr=1"))
  return cells_by_key


def blocks(results):
  final = lambda key: results[key].final("test_accuracy")
  claims = []
  if ("best",) in results and ("other",) in results:
    lead = final(("best",)) - final(("other",))
    claims = [Claim("tuned is better", [Quantity("lead", lead)])]
  rows = [
    [", ".join(key), str(len(record.points))] for key, record in results.items()
  ]

  def draw():
    with plots.figure(columns=2) as (figure, _):
      return figure

  return [Table(["cell", "points"], rows), Picture("all", draw, "All"), *claims]


keep = lambda run: records.RecordedParts(["test_accuracy"])
ARTEFACT = Artefact("some/table9", "A table", "a setting", cells, blocks, keep)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  return tmp_path_factory.mktemp("artefact")


@pytest.fixture(scope="module")
def outcome(folder):
  return RecipeRunner(folder).run(ARTEFACT, "smoke")


@pytest.fixture
def no_run(monkeypatch):
  monkeypatch.setattr(execution, "perform", lambda *_, **__: 1 / 0)
  monkeypatch.setattr(recipe_runner, "_compute", lambda *_: 1 / 0)


@pytest.mark.slow
def test_settings_are_chosen_before_cells_run(outcome):
  (grid,) = outcome.tuning
  assert grid_of(grid) == {"client_lr": [1e-6, 0.1]}
  # Recorded is what the choice looks at: the last evaluation.
  assert outcome.tuning[grid].history.rounds == [2]
  by_key = outcome.cell_records
  assert by_key[("best",)].points[0]["client_lr"] == pytest.approx(0.1)
  assert list(by_key) == list(outcome.recipes)
  assert by_key[("gap",)].final("gap").tolist() == [0.5, 0.25]
  assert ARTEFACT.blocks(by_key)[-1].quantities[0].margin > 0.1


@pytest.mark.slow
def test_the_same_run_is_done_once(outcome, folder):
  """Two keys whose flags are the same, in other words."""
  assert len(list(folder.glob("digits_logistic-*"))) == 3
  same, other = (outcome.cell_records[(key,)] for key in ("same", "other"))
  np.testing.assert_array_equal(
    same.final("test_accuracy"), other.final("test_accuracy")
  )


def test_what_is_there_is_not_run_again(outcome, folder, no_run):
  rerun = RecipeRunner(folder).run(ARTEFACT, "smoke")
  assert list(rerun.cell_records) == list(outcome.cell_records)


def test_what_is_recorded_is_not_run_again(outcome, tmp_path, no_run):
  records.write(tmp_path / "all.jsonl", outcome.records)
  read = records.read(tmp_path / "all.jsonl")
  runner_ = RecipeRunner(tmp_path / "runs")
  rerun = runner_.run(ARTEFACT, "smoke", read)
  for key, record in outcome.cell_records.items():
    for name, values in record.history.metrics.items():
      np.testing.assert_array_equal(
        rerun.cell_records[key].history.metrics[name], values
      )
  assert paper_pages.markdown(rerun, ".") == paper_pages.markdown(outcome, ".")
  # The grid's record is one of them.
  assert captions.reuse_note(rerun, read).startswith("recorded on ")
  assert captions.reuse_note(rerun, read[1:]) == ""


def test_a_tie_in_the_recorded_digits_is_a_tie(
  outcome, folder, monkeypatch, no_run
):
  (grid,) = outcome.tuning
  scores = np.array([[0.5], [0.5 + 1e-9]])
  history = History([2], {"validation_accuracy": scores})
  tied = dataclasses.replace(outcome.tuning[grid], history=history)
  of_run = records.of_run
  monkeypatch.setattr(
    records,
    "of_run",
    lambda run, arguments, parts: (
      tied if arguments == grid else of_run(run, arguments, parts)
    ),
  )
  rerun = RecipeRunner(folder).run(ARTEFACT, "smoke")
  assert (
    spec_of(rerun.recipes[("best",)].arguments).identity["client_lr"] == 1e-6
  )


def test_nothing_is_run_if_only_what_is_there_counts(tmp_path, no_run):
  for only in (RecipeRunner(tmp_path, only_found=True), RecipeRunner(None)):
    result = only.run(ARTEFACT, "smoke")
    assert (result.cell_records, result.tuning) == ({}, {})
    text = paper_pages.markdown(result, ".")
    assert "4 of 4 cells have not run" in text


def test_a_diverged_record_survives_its_file(tmp_path):
  history = History([0, 1], {"loss": np.array([[1.0, np.nan], [2.0, 1.5]])})
  points = [{"seed": 0, "x": float("inf")}, {"seed": 1, "x": 1.0}]
  about = {"date": "2026-01-01", "seconds": 1.0}
  record = records.Record((), {"digest": "d"}, about, points, history)
  trace = np.array([[[0.5, np.nan], [np.inf, 0.25]]])
  traced = dataclasses.replace(record, arrays={"step_size": trace})
  records.write(tmp_path / "r.jsonl", [record, traced])
  read, other = records.read(tmp_path / "r.jsonl")
  np.testing.assert_array_equal(read.final("loss"), [np.nan, 1.5])
  assert read.arrays == {}
  assert "arrays" not in json.loads(records.to_line(read))
  np.testing.assert_array_equal(other.arrays["step_size"], trace)
  assert records.read(tmp_path / "none.jsonl") == []


def test_commands_can_be_called(folder):
  runner_ = RecipeRunner(
    folder, data_dir="my data", pretrained_dir="my encoders"
  )
  runs = {("text",): RunOf(TEXT), ("other",): RunOf(TINY)}
  first, second = reproduce.commands(
    ArtefactResult(ARTEFACT, "smoke", runs, {}, {}), runner_.completed
  ).splitlines()
  assert shlex.split(first)[3:] == [
    *TEXT[:2], "--pretrained=my encoders/small", "--data_dir=my data"
  ]  # fmt: skip
  assert shlex.split(second)[3:] == [*TINY]


def test_what_has_not_run_is_not_published(
  monkeypatch, tmp_path, capsys, error_of, outcome
):
  monkeypatch.setitem(ARTEFACTS, "some/table9", ARTEFACT)
  monkeypatch.setattr(publishing, "_EXPERIMENTS", tmp_path / "experiments")
  monkeypatch.setattr(publishing, "check", lambda size: None)
  arguments = ("--artefact=some/table9", "--only_found", "--publish")
  folder = f"--output_dir={tmp_path / 'x'}"
  assert error_of(*arguments, folder, program=reproduce) == (
    "--publish: some/table9: 4 of 4 cells have not run; run them first"
  )
  # Of a paper it is left out, so that others are published.
  monkeypatch.setattr(reproduce, "ARTEFACTS", {"some/table9": ARTEFACT})
  arguments = ("--artefact=some", *arguments[1:])
  assert call(*arguments, folder, program=reproduce) == 0
  out = capsys.readouterr().out
  assert out.endswith("  not published: 4 of 4 cells have not run\n")
  assert not (tmp_path / "experiments").exists()


def test_publishing(outcome, folder, tmp_path, monkeypatch):
  """What is published is of the numbers as recorded, here with one digit."""
  monkeypatch.setattr(publishing, "_EXPERIMENTS", tmp_path)
  monkeypatch.setattr(records, "_DIGITS", 1)
  (tmp_path / "some").mkdir()
  for _ in range(2):  # The second time it replaces.
    publishing.publish(RecipeRunner(folder).run(ARTEFACT, "smoke"))
  text = publishing.file_of(ARTEFACT, "smoke").read_text()
  assert text.startswith("# some, Table 9\n\nBack to [some](../README.md).")
  assert "A table. Paper: a setting." in text
  assert "![All](../figures/table9_all.png)" in text
  assert text != publishing.text_of(outcome)
  rerun = RecipeRunner(None).run(
    ARTEFACT, "smoke", publishing.records_of("some")
  )
  assert text == publishing.text_of(rerun)
  assert (tmp_path / "some" / "figures" / "table9_all.png").exists()
  assert (tmp_path / "some" / "figures" / "table9_all_phone.png").exists()
  assert len(publishing.records_of("some")) == 5


PART = "<!-- some/table9, smoke\n{}\n-->\nold\n<!-- end -->"


@pytest.fixture
def page(outcome):
  recorded = [*outcome.tuning.values(), *outcome.cell_records.values()]
  titled_blocks = lambda results: [
    block._replace(title="Cells") if isinstance(block, Table) else block
    for block in blocks(results)
  ]
  artefact = dataclasses.replace(ARTEFACT, blocks=titled_blocks)
  other = dataclasses.replace(ARTEFACT, name="some/figure1", needs="a GPU")
  is_published = lambda candidate, size: candidate is artefact and size == "cpu"
  return paper_pages.Page([artefact, other], recorded, is_published)


def test_a_claim_on_the_runs_of_an_earlier_artefact_counts_once(outcome):
  """Two claims of one artefact count twice, also with the same values."""
  recorded = [*outcome.tuning.values(), *outcome.cell_records.values()]
  better = Quantity("A minus B", (1.0, float("nan"), 2.0))
  claims = lambda *own: (
    lambda _: [
      Claim(f"{place} A is better", [q]) for place, q in enumerate(own)
    ]
  )
  shown = {
    "table1": claims(better, better),
    "figure1": claims(better, better._replace(limit=1.5)),
  }
  artefacts = [
    dataclasses.replace(ARTEFACT, name=f"some/{name}", blocks=blocks)
    for name, blocks in shown.items()
  ]
  is_published = lambda candidate, size: size == "cpu"
  page = paper_pages.Page(artefacts, recorded, is_published)
  assert "Claims of the paper: 3 undecided." in page.table()


def test_the_cases_of_a_claim_count_as_one_and_idle_claims_do_not(outcome):
  recorded = [*outcome.tuning.values(), *outcome.cell_records.values()]
  quantity = lambda low: Quantity(f"from {low}", (low + 0.1, low + 0.2))
  shown = [
    Claim("A is better at 1", [quantity(2.0)], of="A is better at {0}"),
    Claim("A is better at 2", [quantity(-2.0)], of="A is better at {0}"),
    Claim("B is better at 1", [quantity(3.0)], uncounted="it must be"),
  ]
  artefact = dataclasses.replace(ARTEFACT, blocks=lambda _: shown)
  page = paper_pages.Page([artefact], recorded, lambda _, size: size == "cpu")
  assert "Claims of the paper: 1 in part.\n" in page.table()
  text = page.filled("<!-- counts -->\nold\n<!-- end -->")
  assert "- Cases: 3, of which 0 are above with numbers; " in text
  part = PART.format("claim: B").replace("smoke", "cpu")
  assert "at 1 (not counted: it must be)." in page.filled(part)
  # The worst case is written out.
  line = "table9, cpu | A is better | A is best | 7"
  index = f"<!-- claims of some\n{line}\n-->\nold\n<!-- end -->"
  *_, row, _ = main_claims.filled(index, page, "some").splitlines()
  assert "| 7 | 2: from -2.0: -1.85 (-2.49 to -1.21); 2 seeds; cases:" in row
  assert row.endswith("| **in part** |")
  assert main_claims.filled(index, page, "other") == index
  with pytest.raises(ValueError, match="A is worse"):
    main_claims.filled(index.replace("is better", "is worse"), page, "some")


@pytest.mark.parametrize(
  ("says", "message"),
  [
    ("picture: none", "picture: 'none' is of 0 blocks"),
    ("curve: All", "curve: 'All' is of 0 blocks"),
    ("table: Cells\nwhere: cel = gap", "no column 'cel'; must be cell, points"),
    ("table: Cells\ncolumns: x", "no column 'x'; must be cell, points"),
  ],
)
def test_a_part_that_cannot_be_is_named(page, says, message):
  with pytest.raises(ValueError, match=re.escape(message)):
    page.filled(PART.format(says))


@pytest.mark.parametrize(("arguments", "message"), table("reproduce"))
def test_what_cannot_be_is_one_line(error_of, tmp_path, arguments, message):
  flags = (*shlex.split(arguments), f"--output_dir={tmp_path}/x")
  assert error_of(*flags, program=reproduce).startswith(message)
  assert not (tmp_path / "x").exists()


def test_the_list_and_the_help(capsys):
  assert call("--list", program=reproduce) == 0
  text = capsys.readouterr().out
  assert all(f"\n{name}: " in f"\n{text}" for name in ARTEFACTS)
  done = [a for a in ARTEFACTS.values() if publishing.is_published(a, "cpu")]
  words = " ".join(text.split())
  assert words.count("; done, see experiments/") == len(done) > 0
  assert call("--help", program=reproduce) == 0
  text = capsys.readouterr().out
  assert all(
    f"\n  --{name}{flag.form}" in text.replace("[no]", "")
    for name, flag in reproduce.FLAGS.items()
  )
  assert call("--help=only_found", program=reproduce) == 0
  assert capsys.readouterr().out == text


def test_what_is_left_takes_as_long_as_what_ran(monkeypatch):
  """Of one algorithm: by points, rounds, and the times of the others."""
  table = ARTEFACTS["domo/table1"]
  all_records = publishing.records_of("domo")
  other_records = [r for r in all_records if r.flags.get("algorithm") != "domo"]
  monkeypatch.setattr(publishing, "records_of", lambda paper: other_records)
  (minutes,) = re.findall(r"^(\d+) min$", listing.time_left(table, "cpu"))
  runs, _ = listing._work(table, "cpu")
  points = sum(listing._num_points(run.identity) for run in runs)
  seconds = listing._times(other_records)["cifar10_small_cnn"]
  assert int(minutes) == pytest.approx(20 * points * seconds / 60, abs=1)


def test_a_record_of_other_flags_leaves_the_time(monkeypatch):
  """What counts is what ran, which a preset may now say otherwise."""
  table, paper_records = (
    ARTEFACTS["delta_sgd/table4"],
    publishing.records_of("delta_sgd"),
  )
  assert listing.time_left(table, "cpu") == "1 min"
  changed = lambda record: dataclasses.replace(
    record, flags={**record.flags, "batch_size": 1}
  )
  paper_records = [*map(changed, paper_records)]
  monkeypatch.setattr(publishing, "records_of", lambda paper: paper_records)
  assert listing.time_left(table, "cpu") != "1 min"


def test_a_computation_is_found_by_its_function_and_options():
  cell = Computed(computed, {"seed": 0, "values": [0.5]})
  same = Computed(computed, {"values": [0.5], "seed": 0})
  assert cell.name == same.name
  other_cells = [cell._replace(function=cells), Computed(computed, {"seed": 1})]
  names = {computation.name for computation in (cell, *other_cells)}
  assert len(names) == 3


def test_a_run_is_found_by_what_its_flags_mean(outcome):
  """In any order, and with defaults or without; not if a preset changed."""
  record = outcome.cell_records["other",]
  other = dataclasses.replace(record, flags={**record.flags, "batch_size": 16})
  assert (
    recipe_runner.RecordIndex([other]).find(outcome.recipes["other",]) is None
  )
  index = recipe_runner.RecordIndex([other, record])
  # An older record, of a flag less; its algorithm is the default one.
  older = {n: v for n, v in record.flags.items() if n != "average_state"}
  assert len(older) < len(record.flags)
  assert "algorithm" not in older
  flags = spec_of(record.arguments).identity
  assert store.other_flags_text(older, flags) is None
  first, *middle, seed = outcome.recipes["other",].arguments
  same_run = RunOf((seed, "--algorithm=fed_avg", *middle, first))
  assert index.find(same_run) is record
  assert index.find(RunOf((*same_run.arguments, "--rounds=3"))) is None


@pytest.mark.slow
def test_a_run_whose_clients_limited_its_defaults_is_found(tmp_path):
  """Not if a command gives a size that it did not have."""
  limiting = ("--num_clients=99", "--partition=iid", "--algorithm=prox_skip")
  cell = RunOf((*TINY[:1], *limiting, "--rounds=1"))
  run, _ = store.Store(tmp_path).run(spec_of(cell.arguments))
  record = records.as_read(records.of_run(run, cell.arguments, keep(run)))
  assert record.flags["cohort_size"] == 99
  assert record.flags["batch_size"] < 20
  index = recipe_runner.RecordIndex([record])
  assert index.find(cell) is record
  assert index.find(RunOf((*cell.arguments, "--cohort_size=4"))) is None
  assert index.find(RunOf((*cell.arguments, "--batch_size=64"))) is None


TEXT = (
  "--flagfile=experiments/delta_sgd/text_cpu.flags",
  "--client=sgd",
  "--pretrained=small",
)


def test_where_an_encoder_and_data_are_does_not_say_what_they_are():
  flags = spec_of((*TEXT, "--data_dir=/two")).identity
  elsewhere = (*TEXT[:2], "--pretrained=/some/where/small")
  config = dict(spec_of(elsewhere).identity) | {"data_dir": "/one"}
  assert store.other_flags_text(config, flags) is None
  for folder, is_same in (("small/", True), ("large", False)):
    config["pretrained"] = f"/some/where/{folder}"
    assert (store.other_flags_text(config, flags) is None) == is_same


def test_without_an_encoder_a_cell_is_left_out(tmp_path, capsys):
  index = recipe_runner.RecordIndex([])
  assert (
    RecipeRunner(tmp_path)._records({"one": RunOf(TEXT)}, None, index) == {}
  )
  assert "starts from small: give --pretrained_dir" in capsys.readouterr().out
  runner_ = RecipeRunner(tmp_path, pretrained_dir="folder")
  ready = runner_.completed(RunOf(TEXT)).arguments
  assert ready[-1] == f"--pretrained={pathlib.Path('folder/small')}"


@pytest.mark.parametrize(
  ("artefact", "size"),
  [
    (artefact, size)
    for artefact in ARTEFACTS.values()
    for size in artefact.sizes
    if publishing.is_published(artefact, size)
  ],
  ids=lambda value: getattr(value, "name", value),
)
@pytest.mark.default_cases(
  "delta_sgd/table1-cpu",
  "delta_sgd/theorem1-cpu",
  "fco/figure4-cpu",
  "fco/theorem4.1-cpu",
  "bvr/figure2-cpu",
  "domo/table1-cpu",
)
def test_the_file_of_an_artefact_says_what_the_records_say(artefact, size):
  """No number of it was typed, and all that is published is there."""
  recorded = publishing.records_of(artefact.paper)
  outcome = RecipeRunner(None).run(artefact, size, recorded)
  assert len(outcome.cell_records) == len(outcome.recipes)
  text = publishing.file_of(artefact, size).read_text(encoding="utf-8")
  assert text == publishing.text_of(outcome)


PAPERS = dict.fromkeys(artefact.paper for artefact in ARTEFACTS.values())


@pytest.mark.parametrize("paper", PAPERS)
@pytest.mark.default_cases("delta_sgd", "domo")
def test_the_page_of_a_paper_says_what_the_records_say(paper):
  """If it fails: `--artefact=PAPER --size=cpu --only_found --publish`."""
  artefacts = [a for a in ARTEFACTS.values() if a.paper == paper]
  page = paper_pages.Page(
    artefacts, publishing.records_of(paper), publishing.is_published
  )
  folder = publishing._EXPERIMENTS / paper
  text = (folder / "README.md").read_text(encoding="utf-8")
  assert page.filled(text) == text
  table = (folder / "artefacts/README.md").read_text(encoding="utf-8")
  assert table == page.table()
  index = (publishing._EXPERIMENTS.parent / "docs/papers/index.md").read_text()
  assert f"/{paper}/artefacts/README.md\n" in index
  assert main_claims.filled(index, page, paper) == index


def test_a_page_is_short():
  """A paper's page has few words and pictures; tables are beside it."""
  for paper in PAPERS:
    file = publishing._EXPERIMENTS / paper / "README.md"
    text = file.read_text(encoding="utf-8")
    assert text.count("![") <= 6
    prose = re.sub(r"<!--.*?-->|\]\([^)]*\)", "", text, flags=re.DOTALL)
    words = [word for word in prose.split() if re.search(r"\w", word)]
    assert len(words) <= 1250, paper  # The box and the code have 250 more.
