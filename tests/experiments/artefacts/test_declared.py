"""What TOML files may say of artefacts: values, comparisons, tables, claims."""

import pathlib
import re
import tomllib
from unittest import mock

import numpy as np
import pytest

from experiments.artefacts import (
  declared_claims,
  definitions,
  metric_panels,
  views,
)
from experiments.artefacts.artefact import GridChoices
from experiments.artefacts.blocks import Claim, Quantity, verdict_of_cases
from experiments.artefacts.values import value, with_interval
from fedjax_opt.study.plots import panels
from tests.helpers import refusals
from tests.helpers.artefact_records import claims, filled, record
from tests.helpers.refusals import refusal

POINTS = [{"seed": 0}, {"seed": 1}]
CURVES = {
  "test_accuracy": [[0.1, 0.5, 0.4], [0.1, 0.7, 0.6]],
  "train_loss": [[2.0, 1.0, 1.5], [2.0, 0.5, 1.0]],
}
RECORD = record(CURVES, POINTS, [0, 10, 20])


@pytest.mark.parametrize(
  ("words", "expected", "unit"),
  [
    ("test_accuracy", [0.4, 0.6], "points"),
    ("best test_accuracy", [0.5, 0.7], "points"),
    ("best train_loss", [1.0, 0.5], ""),
    ("mean train_loss", [1.5, 3.5 / 3], ""),
    ("train_loss at 19", [1.0, 0.5], ""),
    ("train_loss after 50 %", [1.0, 0.5], ""),
    ("progress test_accuracy", [1 / 3, 5 / 9], "points"),
    ("rounds to test_accuracy >= 0.6", [30, 10], "rounds"),
    ("rounds to train_loss == 1", [10, 20], "rounds"),
  ],
)
def test_values(words, expected, unit):
  measure = value(words)
  np.testing.assert_allclose(measure.compute(RECORD), expected)
  assert measure.unit == unit
  assert measure.scale == (100 if unit == "points" else 1)
  assert measure.is_smaller_better == ("loss" in words or "rounds" in words)


def test_a_value_that_nobody_knows():
  line = refusal(value, "worst of all")
  assert line.startswith("value='worst of all': must be in a form")


@pytest.mark.parametrize("metric", ["f1", "precision", "recall", "density"])
def test_shares_have_intervals_from_0_to_1(metric):
  assert with_interval([0.1, 1.0, 0.9], metric).endswith("(0 to 1.000)")


def with_last(accuracy, loss=1.0):
  curves = {"test_accuracy": [[0.1, accuracy]], "train_loss": [[9.0, loss]]}
  return record(curves, POINTS[:1])


FOUND = {
  ("A", "x"): with_last(0.9, 0.5),
  ("B", "x"): with_last(0.7, 0.75),
  ("A", "y"): with_last(0.6),
  ("B", "y"): with_last(0.5),
  ("C",): with_last(0.8),
}
ROWS = {"rows": ["A", "B", "D"]}
ENTRIES = {"groups": {"others": ["B", "D"]}} | ROWS


COMPARISONS = tomllib.loads(
  pathlib.Path(__file__).with_name("declared_claims.toml").read_text()
)["case"]


@pytest.mark.parametrize("declared", COMPARISONS)
def test_comparisons(declared):
  expected = set(declared.get("expected", ()))
  entries = [{"text": "of {0}" if "at" in declared else "of all"} | declared]
  claims = declared_claims.claims(ENTRIES | {"claims": entries}, FOUND)
  quantities = {
    f"{quantity.name}: {quantity.text(1)}"
    for claim in claims
    for quantity in claim.quantities
  }
  assert quantities == expected
  texts = [claim.text for claim in claims]
  assert texts == (
    [f"of {'x' if 'at' in declared else 'all'}"] if expected else []
  )


def test_a_claim_for_each_place_with_its_title():
  entries = ENTRIES | {"titles": {"x": "X"}}
  entries["claims"] = [
    {"text": "{0}!", "at": ["x", "y", "z"], "better": {"A": ["B"]}},
    {"text": "{0}?", "at": "columns", "better": {"A": ["B"]}},
  ]
  entries["columns"] = ["y"]
  claims = declared_claims.claims(entries, FOUND)
  assert [claim.text for claim in claims] == ["X!", "y!", "y?"]


