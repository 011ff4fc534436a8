"""Tables of a study: they say what its verdicts say, whatever the labels."""

import csv
import dataclasses
import io
import re
import shutil
import subprocess

import numpy as np
import pytest

from fedjax_opt import statistics
from fedjax_opt.study import verdicts, words
from fedjax_opt.study.bootstrap import Interval
from fedjax_opt.study.report import formats, records, sentences, text
from fedjax_opt.study.report import study_tables as tables
from tests.study import made
from tests.study.made import NAN, cell, study


def rows_of(of):
  text = formats.csv(records.cell_records(of))
  return list(csv.DictReader(io.StringIO(text)))


def test_a_row_for_each_method_and_a_column_for_each_condition():
  table = tables.main_table(made.plain())
  assert table.header == [
    "Method", "α = 1", "α = 0.1", "Settings tried", "Failed",
  ]  # fmt: skip
  assert [row[0].text for row in table.rows] == ["FedAvg", "SCAFFOLD", "Δ-SGD"]
  assert [row[3].text for row in table.rows] == ["3", "3", "1"]
  assert [row[4].text for row in table.rows] == [
    "2 of 6",
    "2 of 6",
    "–",
  ]
  assert table.rows[1][1] == ("80.0", "79.0 to 81.0", verdicts.BEST)
  assert "5 seeds, with its 95 % interval" in table.caption


def test_of_many_conditions_a_row_for_each_cell():
  conditions = [
    {"alpha": a, "local_steps": k} for a in (1, 2) for k in range(4)
  ]
  of = study(*[cell(m, [0.5, 0.6], c) for c in conditions for m in "ab"])
  table = tables.main_table(of)
  assert table.header[:4] == [
    "α", "Local steps", "Method", "Test accuracy (%)",
  ]  # fmt: skip
  assert len(table.rows) == 16
  assert [entry.text for entry in table.rows[3][:3]] == ["1", "1", "b"]


def test_a_missing_cell_and_diverged_ones():
  of = study(
    cell("a", [0.5, NAN, 0.5], {"k": 1}),
    cell("b", [], {"k": 1}, tried={0.1: [NAN], 1.0: [NAN]}),
    cell("b", [0.5, 0.6], {"k": 2}),
  )
  (a, b) = tables.main_table(of).rows
  assert a[1][:2] == ("diverged", "1 of 3 seeds")
  assert a[2].text == words.NOTHING
  assert b[1][:2] == ("diverged", "every setting")
  first, second, third = rows_of(of)
  assert (first["mean"], first["diverged_seeds"]) == ("", "1")
  assert (second["seeds"], second["diverged_settings"]) == ("0", "2")
  assert third["verdict"] == "best"


def test_one_method_is_not_the_best_and_one_seed_has_no_interval():
  table = tables.main_table(study(cell("a", [0.5, 0.6])))
  assert table.rows[0][1].verdict == ""
  assert not any("Bold" in note for note in table.notes)
  table = tables.main_table(study(cell("a", [0.5]), cell("b", [0.6])))
  assert [row[1].detail for row in table.rows] == ["", ""]
  assert table.caption.endswith("of one seed.")
  assert not any("interval" in note for note in table.notes)


def test_claims_agree_with_tables():
  """The answer, Markdown, LaTeX, HTML, terminal and CSV have one number."""
  of = made.plain()
  found = of.verdicts
  table = tables.main_table(of)
  texts = [formats.markdown(table), formats.latex(table)]
  texts.append(re.sub("<[^>]*>", "", of._repr_html_()))
  texts.append("\n".join(of.table_lines()))
  for verdict, row in zip(found, rows_of(of), strict=True):
    assert float(row["mean"]) == verdict.value.estimate
    assert float(row["low"]) == verdict.value.low
    assert row["verdict"] == verdict.verdict
    shown = f"{100 * verdict.value.estimate:.1f}"
    ends = f"{100 * float(row['low']):.1f} to {100 * float(row['high']):.1f}"
    in_table = [e for r in table.rows for e in r if e[:2] == (shown, ends)]
    assert [e.verdict for e in in_table] == [verdict.verdict]
    assert all(shown in text and ends in text for text in texts)
    if verdict.verdict == verdicts.BEST:
      here = of.under(verdict.cell.condition).values()
      said = sentences.answer(
        study(*[dataclasses.replace(c, condition={}) for c in here])
      )
      assert f"best with {shown} % (95 % interval {ends})" in said
  assert "**80.0** (79.0 to 81.0)" in texts[0]
  assert "79.9† (" in texts[0]
  assert "SCAFFOLD & \\textbf{80.0} & \\textbf{60.0} \\\\" in texts[1]
  assert "{\\scriptsize 79.0 to 81.0} & {\\scriptsize 59.0 to 61.0}" in texts[1]
  assert "79.9$^\\dagger$" in texts[1]
  assert "80.0 (79.0 to 81.0) *" in texts[3]


