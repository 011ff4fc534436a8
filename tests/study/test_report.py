"""The folder of a study: its page, its files, and its pictures."""

import base64
import dataclasses
import html.parser
import importlib.util
import os
import re

import numpy as np
import pytest

from fedjax_opt.study import verdicts
from fedjax_opt.study.cells import Measured
from fedjax_opt.study.limitations import limits_of
from fedjax_opt.study.report import page, pictures
from tests.study import made
from tests.study.made import NAN, cell, study

TABLES = ["table.csv", "table.md", "table.tex"]
FILES = ["pictures", "report.html", *TABLES]


class Checker(html.parser.HTMLParser):
  """Collects the text of a page, and checks that its tags are balanced."""

  VOID = ("meta", "img", "br")

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
  page.feed(path.read_text())
  assert page.open == []
  text = " ".join(" ".join(page.text).replace("\xa0", " ").split())
  return page, text


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
  """The report of the plain study."""
  folder = tmp_path_factory.mktemp("report")
  of = dataclasses.replace(
    made.plain(),
    cells=tuple(
      dataclasses.replace(c, commands=(f"run --method='{c.method}'",))
      for c in made.plain().cells
    ),
    command="compare --all",
  )
  return of, of.write(folder)


def test_the_files(plain):
  _, path = plain
  assert sorted(os.listdir(path.parent)) == FILES
  drawn = {
    name.rpartition(".")[0] for name in os.listdir(path.parent / FILES[0])
  }
  assert drawn == {
    "against_alpha",
    "learning_curves",
    "performance_profile",
    "sensitivity_client_lr",
    "tuning_curves",
  }


def test_the_page_needs_no_other_file(plain):
  _, path = plain
  text = path.read_text()
  assert "http" not in text
  assert "<script" not in text
  page, _ = read(path)
  assert page.tags.count("img") == page.tags.count("figure") == 5
  for data in re.findall(r'src="data:image/png;base64,([^"]*)"', text):
    assert base64.b64decode(data)[:8] == b"\x89PNG\r\n\x1a\n"
  for link in page.links:
    assert (path.parent / link).is_file(), link


def test_the_page_says_everything_in_order(plain):
  of, path = plain
  _, text = read(path)
  parts = [
    "Plain",
    "3 methods · 2 conditions · 5 seeds · compared by accuracy on the test "
    "examples",
    *verdicts.sentences(of),
    "after the last round against α: the mean over 5 seeds of the report",
    "Results",
    "80.0 (79.0 to 81.0)",
    "What limits this comparison",
    *limits_of(of),
    "How fast does each method learn?",
    "How settings were chosen",
    "0.1",
    "3 × 3 seeds",
    "Costs",
    "To a test accuracy of at least 75.0 %",
    "1.5 s",
    "How verdicts are reached",
    "is called best .",
    "is then called worse with 6 seeds or more.",
    "Commands",
    "compare --all",
    "run --method='FedAvg'",
    "Shared settings",
    "jax 1.2",
  ]
  at = 0
  for part in parts:
    at = text.find(part, at)
    assert at >= 0, part


def test_hostile_labels(tmp_path):
  of = made.hostile()
  page, text = read(of.write(tmp_path))
  assert not {"script", "i", "x"} & set(page.tags)
  assert "<b>&\"x'</b>" in text
  assert "<script>alert('x')</script>" in text
  assert '<v>&"' in text
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
def test_what_is_missing_breaks_nothing(cells, tmp_path):
  of = study(*cells, target=0.99)
  read(of.write(tmp_path))
  assert sorted(os.listdir(tmp_path)) == FILES
  assert "nan" not in (tmp_path / "table.md").read_text().lower()
  assert of.table_lines()
  assert "<table" in of._repr_html_()


