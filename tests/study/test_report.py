"""The folder of a study: its page, its files, and its pictures."""

import base64
import dataclasses
import html.parser
import itertools
import os
import re
import shutil
import sys

import numpy as np
import pytest

from fedjax_opt.study import statistics
from fedjax_opt.study.plots import method_styles
from fedjax_opt.study.report import (
  drawing,
  page,
  pictures,
  sentences,
  templates,
)
from fedjax_opt.study.report import study_tables as tables
from fedjax_opt.study.report.sentences import limits_of
from tests.helpers import studies
from tests.helpers.refusals import refusal
from tests.helpers.studies import NAN, cell, study

TABLES = ["seeds.csv", "table.csv", "table.md", "table.tex"]
FILES = ["pairs.csv", "pictures", "report.html", *TABLES]
ONE = study(cell("a", [0.5]))
PLAIN_PICTURES = {
  "against_alpha", "learning_curves", "performance_profile",
  "sensitivity_client_lr", "tuning_curves",
}  # fmt: skip


class Checker(html.parser.HTMLParser):
  """Collects the text of a page, and checks that its tags are balanced."""

  VOID = ("meta", "img", "br", "source")

  def __init__(self):
    super().__init__()
    self.open, self.text, self.tags, self.links = [], [], [], []

  def handle_starttag(self, tag, attrs):
    self.tags.append(tag)
    self.links += [value for name, value in attrs if name == "href"]
    if tag not in self.VOID:
      self.open.append(tag)

  def handle_endtag(self, tag):
    assert self.open.pop() == tag

  def handle_data(self, data):
    self.text.append(data)


def read(path):
  page = Checker()
  whole = r'<span class="whole">(.*?)</span>'
  page.feed(re.sub(whole, r"\1", path.read_text()))
  assert page.open == []
  text = " ".join(" ".join(page.text).replace("\xa0", " ").split())
  return page, text


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
  """The report of the plain study, with all of its files."""
  case = studies.plain()
  files = lambda c: c.files._replace(commands=(f"run --method='{c.method}'",))
  cells = (dataclasses.replace(c, files=files(c)) for c in case.cells)
  case = dataclasses.replace(case, cells=tuple(cells), command="compare --all")
  return case, case.write(tmp_path_factory.mktemp("report"))


@pytest.fixture
def fast(monkeypatch):
  """Reports have pictures of one format, which the page needs."""
  monkeypatch.setattr(page, "_FORMATS", ("png",))


@pytest.fixture
def without_pictures(monkeypatch):
  monkeypatch.setattr(pictures, "of_study", lambda _: [])


def test_the_page_needs_no_other_file(plain):
  _, path = plain
  assert sorted(os.listdir(path.parent)) == FILES
  kinds = ("png", "pdf", "svg")
  files = {f"{name}.{kind}" for name in PLAIN_PICTURES for kind in kinds}
  assert set(os.listdir(path.parent / "pictures")) == files
  text = path.read_text()
  assert "http" not in text
  assert "<script" not in text
  page, _ = read(path)
  assert page.tags.count("img") == page.tags.count("figure") == 5
  for data in re.findall(r'src="data:image/png;base64,([^"]*)"', text):
    assert base64.b64decode(data)[:8] == b"\x89PNG\r\n\x1a\n"
  for link in page.links:
    assert (path.parent / link).is_file(), link


@pytest.mark.usefixtures("fast")
def test_where_all_diverged_nothing_was_chosen_and_nothing_ran_again(tmp_path):
  lines = cell("a", [], tried={0.1: [NAN], 1.0: [NAN]})
  grid = studies.grid(*itertools.product([0.1, 1.0], repeat=2))
  runs = grid.tuning_runs._replace(history=studies.history([NAN] * 4))
  grid = dataclasses.replace(
    grid, method="b", tuning_runs=runs, report_runs=None
  )
  _, text = read(study(lines, grid).write(tmp_path))
  for true in ("Every method diverged", "A cross marks", "Lighter is better"):
    assert true in text
  for untrue in ("ran again", "A ring marks", "outlined", "– seeds"):
    assert untrue not in text


