"""Tables of a study: they say what its verdicts say, whatever the labels."""

import csv
import dataclasses
import io
import re
import shutil
import subprocess

import pytest

from fedjax_opt.study import verdicts
from fedjax_opt.study.report import formats, sentences
from fedjax_opt.study.report import study_tables as tables
from tests.helpers import studies
from tests.helpers.studies import study


def rows_of(case):
  text = formats.csv(formats.cell_records(case))
  return list(csv.DictReader(io.StringIO(text)))


def test_claims_agree_with_tables():
  """The answer, Markdown, LaTeX, HTML, terminal and CSV have one number.

  How they are written: said.txt.
  """
  case = studies.plain()
  all_verdicts = case.verdicts
  table = tables.main_table(case)
  texts = [formats.markdown(table), formats.latex(table)]
  html = case._repr_html_().replace("\xa0", " ")
  texts.append(re.sub("<[^>]*>", "", html))
  texts.append("\n".join(case.table_lines()))
  for verdict, row in zip(all_verdicts, rows_of(case), strict=True):
    assert float(row["mean"]) == verdict.value.estimate
    assert float(row["low"]) == verdict.value.low
    assert row["verdict"] == verdict.kind
    mean = f"{100 * verdict.value.estimate:.1f}"
    ends = f"{100 * float(row['low']):.1f} to {100 * float(row['high']):.1f}"
    in_table = [e for r in table.rows for e in r if e[:2] == (mean, ends)]
    assert [e.verdict for e in in_table] == [verdict.kind]
    assert all(mean in text and ends in text for text in texts)
    if verdict.kind == verdicts.BEST:
      cells = case.under(verdict.cell.condition).values()
      answer = sentences.answer(
        study(*[dataclasses.replace(c, condition={}) for c in cells])
      )
      assert f"best with {mean} % (95 % interval {ends})" in answer


def test_every_verdict_has_the_mark_that_the_notes_explain():
  finals = {"best": [0.9, 0.91], "tied": [0.9, 0.9], "lost": [0.1, 0.1]}
  table = tables.main_table(study(*[studies.cell(*x) for x in finals.items()]))
  markdown, latex = formats.markdown(table), formats.latex(table)
  for place, in_latex in (("†", r"$\dagger$"), ("§", r"\S{}")):
    assert markdown.count(place) == 2  # In the row, and in the note.
    assert latex.count(in_latex) == 2


CLASSES = ["{article}", "[twocolumn]{article}", "{IEEEtran}"]


@pytest.mark.skipif(not shutil.which("pdflatex"), reason="needs LaTeX")
@pytest.mark.parametrize("document", CLASSES)
@pytest.mark.parametrize("make", [studies.plain, studies.hostile, studies.many])
def test_latex_fits_into_a_paper(make, document, tmp_path):
  if document == "{IEEEtran}" and not has_class("IEEEtran"):
    pytest.skip("needs IEEEtran")
  text = formats.latex(tables.main_table(make(), True))
  # Nothing is made smaller, but for a label of 90 letters.
  macro = "\\renewcommand{\\resizebox}[3]{#3}" * (make != studies.hostile)
  (tmp_path / "main.tex").write_text(
    f"\\documentclass{document}\\usepackage{{booktabs,graphicx}}{macro}"
    f"\\begin{{document}}{text}\\end{{document}}"
  )
  process = subprocess.run(
    ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "main.tex"],
    cwd=tmp_path,
    capture_output=True,
    check=False,
  )
  assert process.returncode == 0, process.stdout[-2000:]
  assert b"Overfull" not in process.stdout
  assert b"Float too large" not in process.stdout


def has_class(name):
  """Whether LaTeX has a class, and so its fonts."""
  files = [f"{name}.cls", "ptmr7t.tfm"]
  process = subprocess.run(
    ["kpsewhich", *files], check=False, capture_output=True
  )
  return len(process.stdout.split()) == 2
