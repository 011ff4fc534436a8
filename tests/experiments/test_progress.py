"""What a terminal shows of a run, and what a log file has."""

import fcntl
import gc
import os
import re
import struct
import sys
import termios

import numpy as np
import pytest

from experiments import progress as of_runs
from experiments.progress import Progress
from fedjax_opt import Report
from fedjax_opt.metrics import Criterion, History

ACCURACY = Criterion("test_accuracy", "max", "last")
# Two rates of three seeds, and one that diverges.
POINTS = [
  {"client_lr": rate, "server_lr": 1.0, "seed": seed}
  for rate in (0.1, 1.0, 1e30)
  for seed in (0, 1, 2)
]


class Terminal:
  """A pseudo-terminal, and the lines that it would show."""

  def __init__(self, width, height):
    self._master, slave = os.openpty()
    self._file = os.fdopen(slave, "w")
    self.resize(width, height)
    self._text = ""

  def resize(self, width, height):
    self._width = width
    size = struct.pack("HHHH", height, width, 0, 0)
    fcntl.ioctl(self._file, termios.TIOCSWINSZ, size)

  @property
  def file(self):
    return self._file

  def screen(self):
    """The lines, and the row and column of the cursor; nothing may wrap."""
    self._file.flush()
    os.set_blocking(self._master, False)
    try:
      while part := os.read(self._master, 65536):
        self._text += part.decode()
    except BlockingIOError:
      pass
    lines, row, column = [""], 0, 0
    for token in re.findall(r"\x1b\[\d*[A-Z]|\r|\n|[^\x1b\r\n]+", self._text):
      if token == "\r":
        column = 0
      elif token == "\n":
        row += 1
      elif token == "\x1b[K":
        lines[row] = lines[row][:column]
      elif token == "\x1b[J":
        lines = [*lines[:row], lines[row][:column]]
      elif token.endswith("A"):
        row -= int(token[2:-1])
        assert row >= 0, "above the top of the screen"
      else:
        before = lines[row].ljust(column)
        lines[row] = before[:column] + token + before[column + len(token) :]
        column += len(token)
        assert column <= self._width, f"wraps: {token!r}"
      lines += [""] * (row + 1 - len(lines))
    return [line.rstrip() for line in lines], row, column


@pytest.fixture
def open_terminal(monkeypatch):
  """`(width, height) -> Terminal`, which is stderr then."""

  def open_terminal(width=80, height=24):
    terminal = Terminal(width, height)
    monkeypatch.setattr(sys, "stderr", terminal.file)
    monkeypatch.setenv("TERM", "xterm")
    # Every round counts here, however soon it comes.
    monkeypatch.setattr(of_runs, "_SECONDS_BETWEEN_TABLES", 0.0)
    return terminal

  return open_terminal


def rounds(progress, num_points=9):
  """Shows rounds 0, 10, ...; the third rate diverges from round 10."""
  history = History()
  for round in (0, 10, 20):
    accuracy = np.array([0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 0.1, 0.1, 0.1])
    loss = np.full(9, 0.25)
    if round:
      loss[6:] = np.nan
    values = {
      "train_loss": loss,
      "test_accuracy": accuracy * (round + 80) / 100,
    }
    values = {name: value[:num_points] for name, value in values.items()}
    history.append(round, values)
    progress.show(Report(round, values, 1.0, 2.0), history)


TABLE = [
  "best 3 of 3 settings, mean of 3 seeds; 3 of 9 points diverged",
  "  client_lr  test_accuracy",
  "          1         90.0 %",
  "        0.1         60.0 %",
  "      1e+30              -  3 of 3 diverged",
]


def test_the_best_settings_are_below_the_bar(open_terminal):
  terminal = open_terminal()
  progress = Progress(20, ACCURACY, True, POINTS)
  rounds(progress)
  lines, row, column = terminal.screen()
  assert lines[0] == "compiled in 1.0 s"
  assert "20/20" in lines[1]
  assert "train loss 0.25, test accuracy 1" in lines[1]
  assert lines[2:] == [*TABLE, ""]
  # Whatever is printed next stands below the table.
  assert (row, column) == (7, 0)
  progress.close()  # The bar alone stays.
  lines, row, column = terminal.screen()
  assert "20/20" in lines[1]
  assert lines[2:] == [""]
  assert (row, column) == (2, 0)


def test_after_ctrl_c_and_an_error(open_terminal):
  """The terminal echoes ^C at the cursor; then the bar is closed."""
  terminal = open_terminal()
  progress = Progress(100, ACCURACY, True, POINTS)
  rounds(progress)
  terminal.file.write("^C")
  progress.close()
  lines, *_ = terminal.screen()
  assert "^C" not in "".join(lines)
  assert "20/100" in lines[1]
  assert lines[2:] == [""]


def test_a_bar_that_was_not_closed_erases_nothing(open_terminal):
  terminal = open_terminal()
  progress = Progress(20, ACCURACY, True, POINTS)
  rounds(progress)
  print("error: some", file=sys.stderr)
  del progress
  gc.collect()
  lines, *_ = terminal.screen()
  assert lines[2:] == [*TABLE, "error: some", ""]


@pytest.mark.parametrize(("width", "height"), [(20, 24), (14, 24), (80, 4)])
def test_small_terminals(open_terminal, width, height):
  terminal = open_terminal(width, height)
  progress = Progress(20, ACCURACY, True, POINTS)
  # The line of the compilation is a text as any other, and may wrap.
  progress._print = lambda *_, **__: None
  rounds(progress)
  lines, row, column = terminal.screen()
  assert row <= height - 1
  assert column == 0
  cut = [line[: width - 1].rstrip() for line in TABLE]
  assert lines[1:-1] == cut[: height - 2]


@pytest.mark.parametrize(
  ("points", "terminal_type"),
  [(POINTS[:1], "xterm"), (POINTS[:3], "xterm"), ([], "xterm"),
   (POINTS, "dumb")],
)  # fmt: skip
def test_without_settings_to_compare_there_is_the_bar_alone(
  open_terminal, monkeypatch, points, terminal_type
):
  terminal = open_terminal()
  monkeypatch.setenv("TERM", terminal_type)
  progress = Progress(20, ACCURACY, True, points)
  rounds(progress, num_points=max(1, len(points)))
  lines, row, _ = terminal.screen()
  assert len(lines) == 2
  assert "20/20" in lines[1]
  assert row == 1


def test_elsewhere_there_are_lines(capsys):
  progress = Progress(20, ACCURACY, True, POINTS)
  progress._last_line = -np.inf
  rounds(progress)
  progress.close()
  assert capsys.readouterr() == ("", "compiled in 1.0 s\n")


def test_nothing_if_it_is_switched_off(open_terminal):
  terminal = open_terminal()
  progress = Progress(20, ACCURACY, False, POINTS)
  rounds(progress)
  progress.close()
  assert terminal.screen() == ([""], 0, 0)