def test_a_second_report_replaces_the_first_only(tmp_path):
  of = made.plain()
  path = of.write(tmp_path)
  (tmp_path / "notes.txt").write_text("mine")
  (tmp_path / "pictures" / "mine.png").write_bytes(b"mine")
  before = (tmp_path / "table.csv").read_text()
  smaller = study(*of.cells[:3], title="Second")
  assert smaller.write(tmp_path) == path
  assert sorted(os.listdir(tmp_path)) == sorted([*FILES, "notes.txt"])
  assert (tmp_path / "table.csv").read_text() != before
  names = os.listdir(tmp_path / "pictures")
  assert "mine.png" in names
  assert "learning_curves.png" in names
  # A picture of the former report that the new one does not have.
  assert "performance_profile.png" not in names
  assert not [name for name in names if name.endswith(".tmp")]


def test_the_same_study_has_the_same_files(tmp_path):
  small = study(cell("a", [0.5, 0.6]), cell("b", [0.6, 0.7]))
  one, two = (small.write(tmp_path / name) for name in "ab")
  assert one.read_bytes() == two.read_bytes()


def test_the_folder_of_a_study_that_is_on_its_way(tmp_path):
  (tmp_path / "study.json").write_text("{}")
  (tmp_path / "runs").mkdir()
  study(cell("a", [0.5])).write(tmp_path)
  assert sorted(os.listdir(tmp_path)) == sorted([*FILES, "runs", "study.json"])


def test_other_folders_are_refused(tmp_path, monkeypatch):
  of = study(cell("a", [0.5]))
  full = tmp_path / "full"
  full.mkdir()
  (full / "thesis.tex").write_text("")
  with pytest.raises(
    ValueError, match=r"folder=.*has 'thesis.tex'.*new or empty"
  ):
    of.write(full)
  (full / "report.html").write_text("<html>mine</html>")
  with pytest.raises(ValueError, match=r"report.html is not that of a study"):
    of.write(full)
  assert sorted(os.listdir(full)) == ["report.html", "thesis.tex"]
  with pytest.raises(ValueError, match=r"folder=.*is a file"):
    of.write(full / "thesis.tex")
  with pytest.raises(TypeError, match="folder=3: must be the name of a folder"):
    of.write(3)
  monkeypatch.setattr(os, "access", lambda *_: False)
  with pytest.raises(ValueError, match=r"folder=.*cannot be written"):
    of.write(tmp_path / "new")
  assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("missing", ["jinja2", "pandas"])
def test_what_is_missing_is_named_before_anything_is_written(
  missing, tmp_path, monkeypatch
):
  find = importlib.util.find_spec
  monkeypatch.setattr(
    importlib.util,
    "find_spec",
    lambda name, *more: None if name == missing else find(name, *more),
  )
  of = study(cell("a", [0.5]))
  with pytest.raises(ImportError, match=r"reports need .*fedjax_opt\[run\]"):
    of.write(tmp_path / "new")
  assert not (tmp_path / "new").exists()
  # A notebook then shows the text.
  assert (of._repr_html_() is None) == (missing == "jinja2")


def test_a_full_disk_is_one_line(tmp_path, monkeypatch):
  def fail(*_):
    raise OSError(28, "No space left on device")

  monkeypatch.setattr(page, "write_whole", fail)
  with pytest.raises(ValueError, match=r"cannot be written \(No space left"):
    study(cell("a", [0.5])).write(tmp_path)


def names_of(of):
  return [p.name for p in pictures.of_study(of)]


def caption_of(of, name):
  found = pictures.of_study(of)
  return next(p.caption for p in found if p.name == name)


def test_pictures_of_two_axes_and_costs():
  conditions = [{"alpha": a, "kind": k} for a in (1.0, 0.1) for k in ("x", "y")]
  cells = [
    cell(m, [0.5, 0.6], c, bytes_per_round=n)
    for m, n in (("a", 1), ("b", 2))
    for c in conditions
  ]
  of = study(*cells)
  assert names_of(of) == [
    "against_alpha",
    "learning_curves",
    "learning_curves_bytes",
    "performance_profile",
  ]
  assert "panel for each of the other conditions" in caption_of(
    of, "against_alpha"
  )
  # Of a method that did not run everywhere there is no line.
  caption = caption_of(study(*cells[:6]), "against_alpha")
  assert "Without b, which did not run under all conditions." in caption