def test_lines_of_commands_break_between_words():
  long = "/a/folder/that/is/longer/than/a/phone"
  command = f"run \\\n    --data_file={long} \\\n    --x='1'"
  text = templates.command_lines(command)
  assert text == (
    '<span class="line"><span class="whole">run \\</span>\n</span>'
    '<span class="line"><span class="whole">    --data_file=</span>'
    f"{long} \\\n</span>"
    '<span class="line"><span class="whole">    --x=&#39;1&#39;</span></span>'
  )


def test_the_page_says_everything_in_order(plain):
  case, path = plain
  _, text = read(path)
  parts = [
    "Plain",
    "3 methods · 2 conditions · 5 seeds · compared by accuracy on the test "
    "examples",
    sentences.answer(case),
    "after the last round against α: the mean over 5 seeds of the report",
    "80.0 (79.0 to 81.0)",
    "What limits this comparison",
    *limits_of(case),
    "Differences",
    "Over all conditions",
    "where one of the two wins every pair.",
    "How settings were chosen",
    "The setting with the highest accuracy on the validation examples after "
    "the last round was chosen.",
    "0.1",
    "3 × 3 seeds",
    "How sensitive is each method to its client learning rate?",
    "Costs",
    "To a test accuracy of at least 75 %",
    "3.0 s",
    "How fast does each method learn?",
    "What ran",
    "jax 1.2",
    "Commands",
    "compare --all",
    "FedAvg, α = 1 run --method='FedAvg'",
    "How verdicts are reached",
    "is called best .",
    "the smallest effect of interest, which is 0.5 points.",
  ]
  position = 0
  for part in parts:
    position = text.find(part, position)
    assert position >= 0, part


def test_hostile_labels(tmp_path, fast):
  page, text = read(studies.hostile().write(tmp_path))
  assert not {"script", "i", "x"} & set(page.tags)
  for label in ("<b>&\"x'</b>", "<script>alert('x')</script>", '<v>&"'):
    assert label in text
  assert "python <x> && 'a'" in text
  assert "sensitivity_l_r_b_.png" in os.listdir(tmp_path / "pictures")


@pytest.mark.parametrize(
  "cells",
  [
    [cell("a", [0.5])],
    [cell("a", [0.5]), cell("b", [0.6])],
    [cell("a", [NAN, 0.5]), cell("b", [], tried={0.1: [NAN], 1.0: [NAN]})],
    [cell(m, [], {"k": k}, tried={0.1: [NAN]}) for m in "ab" for k in (1, 2)],
    [cell("a", [0.5, 0.6], {"k": 1}), cell("b", [0.5, 0.6], {"k": 2})],
    [cell("a", [0.97, 0.98], {"k": k}, tried={0.1: [0.9], 1: [0.95]})
     for k in (1, 2)],
  ],
)  # fmt: skip
@pytest.mark.default_cases("cells2", "cells3")
def test_what_is_missing_breaks_nothing(cells, tmp_path, fast):
  case = study(*cells, target=0.99)
  read(case.write(tmp_path))
  assert sorted(os.listdir(tmp_path)) == FILES
  assert "nan" not in (tmp_path / "table.md").read_text().lower()
  assert case.table_lines()
  assert "<table" in case._repr_html_()


def test_a_second_report_replaces_the_first_only(plain, tmp_path, fast):
  case, first = plain
  folder = tmp_path / "copied"
  shutil.copytree(first.parent, folder)
  (folder / "notes.txt").write_text("mine")
  (folder / "pictures" / "mine.png").write_bytes(b"mine")
  smaller = study(*case.cells[:3], title="Second")
  assert smaller.write(folder) == folder / "report.html"
  assert sorted(os.listdir(folder)) == sorted([*FILES, "notes.txt"])
  tables = [path / "table.csv" for path in (first.parent, folder)]
  assert tables[0].read_text() != tables[1].read_text()
  # Those of the former report that the new one does not have are gone.
  names = PLAIN_PICTURES - {"against_alpha", "performance_profile"}
  files = {f"{name}.png" for name in names}
  assert set(os.listdir(folder / "pictures")) == {"mine.png"} | files


