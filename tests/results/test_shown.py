"""What people see of a run: names, its closing table, notebooks, its bar."""

import collections
import sys
import types
import warnings

import numpy as np
import pytest

from experiments.specification.choice_flags import CHOICE_FLAGS
from experiments.tasks import TASKS
from fedjax_opt import Report, Result
from fedjax_opt.results import names
from fedjax_opt.results.closing_table import closing_table
from fedjax_opt.results.history import History
from fedjax_opt.results.progress import with_progress
from fedjax_opt.results.selection import Criterion
from tests.helpers.histories import two_points
from tests.helpers.tables_of_calls import read_cases

NAN = float("nan")
POINTS = ({"client_lr": 0.1, "seed": 0}, {"client_lr": 1.0, "seed": 0})


# Names for people: every choice has one, all else becomes plain words.


@pytest.mark.parametrize("kind", CHOICE_FLAGS)
def test_every_choice_has_a_name_of_its_own(kind):
  entries = CHOICE_FLAGS[kind].entries
  for name, entry in entries.items():
    assert names.name_of(name) == entry.label or entry.label is None
    assert "_" not in names.name_of(name)
    # A label says more than plain words; those of tasks are put together.
    assert kind == "task" or entry.label != name.replace("_", " ")
    assert entry.label or kind not in ("algorithm", "client")
  labels = collections.Counter(map(names.name_of, entries))
  assert set(labels.values()) == {1}


def test_every_word_of_a_task_has_a_name():
  words = {"digits", "logistic", "small", "low", "rank", "transformer"}
  words |= {"classes)", "non-convex", "images", "table,", "linear", "model"}
  words |= {"features"}
  for task in TASKS:
    name = names.name_of(task)
    assert {word for word in name.split() if word.islower()} <= words
  assert names.name_of("cifar10_resnet56") == "CIFAR-10 ResNet-56"
  assert names.name_of("agnews_distilbert") == "AG News DistilBERT"


@pytest.mark.parametrize(("call", "text"), read_cases("results/words.txt"))
def test_words_for_people(call, text):
  assert eval(call) == text


def at_five(**values):
  """A history of one evaluated round, [S] each."""
  return History([5], {n: np.array(v)[:, None] for n, v in values.items()})


def table(history, points=POINTS, criterion=Criterion()):  # noqa: B008
  return closing_table(history, points, criterion)


# The table that closes a run.


def test_one_row_for_each_point():
  assert table(two_points()) == (
    "after round 20:\n"
    "   client_lr  test_accuracy  its best (round)  worst decile (train)"
    "  status\n"
    "*        0.1        66.67 %      66.67 % (20)               20.00 %"
    "  ok\n"
    "           1              -      25.00 % (10)                     -"
    "  diverged at 20\n"
    "* selected: highest test_accuracy (last)\n"
    "the best client_lr, 0.1, is the smallest that was tried; a better one may "
    "lie outside the grid"
  )


def test_mean_and_deviation_over_seeds():
  points = [{"gamma": g, "seed": s} for g in (1.0, 2.0) for s in (0, 1)]
  text = table(
    at_five(train_loss=[1, 1, 1, NAN], test_accuracy=[0.8, 0.9, 0.95, 0.1]),
    points,
  )
  for part in (
    "*      1  85.00 ± 7.07 %", "ok (2 seeds)", "95.00 %",
    "1 of 2 diverged from 5", "sample standard deviation",
  ):  # fmt: skip
    assert part in text


def test_nothing_was_trained():
  history = History([0], {"test_accuracy": np.array([[0.1]])})
  last = "this is the initial model: no round was trained"
  assert table(history, [{}]).splitlines()[-1] == last
  assert last not in table(at_five(test_accuracy=[0.1]), [{}])