def test_differences_are_those_of_the_verdicts():
  of = made.plain()
  found = of.verdicts
  table = tables.differences(of)
  others = [v for v in found if v.verdict != verdicts.BEST]
  for verdict, row in zip(others, table.rows, strict=True):
    assert row[1].text == verdict.cell.method
    assert row[2].text == f"{100 * verdict.behind.estimate:.1f}"
    assert row[3].text == words.p_value(verdict.pair.adjusted)
    assert row[4].text == f"{100 * verdict.pair.detectable:.1f}"
    assert row[5].text == f"{100 * verdict.probability.estimate:.0f}"
    assert row[6].text == verdict.verdict
  assert tables.differences(study(cell("a", [0.5, 0.6]))) is None


@pytest.mark.parametrize("metric", ["test_accuracy", "test_loss"])
def test_methods_over_all_conditions_are_compared_with_the_best(metric):
  of = dataclasses.replace(made.plain(), metric=metric)
  table = tables.over_all(of)
  share = " (%)" * (metric == "test_accuracy")
  assert table.header == [
    "Method", f"Interquartile mean{share}", "Better than SCAFFOLD (%)",
  ]  # fmt: skip
  numbers = verdicts.numbers_of(of)
  scores = verdicts.matrices_of(of)
  way = "max" if share else "min"
  for method, row in zip(of.methods, table.rows, strict=True):
    middle = statistics.interquartile_mean(scores[method])
    assert row[1][:2] == numbers.parts(middle)
    wins = statistics.probability_of_improvement(
      scores[method], scores["SCAFFOLD"], direction=way
    )
    text = f"{100 * wins.estimate:.0f}"
    assert row[2].text == (words.NOTHING if method == "SCAFFOLD" else text)
  assert float(table.rows[0][2].text) < float(table.rows[2][2].text) < 50
  assert tables.over_all(study(*of.cells[:3])) is None


def test_csv_has_all_digits():
  third = 1 / 3
  of = study(
    cell("a", [third, third + 0.01], {"method": 0.1 + 0.2}, tried={
      0.1: [0.5], 1e-5: [0.6],
    }),
    target=0.2,
  )  # fmt: skip
  (row,) = rows_of(of)
  # The condition has the name of another column.
  assert float(row["condition_method"]) == 0.1 + 0.2
  assert row["method"] == "a"
  assert float(row["mean"]) == np.mean([third, third + 0.01])
  assert float(row["chosen_client_lr"]) == 1e-5
  assert row["tuning_settings"] == "2"
  assert row["tuning_seeds"] == "1"
  assert row["edges"] == "client_lr=1e-5 (smallest)"
  assert row["criterion"] == "highest validation_accuracy (last)"
  assert row["tuning_score"] == "0.6"
  assert row["metric"] == "test_accuracy"
  assert row["behind"] == row["probability_best_is_better"] == ""
  assert float(row["rounds_to_target"]) == 10
  assert float(row["bytes_to_target"]) == 10000


def test_hostile_labels_keep_the_shape_of_markdown():
  of = made.hostile()
  table = tables.main_table(of)
  text = formats.markdown(table, of.title)
  rows = [line for line in text.splitlines() if line.startswith("|")]
  assert len(rows) == len(made.HOSTILE) + 2
  bars = {len(re.findall(r"(?<!\\)\|", row)) for row in rows}
  assert bars == {len(table.header) + 1}
  assert "<" not in text