def test_the_same_study_has_the_same_files(tmp_path, fast):
  small = study(cell("a", [0.5, 0.6]), cell("b", [0.6, 0.7]))
  first, second = (small.write(tmp_path / name) for name in "ab")
  assert first.read_bytes() == second.read_bytes()


def test_the_folder_of_a_study_that_is_on_its_way(tmp_path, without_pictures):
  (tmp_path / "study.json").write_text("{}")
  (tmp_path / "runs").mkdir()
  ONE.write(tmp_path)
  assert sorted(os.listdir(tmp_path)) == sorted([*FILES, "runs", "study.json"])


def test_other_folders_are_refused(tmp_path, monkeypatch):
  full = tmp_path / "full"
  full.mkdir()
  (full / "thesis.tex").write_text("")
  line = refusal(ONE.write, full)
  assert line.startswith("folder=")
  assert re.search("has 'thesis.tex'.*new or empty", line)
  (full / "report.html").write_text("<html>mine</html>")
  with pytest.raises(ValueError, match=r"report.html is not that of a study"):
    ONE.write(full)
  assert sorted(os.listdir(full)) == ["report.html", "thesis.tex"]
  with pytest.raises(ValueError, match=r"folder=.*is a file"):
    ONE.write(full / "thesis.tex")
  with pytest.raises(TypeError, match="folder=3: must be a path"):
    ONE.write(3)
  monkeypatch.setattr(os, "access", lambda *_: False)
  with pytest.raises(ValueError, match=r"folder=.*cannot be written"):
    ONE.write(tmp_path / "new")
  assert not (tmp_path / "new").exists()


def test_what_is_missing_is_named_before_any_file(tmp_path, monkeypatch):
  monkeypatch.setitem(sys.modules, "matplotlib", None)
  with pytest.raises(ImportError, match=r"pictures need .*fedjax_opt\[run\]"):
    ONE.write(tmp_path / "new")
  assert not (tmp_path / "new").exists()
  assert "<table" in ONE._repr_html_()


def test_a_full_disk_is_one_line(tmp_path, monkeypatch, without_pictures):
  def fail(*_):
    raise OSError(28, "No space left on device")

  monkeypatch.setattr(page, "write_text", fail)
  with pytest.raises(ValueError, match=r"cannot be written \(No space left"):
    ONE.write(tmp_path)


def timed(method, rounds, times):
  """A cell on a clock, with these evaluated rounds at these seconds."""
  plain_cell = cell(method, [0.6, 0.7])
  history = plain_cell.report_runs.history
  metrics = history.metrics | {"time": np.tile(np.array(times, float), (2, 1))}
  measured = plain_cell.report_runs._replace(
    history=studies.History(rounds, metrics)
  )
  return dataclasses.replace(plain_cell, report_runs=measured)


def test_a_time_limit_ends_methods_after_rounds_of_their_own():
  """Curves over time are first, and only time counts as a length."""
  slow, fast = timed("slow", [0, 2, 4], [0, 28, 57]), [0, 30, 60]
  case = study(slow, timed("fast", [0, 100, 200], fast))
  kinds = [picture.name for picture in pictures.of_study(case)]
  assert kinds[:2] == ["learning_curves_time", "learning_curves"]
  phrase = "Methods ran for different "
  assert not [line for line in limits_of(case) if phrase in line]
  case = study(slow, timed("short", [0, 100, 200], [0, 9, 20]))
  (line,) = (line for line in limits_of(case) if phrase in line)
  assert line == f"{phrase}simulated times: slow 57.0 s, short 20.0 s."
  # Each condition may have a length of its own.
  two = slow, timed("slow", [0, 1, 2], [0, 4, 9])
  two = [dataclasses.replace(c, condition={"x": i}) for i, c in enumerate(two)]
  assert not [line for line in limits_of(study(*two)) if phrase in line]
  # The same rounds at the same times: a picture over time would say nothing.
  case = study(slow, timed("same", [0, 2, 4], [0, 28, 57]))
  kinds = [picture.name for picture in pictures.of_study(case)]
  assert "learning_curves_time" not in kinds