@pytest.mark.parametrize(("last", "is_better"), [(0.1, False), (0.2, True)])
def test_a_model_that_is_no_better_than_at_its_start(last, is_better):
  history = History([0, 5], {"test_accuracy": np.array([[0.1, last]])})
  line = "no better than the initial model, whose test_accuracy is 10.00 %"
  assert (line in table(history, [{}])) is not is_better


def test_the_best_ten_of_many():
  points = [{"client_lr": i / 100} for i in range(21)]
  accuracy = np.arange(21.0) / 100
  lines = table(at_five(test_accuracy=accuracy), points).splitlines()
  assert lines[2].startswith("*        0.2        20.00 %")
  assert lines[-1].startswith("best 10 of 21 settings;")
  assert lines[-1].endswith("the other 11")
  assert lines[-2].startswith("the best client_lr, 0.2, is the largest that")
  assert len(lines) == 2 + 10 + 3


def test_other_criteria():
  history = at_five(test_loss=[0.5, 0.25], f1=[0.5, 1])
  text = table(history, criterion=Criterion("test_loss", "min"))
  assert "*          1       0.25          0.25 (5)  ok" in text
  # It is shown besides accuracy.
  criterion = Criterion("train_loss", "min", "best")
  header = table(two_points(), criterion=criterion).splitlines()[1]
  assert "train_loss" in header
  text = table(at_five(train_loss=[NAN, NAN]), criterion=criterion)
  assert text.endswith("none selected: every point diverged")
  assert table(History()) == "no round was evaluated"


# Results in notebooks.


def shown(rounds=(), **metrics):
  rounds, history = list(rounds), History(list(rounds), metrics)
  result = Result(
    None, None, None, history, {}, max(rounds, default=0), 0, 1.2, 3.4, {}, 0.0
  )
  return result._repr_html_()


def test_a_result_shows_the_last_values():
  html = shown(
    (0, 5),
    train_loss=[[3.0, 1.5]],
    test_accuracy=[[0.1, 0.75]],
    train_accuracy_decile_1=[[0.2, 0.3]],
    bytes_up=[[0, 12345]],
  )
  assert "<tr><td>train_loss</td><td>1.5</td></tr>" in html
  assert "<tr><td>test_accuracy</td><td>0.75</td></tr>" in html
  assert "5 rounds" in html
  assert not any(word in html for word in ("decile", "bytes", "diverged"))


def test_of_a_grid_it_has_the_spread_over_the_points_that_did_not_diverge():
  losses = [[2.0, 2, 1], [2, NAN, 5], [2, 3, 4], [2, 4, 3]]
  html = shown((0, 5, 9), train_loss=losses)
  assert "<td>train_loss</td><td>1</td><td>3</td><td>4</td>" in html
  assert "1 of 4 points diverged" in html
  assert "<td>-</td>" * 3 in shown((0,), train_loss=[[NAN], [NAN]])
  assert "<table>" not in shown()


# The bar of `progress=True`.


def test_a_notebook_without_ipywidgets_has_a_bar_of_text_and_no_warning(
  monkeypatch, capsys
):
  import tqdm.notebook

  shell = types.SimpleNamespace(config={"IPKernelApp": {}})
  ipython = types.SimpleNamespace(get_ipython=lambda: shell)
  monkeypatch.setitem(sys.modules, "IPython", ipython)
  monkeypatch.setattr(tqdm.notebook, "IProgress", None)
  for name in ("tqdm.auto", "tqdm.autonotebook"):  # Imported anew.
    monkeypatch.delitem(sys.modules, name, raising=False)
  with warnings.catch_warnings():
    warnings.simplefilter("error")
    with with_progress(4, lambda report: report.round == 2) as show:
      accuracy = np.array([0.25, 0.5, NAN])
      report = Report(2, {"test_accuracy": accuracy}, 0.0, 0.0)
      assert show(report) is True  # As the callback says.
  bar = capsys.readouterr().err
  assert "compiling: " in bar
  assert "2/4" in bar
  assert "test_accuracy=0.5" in bar  # The best of the points.