def test_hostile_labels_keep_the_shape_of_latex():
  of = made.hostile()
  of = dataclasses.replace(of, cells=of.cells[: len(made.HOSTILE)])
  table = tables.main_table(of)
  text = formats.latex(table)
  body = text.split("\\toprule")[1].split("\\bottomrule")[0]
  rows = [line for line in body.splitlines() if "&" in line]
  # Two of the labels are two lines long.
  assert len(rows) == len(made.HOSTILE) + 1 + 2
  for row in rows:
    assert len(re.findall(r"(?<!\\)&", row)) == len(table.header) - 1
    assert row.count("\\\\") == 1
    assert not re.search(r"(?<!\\)[%#]", row)
  plain = re.sub(r"\\[{}]", "", text)
  assert plain.count("{") == plain.count("}")
  assert len(re.findall(r"(?<!\\)\$", text)) % 2 == 0


def test_latex_of_symbols():
  assert text.escape_latex("Δ-SGD α₁ 5 % ±") == (
    "$\\Delta$-SGD $\\alpha$$_1$ 5 \\% $\\pm$"
  )
  assert text.escape_latex("a_b & c\\d") == "a\\_b \\& c\\textbackslash{}d"
  assert text.escape_latex("[*") == "{[}{*}"
  assert text.escape_latex("λµΩ xₗ² Ä Α") == (
    "$\\lambda$$\\mu$$\\Omega$ x$_l$$^2$ Ä Α"
  )


def many():
  """Thirty methods with long names under seven conditions."""
  cells = [
    cell(f"method {i} with a name", [0.5, 0.6], {"alpha": a, "k": 20})
    for a in range(7)
    for i in range(30)
  ]
  return study(*cells)


CLASSES = ["{article}", "[twocolumn]{article}", "{IEEEtran}"]


@pytest.mark.skipif(not shutil.which("pdflatex"), reason="needs LaTeX")
@pytest.mark.parametrize("document", CLASSES)
@pytest.mark.parametrize("make", [made.plain, made.hostile, many])
def test_latex_fits_into_a_paper(make, document, tmp_path):
  if document == "{IEEEtran}" and not has_class("IEEEtran"):
    pytest.skip("needs IEEEtran")
  text = formats.latex(tables.main_table(make(), True))
  # Nothing is made smaller, but for a label of 90 letters.
  whole = "\\renewcommand{\\resizebox}[3]{#3}" * (make != made.hostile)
  (tmp_path / "main.tex").write_text(
    f"\\documentclass{document}\\usepackage{{booktabs,graphicx}}{whole}"
    f"\\begin{{document}}{text}\\end{{document}}"
  )
  done = subprocess.run(
    ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "main.tex"],
    cwd=tmp_path,
    capture_output=True,
    check=False,
  )
  assert done.returncode == 0, done.stdout[-2000:]
  assert b"Overfull" not in done.stdout
  assert b"Float too large" not in done.stdout


def has_class(name):
  """Whether LaTeX has a class, and so its fonts."""
  files = [f"{name}.cls", "ptmr7t.tfm"]
  found = subprocess.run(
    ["kpsewhich", *files], check=False, capture_output=True
  )
  return len(found.stdout.split()) == 2


def test_many_columns_and_rows_of_latex_are_several_tables():
  table = tables.main_table(many(), True)
  text = formats.latex(table)
  blocks = text.split("\\midrule")[1:]
  # Seven conditions, three beside one another, 30 methods in halves.
  assert len(blocks) == text.count("\\begin{table}") == 6
  assert max(line.count("&") for line in text.splitlines()) == 3
  for i in range(30):
    first = rf"^  method {i} with( a)? &"
    assert len(re.findall(first, text, re.MULTILINE)) == 3
  assert text.count("\\label{tab:study}") == 1
  one = formats.latex(tables.main_table(made.plain()))
  assert one.count("\\begin{tabular}") == 2  # Values, and tuning.
  assert "\\shortstack[r]{$\\alpha$~=~0,\\\\k~=~20}" in text
  alone = study(cell("a", [0.5, 0.6]))
  text = formats.latex(tables.main_table(alone))
  assert "  a & 55.0 {\\scriptsize (" in text