def test_they_are_compared_at_the_seeds_that_both_have():
  curves = {"test_accuracy": [[0.6], [0.1], [0.1]]}
  records = FOUND | {
    ("D", "x"): record(curves, [{"seed": s} for s in range(3)], [1])
  }
  quantity = declared_claims.lead(records, ("A", "x"), ("D", "x"))
  np.testing.assert_allclose(quantity.values, [30.0])
  # In whatever order they ran; without common seeds nothing is compared.
  for key, seeds in {"E": [2, 1, 0], "F": [3, 4, 5]}.items():
    ends = {"test_accuracy": [[0.1 * seed] for seed in seeds]}
    points = [{"seed": seed} for seed in seeds]
    records[key, "x"] = record(ends, points, [1])
  ends = {"test_accuracy": [[0.1 * seed + 0.01] for seed in range(3)]}
  records["G", "x"] = record(ends, [{"seed": s} for s in range(3)], [1])
  ahead = declared_claims.lead(records, ("G", "x"), ("E", "x"))
  np.testing.assert_allclose(ahead.values, [1.0] * 3)
  apart = declared_claims.lead(records, ("G", "x"), ("F", "x"))
  assert not apart.values
  # So are gains from one column to another: 1 point of G, none of E.
  records |= {("G", "y"): records["E", "x"], ("E", "y"): records["E", "x"]}
  between = ("y", "x"), records, ("G",), ("E",)
  gain = declared_claims._gains_more(*between, value())
  np.testing.assert_allclose(gain.values, [1.0] * 3)


def test_a_table():
  declared = views.TableDeclaration(**ROWS, columns="yxw", titles={"y": "Y"})
  numbers = {("B", "x"): "69.9", ("E", "y"): "1"}
  table = views.table(declared._replace(paper_numbers=numbers), FOUND)
  assert table.columns == ["method", "Y", "x, paper", "ours"]
  assert table.rows == [
    ["A", "60.0", "-", "90.0"],
    ["B", "50.0", "69.9", "70.0"],
  ]
  turned = views.table(declared._replace(turned=True, corner="it"), FOUND)
  assert turned.columns == ["it", "A", "B"]
  assert turned.rows == [["Y", "60.0", "50.0"], ["x", "90.0", "70.0"]]
  less = views.table(declared._replace(less="B"), FOUND)
  assert less.rows[0] == ["A", "10 points", "20 points"]
  bold = views.table(declared._replace(bold=[["A", "x"]]), FOUND)
  assert bold.rows[0] == ["A", "60.0", "**90.0**"]
  spread = declared._replace(columns=["x"], deviation=True)
  seeds = record({"test_accuracy": [[0.9], [0.8]]}, POINTS, [1])
  (row,) = views.table(spread, {("A", "x"): seeds}).rows
  assert re.fullmatch(r"85.00 ± 7.07 \(.* to .*\)", row[1])
  assert views.table(declared, {}) is None
  values = {"Last": "test_accuracy", "seed": "seed", "none": "f1"}
  lines = views.table(declared._replace(values=values), FOUND)
  assert lines.columns == ["at", "method", *values]
  assert lines.rows[0] == ["Y", "A", "60.0", "0", "-"]
  keys = [(place, row) for place, row, *_ in lines.rows]
  assert keys == [("Y", "A"), ("Y", "B"), ("x", "A"), ("x", "B")]


def test_points_become_records():
  points = [{"client_lr": r, "seed": s} for r in (0.1, 1.0) for s in (0, 1)]
  curves = {"test_accuracy": [[0.1], [0.2], [0.3], [0.4]]}
  cells = {("A", "x"): record(curves, points, [1])}
  parts = definitions.expanded({"expand": ["client_lr"]}, cells)
  assert list(parts) == [("0.1", "A", "x"), ("1", "A", "x")]
  assert parts["1", "A", "x"].final("test_accuracy").tolist() == [0.3, 0.4]
  keys = definitions.expanded({"expand": {"A": ["seed", "client_lr"]}}, cells)
  assert ("0", "A, client_lr = 0.1", "x") in keys


