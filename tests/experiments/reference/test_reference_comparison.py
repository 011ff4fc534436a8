"""A reference comparison: its queue, its records, and methods that join."""

import json
import pathlib
import re
import shutil

import numpy as np
import pytest

from experiments import compare
from experiments.reference import cells, definition, joining, regrets
from experiments.stored import records
from experiments.stored.same_data import check_same_data
from tests.helpers import refusals

TINY = pathlib.Path(__file__).with_name("tiny_reference.toml").read_text()
SCAFFOLD = "scaffold client_lr=0.003,0.01 label=Mine"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
  """The file of a reference that has run, and the folder of its records."""
  folder = tmp_path_factory.mktemp("reference")
  file = folder / "tiny.toml"
  file.write_text(TINY)
  argv = ["compare", f"--reference={file}", f"--output_dir={folder / 'tiny'}"]
  assert compare.main([*argv, "--noprogress"]) == 0
  return file, folder / "tiny"


def places(board):
  return {
    (name, verdict.cell.method): (
      board.rank(study, verdict),
      verdict.value,
      verdict.kind,
    )
    for name, study in board.studies.items()
    for verdict in study.verdicts
  }


@pytest.mark.slow
def test_a_method_that_is_removed_and_joins_again_has_its_place(
  tiny, tmp_path, capsys
):
  file, folder = tiny
  before = joining.join(str(file), output_dir=folder)
  other = tmp_path / "tiny.toml"
  other.write_text(TINY[: TINY.rindex("[[method]]")])
  shutil.copytree(
    folder, tmp_path / "tiny", ignore=shutil.ignore_patterns("scaffold*")
  )
  argv = ["compare", f"--reference={other}", f"--method={SCAFFOLD}"]
  assert compare.main([*argv, f"--output_dir={tmp_path / 'new'}"]) == 0
  captured = capsys.readouterr()
  # Of the others nothing ran: they are read from beside the file.
  assert captured.err == "[1/2] few: Mine\n[2/2] all: Mine\n"
  written = sorted(p.name[:8] for p in tmp_path.glob("new/*/*.gz"))
  assert written == ["scaffold"] * 2
  after = joining.join(
    str(other),
    {"algorithm": "scaffold", "client_lr": "0.003,0.01", "label": "Mine"},
    output_dir=tmp_path / "new",
  )
  wanted = {(c, m.replace("SCAFFOLD", "Mine")): v for (c, m), v in
            places(before).items()}  # fmt: skip
  assert places(after) == wanted
  for condition in ("few", "all"):
    place = wanted[condition, "Mine"][0]
    assert re.search(rf"{condition} +Mine .* {place} of 2 ", captured.out)


def test_what_has_a_record_never_runs_again(tiny, monkeypatch):
  file, folder = tiny
  monkeypatch.setattr(cells, "run_cell", None)
  renamed = file.with_name("renamed.toml")
  text = TINY.replace('"FedAvg"', '"Another name"').replace("Tiny", "Title")
  renamed.write_text(text)
  board = joining.join(str(renamed), output_dir=folder)
  assert len(places(board)) == 4
  assert ("few", "Another name") in places(board)


def test_a_grid_is_extended_at_its_edge_and_all_is_counted(tiny):
  file, folder = tiny
  reference = definition.read(str(file))
  for place in reference.cells(reference.methods):
    *tried, report = records.read(folder / place.file)
    cell = cells.read(place, [folder])
    values = {point[name] for record in tried for point in record.points
              for name in place.planned.grid}  # fmt: skip
    (planned_values,) = place.planned.grid.values()
    assert set(planned_values) < values  # Of two values one is at an edge.
    assert cell.budget == len(values) == 3
    assert cell.tuning_runs.seeds == [0]
    assert [point["seed"] for point in report.points] == [1, 2]
    assert report.points[0].items() >= cell.chosen.items()
  rates = [p.planned.grid["client_lr"] for p in
           reference.cells(reference.methods[:1])]  # fmt: skip
  assert rates == [[0.003, 0.01], [0.006, 0.02]]


def test_the_page_has_every_cell_with_its_command_and_record(tiny):
  _, folder = tiny
  text = (folder / "reference.html").read_text()
  rows = json.loads(re.search(r"rows = (.*);\n", text)[1])
  assert len(rows) == 4
  for row in rows:
    assert (folder / row[-1]["record"]).exists()
    assert "--rounds=4" in row[-1]["command"]
  assert "{{" not in text
  assert "Tuned under all others" in text
  assert (folder / "profiles.png").exists()