def test_pictures_of_clients_and_step_sizes():
  trace = dict.fromkeys(
    ("step_size", "smoothness_step", "growth_step"), np.full((3, 2, 4), 0.1)
  )
  per_client = {"global": np.array([0.1, NAN, 0.9]), "empty": np.array([NAN])}
  of = study(
    cell("a", [0.5, 0.6], per_client=per_client, step_sizes=trace),
    cell("b", [0.5, 0.6], step_sizes={"step_size": trace["step_size"]}),
  )
  assert names_of(of) == ["learning_curves", "clients_global", "step_sizes"]
  assert "2 clients" in caption_of(of, "clients_global")


def test_pictures_of_grids():
  one = cell("a", [0.5, 0.6], tried={0.1: [0.5], 1.0: [0.6]})
  two = cell("b", [0.5, 0.6], tried={0.1: [0.5], 1.0: [0.6]}, name="mu")
  assert names_of(study(one, two)) == [
    "learning_curves",
    "sensitivity_client_lr",
    "sensitivity_mu",
    "tuning_curves",
  ]
  square = square_cell([(1.0, 2.0), (1.0, 1.0), (0.1, 2.0), (0.1, 1.0)])
  found = pictures.of_study(study(square))
  assert [p.name for p in found] == [
    "learning_curves",
    "heat_maps",
    "tuning_curves",
  ]
  axes = found[1].draw(None).axes[0]
  assert [t.get_text() for t in axes.get_yticklabels()] == ["0.1", "1"]
  # Rows are increasing rates; the third setting of the grid is at (0.1, 2).
  np.testing.assert_allclose(axes.images[0].get_array(), [[40, 30], [20, 10]])
  # A grid that is not complete has no heat map.
  assert "heat_maps" not in names_of(
    study(square_cell([(1, 2), (1, 1), (0, 2)]))
  )


def square_cell(settings):
  """A cell whose settings (rate, mu) have the scores 0.1, 0.2, ..."""
  points = [{"client_lr": a, "mu": b, "seed": 0} for a, b in settings]
  scores = 0.1 * np.arange(1, len(points) + 1)
  tried = Measured(points, made.history(scores))
  return dataclasses.replace(cell("a", [0.5, 0.6]), tried=tried)


def test_a_diverged_setting_counts_as_the_model_before_training():
  tried = {0.1: [0.5], 1.0: [NAN], 10.0: [0.3]}
  of = study(cell("a", [0.5, 0.6], tried=tried))
  found = pictures.of_study(of)
  picture = next(p for p in found if p.name == "tuning_curves")
  (line,) = picture.draw(None).axes[0].lines
  # The model before training has 10 %; of two settings, 50, 50 and 30 %.
  np.testing.assert_allclose(line.get_ydata(), [30, 130 / 3, 50])
  assert "counts as the model before training" in picture.caption


def test_curves_are_the_mean_over_seeds():
  of = study(cell("a", [0.5, 0.7]))
  (picture,) = pictures.of_study(of)
  line, *_ = picture.draw(None).axes[0].lines
  np.testing.assert_allclose(line.get_xdata(), made.ROUNDS)
  np.testing.assert_allclose(line.get_ydata(), [10, 35, 60])
  assert "the mean over 2 seeds of the report" in picture.caption


def test_caption_says_where_the_error_is_drawn():
  high = study(cell("a", [0.97, 0.98]))
  assert "axis shows the error" in caption_of(high, "learning_curves")
  low = study(cell("a", [0.5, 0.6]))
  assert "error" not in caption_of(low, "learning_curves")