def test_columns_on_tuning_are_there_where_they_differ():
  def columns(*tried):
    of = study(
      *[
        cell(m, [0.5, 0.6], tried=each)
        for m, each in zip("abc", tried, strict=False)
      ]
    )
    table = tables.main_table(of)
    return table.header[2:], table.caption.partition("interval.")[2]

  two, three = ({x: [0.5] for x in range(1, n)} for n in (3, 4))
  lost = {1: [0.5], 2: [NAN]}
  assert columns(None, None) == ([], "")
  assert columns(two, two) == (
    [], " Of each method 2 settings were tried, and none diverged or collapsed."
  )  # fmt: skip
  assert columns(lost, two) == (
    ["Failed"], " Of each method 2 settings were tried."
  )  # fmt: skip
  assert columns(three, two) == (["Settings tried"], "")
  assert columns(three, lost) == (["Settings tried", "Failed"], "")


def test_csv_has_no_formulas():
  """A spreadsheet computes what begins with one of these signs."""
  labels = ["=1+1", "+1", "-cmd", "@SUM(A1)", "\t=1"]
  of = study(*[cell(m, [0.5], {"=k": "=x"}) for m in labels])
  rows = rows_of(of)
  assert [row["method"] for row in rows] == [f"'{m}" for m in labels]
  assert rows[0]["'=k"] == "'=x"
  (row,) = rows_of(study(cell("a\r=1\nb", [0.5], {"k": -2.5})))
  assert (row["method"], row["k"]) == ("a =1\nb", "-2.5")


@pytest.mark.parametrize(
  ("interval", "expected"),
  [
    ((0.003, 0.0003, 0.006), ("0.30", "0.03 to 0.60")),
    ((0.003, -0.0002, 0.006), ("0.30", "-0.02 to 0.60")),
    ((0.003, 0.0, 0.006), ("0.3", "0 to 0.6")),
    ((0.003, 1e-16, 0.006), ("0.3", "0 to 0.6")),
    ((0.003, -1e-16, 0.006), ("0.3", "0 to 0.6")),
    ((0.00001, NAN, NAN), ("0.001", "")),
  ],
)
def test_only_zero_reads_as_zero(interval, expected):
  numbers = words.Numbers("test_accuracy")
  assert numbers.parts(Interval(*interval), True) == expected


@pytest.mark.parametrize(
  ("metric", "intervals", "expected"),
  [
    ("test_accuracy", [(0.912, 0.9, 0.95)], "91.2 % (90.0 to 95.0)"),
    ("test_accuracy", [(0.912, 0.911, 0.913)], "91.20 % (91.10 to 91.30)"),
    ("test_accuracy", [(0.9, 0.7, 1.1)], "90.0 % (70.0 to 100.0)"),
    ("test_accuracy", [(0.9, NAN, NAN)], "90.0 %"),
    ("test_accuracy", [(NAN, NAN, NAN)], "–"),
    ("test_loss", [(0.4071, 0.38, 0.43)], "0.407 (0.380 to 0.430)"),
    ("test_loss", [(1234.5, 1000.0, 1400.0)], "1234 (1000 to 1400)"),
    ("test_loss", [(1.5e-7, 1e-7, 2e-7)], "1.5e-7 (1e-7 to 2e-7)"),
    ("test_loss", [(0.31, NAN, NAN)], "0.3100"),
  ],
)
def test_numbers(metric, intervals, expected):
  intervals = [Interval(*each) for each in intervals]
  assert words.numbers_of(metric, intervals).whole(intervals[0]) == expected


@pytest.mark.parametrize(
  ("function", "value", "expected"),
  [
    (words.seconds, 4.21, "4.2 s"),
    (words.seconds, 200, "3 min 20 s"),
    (words.seconds, 3900, "1 h 5 min"),
    (words.seconds, NAN, "–"),
    (lambda x: words.cost("bytes", x), 1.24e6, "1.24 MB"),
    (lambda x: words.cost("bytes", x), 12, "12 bytes"),
    (lambda x: words.cost("rounds", x), 37.5, "37.5"),
    (lambda x: words.cost("rounds", x), 12400.0, "12,400"),
    (words.on_examples, "test_accuracy", "accuracy on the test examples"),
    (
      words.on_examples,
      "train_worst_decile_accuracy",
      "accuracy, worst 10 % of clients on the clients' training examples",
    ),
    (words.on_examples, "f1", "F1"),
    (words.span, [3, 5, 4], "3 to 5"),
  ],
)
def test_words(function, value, expected):
  assert function(value) == expected
