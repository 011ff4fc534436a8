"""Values of any kind: accepted, or refused in one line that says which it is.

The kinds, and the valid arguments beside a wrong one, are those of
tools/wrong_values.py, which calls all public functions. Here nothing is
compiled. What else is refused of each argument, and how, is in the other files.
"""

import re

import pytest

import fedjax_opt as fo
from fedjax_opt.checks.values import brief
from fedjax_opt.engine.run_programs import RunPrograms
from tests.helpers.public_names import FACTORIES
from tools import wrong_values


def test_given_to_what_makes_a_part():
  for name, (factory, argument, _) in FACTORIES.items():
    for kind, make in wrong_values.OF_NO_KIND.items():
      try:
        factory(**{argument: make()})
      except (ValueError, TypeError) as error:
        line = str(error)
        assert "\n" not in line, (name, kind)
        assert line.startswith(argument) or "missing" in line, (name, kind)


# Kind -> arguments of what runs that accept it.
ACCEPTED = {
  "True": {"replacement", "drop_remainder", "progress"},
  "empty list": {"trace"},
}


class Accepted(Exception):
  """Instead of a compilation."""


@pytest.mark.parametrize("name", ["simulate", "sweep", "evaluate_clients"])
@pytest.mark.slow_cases("sweep")
def test_given_to_what_runs(name, monkeypatch):
  def accept(*_):
    raise Accepted

  monkeypatch.setattr(RunPrograms, "compile", accept)
  function = getattr(fo, name)
  good = wrong_values.arguments(name, function)
  for kind, make in wrong_values.OF_NO_KIND.items():
    accepted = set()
    for argument in good:
      try:
        function(**good | {argument: make()})
      except (ValueError, TypeError) as error:
        line = str(error)
        assert "\n" not in line, (argument, kind)
        # A model of another structure fails in the function of it.
        names = rf"({argument}|loss_fn|per_example|make)\b"
        assert re.match(names, line), (argument, kind, line)
      except Accepted:
        accepted.add(argument)
      else:
        accepted.add(argument)
    assert accepted == ACCEPTED.get(kind, set()) & good.keys(), kind


def test_a_pandas_table_is_named_not_printed():
  pandas = pytest.importorskip("pandas")
  assert brief(pandas.DataFrame({"x": [1]})) == "a DataFrame"
