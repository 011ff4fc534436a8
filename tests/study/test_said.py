"""What is said of studies in words and tables: the cases are in said.txt."""

import dataclasses
import doctest
import pathlib
import re

import jax
import numpy as np
import pytest

import fedjax_opt as fo
from fedjax_opt.results.selection import Criterion
from fedjax_opt.study import cells as study_cells
from fedjax_opt.study import sizes, words
from fedjax_opt.study.bootstrap import Interval
from fedjax_opt.study.numbers import NumberFormat, format_of
from fedjax_opt.study.report import formats, pictures, sentences, templates
from fedjax_opt.study.report import study_tables as tables
from tests.helpers import studies
from tests.helpers.studies import NAN, cell, study

FOUR = [0.5, 0.6, 0.5, 0.6]
TRIED = {0.01: [0.2] * 2, 0.1: [0.8] * 2, 1.0: [0.2] * 2}
EDGE = {0.01: [0.2] * 2, 0.05: [0.5] * 2, 0.1: [0.8] * 2}
# Clearly apart, and one that is not apart from the highest.
LOW, MIDDLE, HIGH = (
  mean + np.roll(np.linspace(-0.01, 0.01, 8), shift)
  for shift, mean in enumerate((0.5, 0.6, 0.7))
)
SPREAD = HIGH[::-1] - 0.001
PLAIN, HOSTILE = studies.plain(), studies.hostile()
LOSS = dataclasses.replace(PLAIN, metric="test_loss", target=0.25)
X = np.zeros((6, 2), np.float32)
LABELS = np.array([0, 2, 1, 1, 0, 2], np.int32)


def parts(*interval):
  """A difference of accuracies."""
  return NumberFormat("test_accuracy").texts(Interval(*interval), True)


def whole(metric, *interval):
  estimate = Interval(*interval)
  return format_of(metric, [estimate]).with_interval(estimate)


def under(*conditions):
  """The methods a, b, ... with these values under each condition."""
  return study(
    *[
      cell(m, values, {"k": k} if len(conditions) > 1 else None)
      for k, condition in enumerate(conditions)
      for m, values in zip("abcdefghij", condition, strict=False)
    ]
  )


def answer(case):
  print(sentences.answer(case))


def limits(*cells, **options):
  for line in sentences.limits_of(study(*cells, **options)):
    print(line)


def lines(content):
  """The lines that are not empty."""
  print(*(line for line in content.splitlines() if line.strip()), sep="\n")


def show(table):
  lines(formats.markdown(table) if table else "None")


def csv(rows, *columns):
  """Columns of a table for programs, its numbers with six digits."""
  for row in rows:
    cells = [row[name] for name in columns]
    print(*(f"{x:.6g}" if isinstance(x, float) else x for x in cells), sep=", ")


def captions(*cells, **options):
  for picture in pictures.of_study(study(*cells, **options)):
    print(f"{picture.name}: {picture.title} {picture.caption}")


def clients(y=LABELS, rows=((0, 1, 1), (2, 3))):
  examples = {"x": X} if y is None else {"x": X, "y": y}
  data = fo.ClientData.from_partition(examples, rows, keep_pool=True)
  return sizes.client_summary_of(data)


def without_losses():
  result = cell("a", FOUR)
  metrics = result.report_runs.history.metrics
  for name in [name for name in metrics if name.endswith("loss")]:
    del metrics[name]
  return result


def higher_before(accuracy, method="a"):
  result = cell(method, FOUR)
  result.report_runs.history.metrics["test_accuracy"][:, 1] = accuracy
  return result


# What the examples name: modules and functions by their own names.
NAMES = {
  item.__name__.rpartition(".")[2]: item
  for item in (
    formats, sizes, study_cells, templates, words, Criterion, cell,
    NumberFormat, study, studies.grid, parts, whole, under, answer, limits,
    lines, show, csv, captions, clients, without_losses, higher_before,
    jax.tree_util,
  )
}  # fmt: skip
NAMES |= {
  "fo": fo, "np": np, "tables": tables, "NAN": NAN, "X": X, "LABELS": LABELS,
  "FOUR": FOUR, "TRIED": TRIED, "EDGE": EDGE, "LOW": LOW, "MIDDLE": MIDDLE,
  "HIGH": HIGH, "SPREAD": SPREAD, "PLAIN": PLAIN, "HOSTILE": HOSTILE,
  "LOSS": LOSS, "MANY": studies.many(),
}  # fmt: skip


def examples():
  """Those of said.txt, each with its section."""
  text = pathlib.Path(__file__).with_name("said.txt").read_text()
  _, *parts = re.split(r"(?m)^\[([\w ]+)\]$", text)
  for name, section in zip(parts[::2], parts[1::2], strict=True):
    for example in doctest.DocTestParser().get_examples(section):
      yield pytest.param(example, id=f"{name}: {example.source.strip()}")


@pytest.mark.parametrize("example", list(examples()))
def test_what_is_said(example):
  example.lineno = 0
  test = doctest.DocTest([example], dict(NAMES), "example", None, 0, None)
  report = []
  runner = doctest.DocTestRunner()
  assert not runner.run(test, out=report.append).failed, "".join(report)