def test_methods_have_their_order_and_colour_everywhere():
  """Also where the first method did not run under the first condition."""
  labels = ["z", "a", "m"]
  tried = {0.1: [0.5, 0.5], 1.0: [0.6, 0.6]}
  cells = [
    cell(m, [0.5 + 0.1 * i, 0.6], {"alpha": a, "k": k}, tried=tried,
         bytes_per_round=i + 1)
    for i, m in enumerate(labels)
    for a, k in ((1.0, 1), (1.0, 2), (0.1, 1), (0.1, 2))
    if (m, a, k) != ("z", 1.0, 1)
  ]  # fmt: skip
  case = study(*cells)
  styles = method_styles(labels)
  all_pictures = pictures.of_study(case)
  assert len(all_pictures) == 7
  for picture in all_pictures:
    figure = picture.draw(None)
    (legend,) = figure.legends
    names = [text.get_text() for text in legend.texts]
    names = [label for label in names if label in labels]
    assert names == [label for label in labels if label in names], picture.name
    assert len(names) >= 2
    for label, line in zip(names, legend.legend_handles, strict=False):
      assert line.get_color() == styles[label].color, picture.name
  for table in (tables.main_table(case, True), tables.over_all(case)):
    methods = [row[0].text for row in table.rows]
    assert methods == [label for label in labels if label in methods]
  methods = [row[2].text for row in tables.settings(case).rows]
  assert methods == [*labels, *labels, *labels, "a", "m"]
  # Costs are the same under all conditions.
  assert [row[0].text for row in tables.costs(case)[1].rows] == labels


def test_pictures_of_grids():
  settings = (1.0, 2.0), (1.0, 1.0), (0.1, 2.0), (0.1, 1.0)
  _, heat_maps, _ = pictures.of_study(study(studies.grid(*settings)))
  axes = heat_maps.draw(None).axes[0]
  assert [t.get_text() for t in axes.get_yticklabels()] == ["0.1", "1"]
  # Rows are increasing rates; the third setting of the grid is at (0.1, 2).
  np.testing.assert_allclose(axes.images[0].get_array(), [[40, 30], [20, 10]])


def test_a_diverged_setting_counts_as_the_model_before_training():
  tried = {0.1: [0.5], 1.0: [NAN], 10.0: [0.3]}
  *_, picture = pictures.of_study(study(cell("a", [0.5, 0.6], tried=tried)))
  assert picture.name == "tuning_curves"
  (line,) = picture.draw(None).axes[0].lines
  # The model before training has 10 %; of two settings, 50, 50 and 30 %.
  np.testing.assert_allclose(line.get_ydata(), [30, 130 / 3, 50])


@pytest.mark.parametrize(
  ("metric", "low", "high"),
  [
    ("test_accuracy", 0, 1),
    ("test_auc", 0, 1),
    ("mae", 0, np.inf),
    ("r2", -np.inf, 1),
    ("test_loss", -np.inf, np.inf),
  ],
)
def test_bands_end_where_the_metric_does(metric, low, high):
  values = np.array([[0.0, 0.2], [1.0, 0.9]])
  interval = statistics.mean_interval(values)
  assert (interval.low < 0).all()
  assert (interval.high > 1).all()
  curve = drawing.curve(metric, np.arange(2), values)
  np.testing.assert_allclose(curve.mean, interval.estimate)
  np.testing.assert_allclose(curve.low, np.maximum(interval.low, low))
  np.testing.assert_allclose(curve.high, np.minimum(interval.high, high))


def test_curves_are_the_mean_over_seeds():
  (picture,) = pictures.of_study(study(cell("a", [0.5, 0.7])))
  line, *_ = picture.draw(None).axes[0].lines
  np.testing.assert_allclose(line.get_xdata(), studies.ROUNDS)
  np.testing.assert_allclose(line.get_ydata(), [10, 35, 60])