@pytest.mark.parametrize(
  "declared",
  [
    {"kind": "curves"},
    {"kind": "panels", "metrics": ["train_loss", "test_accuracy", "f1"]},
    {"kind": "values", "x": ["x", "y"], "x_name": "task"},
    {"kind": "values", "x": ["A", "B"], "x_name": "task", "transposed": True,
     "rows": ["x", "y"]},
  ],
)  # fmt: skip
def test_pictures(declared, tmp_path, drawn):
  cells = {key: cell for key, cell in FOUND.items() if len(key) == 2}
  declaration = views.PictureDeclaration("n", "a", **ROWS | declared)
  picture = views.picture(declaration, cells)
  assert isinstance(picture, views.Picture)
  panels.save(picture.draw(), tmp_path / "n.png")
  assert (tmp_path / "n.png").stat().st_size > 1000
  assert views.picture(declaration, {}) is None


def test_a_picture_with_each_seed_and_a_guess():
  declared = views.PictureDeclaration(
    "it", "it", "curves", ["A"], each_seed=True, guess=0.05
  )
  figure = views.picture(declared, {("A", "x"): RECORD}).draw()
  (axes,) = figure.axes
  drawn = [[*line.get_ydata()] for line in axes.lines]
  # The mean, each seed, and the guess, which is inside of the axis.
  np.testing.assert_allclose(drawn[0], [10, 60, 50])
  np.testing.assert_allclose(drawn[1:3], [[10, 50, 40], [10, 70, 60]])
  assert drawn[3] == [5, 5]
  assert axes.get_ylim()[0] < 5
  assert not axes.collections
  (legend,) = figure.legends
  words = "ean; thin: each seed; dotted: a constant guess"
  assert legend.get_title().get_text().endswith(words)


def test_panels_name_the_runs_that_diverged_and_cut_the_loss_at_first():
  losses = [[9.0, 2.0, 1.0], [9.0, 2.2, 1.2], [9.0, 1e9, NAN]]
  found = record({"train_loss": losses}, [{}, {}, {}], rounds=[0, 5, 10])
  rows = {"x": {"A": found}}
  figure = metric_panels.draw_metrics(rows, ["train_loss"], ["A"])
  (axes,) = figure.axes
  np.testing.assert_allclose(axes.lines[0].get_ydata(), [9, 2.1, 1.1])
  assert axes.get_ylim()[1] < 4
  words = figure.legends[0].get_title().get_text()
  assert words.endswith("\ndiverged and left out: 1 of 3 of A, x")


def test_the_page_has_an_artefact_that_can_be():
  page = pathlib.Path(__file__).parents[3] / "docs/how_to/reproduce.md"
  text = re.search("```toml\n(.*?)```", page.read_text(), re.DOTALL)[1]
  (entries,) = tomllib.loads(text).values()
  choices = GridChoices("cpu")
  cells = definitions.recipes(entries, choices)
  assert set(cells) == {
    (row, column) for row in entries["rows"] for column in entries["columns"]
  }
  assert cells["SGD", "few rounds"].arguments == (
    "--rounds=3", "--client=sgd", "--client_lr=0.01", "--seed=1,2,3"
  )  # fmt: skip
  assert choices.grids[0] == (
    "--rounds=3", "--client=sgd", "--client_lr=0.01,0.1", "--seed=0"
  )  # fmt: skip


def test_elsewhere_other_flags_replace_the_preset_but_not_that_of_the_grid():
  choices = GridChoices("cpu")
  entries = {
    "rows": ["A"], "columns": ["here", "there"], "preset": ["--rounds=3"],
    "labels": {"A": ["--client=sgd"]}, "elsewhere": {"there": ["--rounds=5"]},
    "tune": ["--client_lr=0.1,1"],
  }  # fmt: skip
  flags = {
    key[1]: c.arguments
    for key, c in definitions.recipes(entries, choices).items()
  }
  assert flags["here"] == ("--rounds=3", "--client=sgd", "--client_lr=0.1")
  assert flags["there"] == ("--rounds=5", "--client=sgd", "--client_lr=0.1")
  assert choices.grids == [("--rounds=3", "--client=sgd", "--client_lr=0.1,1")]


def test_sizes_and_what_is_alike():
  content = {
    "a": {"flags": ["1"], "labels": {"x": ["2"]}, "cpu": {"labels": {"y": []}}},
    "b": {"like": "a", "labels": {"x": ["3"]}},
  }
  entries = definitions._completed(content, content["b"])
  assert definitions.at_size(entries, "cpu")["labels"] == {"x": ["3"], "y": []}
  assert definitions.at_size(entries, "smoke")["labels"] == {"x": ["3"]}