def test_regret_is_what_a_setting_loses_where_it_was_not_chosen():
  validation = np.array([[0.9, 0.5], [0.2, 0.8], [0.1, 0.7]])  # [T, H]
  grids = {
    "carries badly": regrets.MeanGrid(validation, validation - 0.1),
    "one setting": regrets.MeanGrid(np.full((3, 1), 0.6), np.full((3, 1), 0.5)),
  }
  bad, single = regrets.regrets(grids).values()
  # The best tuned: 0.8, 0.7, 0.6, of the first method.
  np.testing.assert_allclose(bad["tuned"], 0, atol=1e-9)
  np.testing.assert_allclose(bad["other"], [[40, 40], [60, 0], [60, 0]])
  np.testing.assert_allclose(bad["all others"], [40, 0, 0], atol=1e-9)
  for regret in (single["tuned"], single["other"][:, 0], single["all others"]):
    np.testing.assert_allclose(regret, [30, 20, 10])


def test_other_data_and_damage_are_refused(tiny, tmp_path):
  file, folder = tiny
  reference = definition.read(str(file))
  place = reference.cells(reference.methods)[0]
  copy = tmp_path / "records"
  shutil.copytree(folder, copy)
  *tried, report = records.read(copy / place.file)
  report.about["data_digests"]["test"] = "other"
  records.write(copy / place.file, [*tried, report])
  with pytest.raises(ValueError, match=r"few: .* has other data \(test\)"):
    joining.join(str(file), output_dir=copy)
  content = (copy / place.file).read_bytes()
  (copy / place.file).write_bytes(content[:-20])
  with pytest.raises(ValueError, match="is damaged"):
    joining.join(str(file), output_dir=copy)
  with pytest.raises(TypeError, match="must be a dict of texts with the algo"):
    joining.join("field", "scaffold", output_dir=copy)


def test_the_method_that_ran_on_other_data_is_named():
  ran = {"A": "1", "B": "1", "C": "2"}
  found = [("few", method, {"test": number}) for method, number in ran.items()]
  with pytest.raises(ValueError, match=r"few: C has other .* than A; remove"):
    check_same_data("few", found, "remove one")


def definition_with(before, after):
  text = TINY.replace(before, after)
  return refusals.of_file(definition.read, "wrong.toml", text)


def cells_with(before, after):
  reference = definition_with(before, after)
  return reference.cells(reference.methods)


test_is_refused = refusals.of_table(
  "reference.txt", definition_with, cells_with
)


def test_a_condition_is_a_table(tmp_path):
  file = tmp_path / "wrong.toml"
  file.write_text('condition = 3\n[[method]]\nalgorithm = "fed_avg"\n')
  with pytest.raises(ValueError, match=r"must have tables \[\[condition\]\]"):
    definition.read(str(file))


def test_a_method_that_joins_has_a_label_of_its_own(tmp_path, monkeypatch):
  """Or the record of the method with that label would be shown for it."""
  file = tmp_path / "tiny.toml"
  file.write_text(TINY)

  def planned(missing, loader):
    raise ValueError(missing[0].planned.method)

  monkeypatch.setattr(cells, "check", planned)
  method = {"algorithm": "scaffold", "client_lr": "0.03,0.1"}
  with pytest.raises(ValueError, match=r"^SCAFFOLD \(client learning rate"):
    joining.join(str(file), method, output_dir=tmp_path / "new")


def test_methods_of_different_conditions_have_different_labels(tmp_path):
  file = tmp_path / "two.toml"
  prox = '[[method]]\nalgorithm = "fed_prox"\nclient = "sgd"\nmu = {}\n'
  prox += 'client_lr = [0.1, 1]\nconditions = "{}"\n'
  file.write_text(TINY + prox.format(0.1, "few") + prox.format(1, "all"))
  reference = definition.read(str(file))
  labels = [c.planned.method for c in reference.cells(reference.methods)]
  assert [label for label in labels if "Prox" in label] == [
    "FedProx, SGD (μ 0.1, conditions few)",
    "FedProx, SGD (μ 1, conditions all)",
  ]  # fmt: skip


@pytest.mark.slow
def test_the_field_is_what_it_says():
  field = definition.read("field")
  cells = field.cells(field.methods)
  assert len({cell.file for cell in cells}) == len(cells)
  names = {c.name for c in field.conditions if c.named_only}
  assert names == {"lasso"}
  assert len({cell.planned.method for cell in cells}) >= 30