def of_artefact(text):
  read = lambda file: definitions.of_paper(".")
  with mock.patch.object(definitions, "_EXPERIMENTS", pathlib.Path()):
    return refusals.of_file(read, "artefacts.toml", f"[a]\n{text}\n")


test_what_nothing_reads_is_refused = refusals.of_table(
  "artefacts.txt", of_artefact
)


# Verdicts on claims; what is said of them is held against published pages, in
# test_reproduce.py.


INF, NAN = np.inf, np.nan


@pytest.mark.parametrize(
  ("values", "verdict"),
  [
    ((1.0, 1.1, 0.9), "held"),
    ((-1.0, -1.1, -0.9), "not held"),
    ((1.0, -1.0, 0.5), "undecided"),
    ((5.0,), "undecided"),  # One seed decides nothing.
    ((INF,), "undecided"),
    ((), "undecided"),
    ((INF, INF), "held"),  # What it is compared with diverged, always.
    ((-INF, -INF), "not held"),
    ((INF, 1.0), "undecided"),
    ((NAN, 1.0), "undecided"),
  ],
)
def test_one_quantity(values, verdict):
  assert Quantity("it", values).verdict(1) == verdict


def test_a_quantity_at_which_each_side_diverged_has_the_least_margin():
  values = [(1.0, INF, -INF), (-3.0, -2.0, -1.0), (NAN, NAN), (1.0, INF)]
  margins = [Quantity("it", value).margin for value in values]
  assert margins == [-INF, -2.0, INF, INF]


def test_one_of_many_quantities_is_not_held_by_chance():
  below = Quantity("it", (-1.0, -0.9, -0.5))
  above = Quantity("other", (1.0, 1.1, 0.9))
  assert below.verdict(1) == "not held"
  assert below.text(1) == "-0.8 (-1.46 to -0.143)"
  # Of two, the interval that is tested has a level of 0.975.
  assert below.text(2).startswith("-0.8 (-1.75 to 0.148 widened; 0 of 3 seeds")
  assert Claim("one", [below]).verdict == "not held"
  assert Claim("two", [below, above]).verdict == "undecided"
  assert Claim("held", [above] * 20).verdict == "held"  # All must be above.


def test_seeds_that_would_decide():
  text_of = lambda *values: Quantity("it", values).text(1)
  # ((1.960 + 0.842) * sd / mean)^2 = 306 for many seeds; t needs three more.
  assert text_of(1.0, -1.0, 0.5) == (
    "0.167 (-2.42 to 2.75; 2 of 3 seeds above; 309 seeds would decide)"
  )
  assert text_of(1.0, -1.0, 0.01).endswith(
    "; more than 1,000 seeds would decide)"
  )
  assert text_of(0.0, 0.0).endswith("; more than 1,000 seeds would decide)")
  assert text_of(1.0, 1.1, 0.9) == "1 (0.752 to 1.25)"  # It is decided.


def test_runs_that_end_at_chance_are_counted_and_stay_in():
  ends = {"Δ-SGD": [0.95, 0.96, 0.97]}
  finals = lambda key: ends.get(key[0], [0.11, 0.94, 0.93])
  found = filled("delta_sgd/table1", "cpu", finals)
  claim = next(iter(claims("delta_sgd/table1", found).values()))
  assert claim.verdict == "undecided"
  assert claim.because(1).split("; ")[-3:] == [
    "SGD ended at chance at 1 of 3 seeds",
    "the median is 4)",
    "and 6 more undecided",
  ]
  assert "would decide" not in claim.deciding[0].text(7, is_brief=True)


def test_a_run_that_diverges_later_has_no_value_before_either():
  curves = [[0.5, 1e9, NAN], [0.5, 0.4, 0.3]]
  found = record({"train_loss": curves}, [{}, {}], rounds=[0, 50, 100])
  for words in ("train_loss at 60", "train_loss after 50 %"):
    np.testing.assert_array_equal(value(words).compute(found), [NAN, 0.4])


@pytest.mark.parametrize(
  ("cases", "verdict"),
  [
    (["held", "held"], "held"),
    (["held", "undecided"], "undecided"),
    (["held", "undecided", "not held"], "in part"),
    (["undecided", "not held"], "not held"),
  ],
)
def test_a_claim_with_several_cases(cases, verdict):
  assert verdict_of_cases(cases) == verdict
