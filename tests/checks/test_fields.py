"""Descriptions of arguments, and what is made of them."""

import ast
import functools
import inspect
import math
import os
import pathlib
from collections.abc import Callable
from typing import Any, Literal

import jax
import numpy as np
import optax
import pytest
import scipy.sparse

import fedjax_opt as fo
from experiments.specification.choice_flags import CLIENT, parse_numbers
from fedjax_opt import checks, models
from fedjax_opt.checks import errors, fields, functions, rules
from fedjax_opt.checks.values import (
  brief,
  check_in_interval,
  check_switch,
  check_tree,
)
from fedjax_opt.data import partition
from tests.helpers import linear, refusals
from tests.helpers.public_names import FACTORIES


def rates(flag, text):
  return parse_numbers(CLIENT.parameters("sgd")[flag].field, text, flag)


NUMBERS = (-math.inf, -1.0, 0.0, 0.5, 1.0, 2.0, math.inf, math.nan)


def test_checks_know_nothing_of_the_rest():
  for path in pathlib.Path(checks.__file__).parent.glob("*.py"):
    for node in ast.walk(ast.parse(path.read_text())):
      module = getattr(node, "module", None) or ""
      assert not module.startswith("fedjax_opt") or module.startswith(
        "fedjax_opt.checks"
      )


def test_factories_say_what_their_arguments_may_be():
  assert len(FACTORIES) > 100
  assert "fed_prox mu" in FACTORIES
  assert fo.domo.checked_fields["mu_l"].optional
  assert not fo.fed_prox.checked_fields["mu"].optional


def test_a_function_has_as_many_arguments_as_its_annotation():
  for annotation, calls in {
    Callable[[], int]: (lambda: 1, lambda x=0: x, lambda x: x, 3),
    Callable[[int], int]: (lambda x: x, abs, lambda: 1, lambda x, y: x),
  }.items():

    def f(call):
      pass

    f.__annotations__["call"] = annotation
    field = fields.fields_of(f)["call"]
    for call in calls[:2]:
      field.check("call", call)
    for call in calls[2:]:
      with pytest.raises(TypeError, match=r"must be a function \(x?\)"):
        field.check("call", call)


def test_annotations_may_be_texts():
  def step(rate: "float | None", clients: "Unknown" = None):  # noqa: F821
    pass

  assert not fields.fields_of(step)
  step.__annotations__.pop("clients")
  assert fields.fields_of(step)["rate"].optional


def _is_in(value, interval):
  low, high = map(float, interval[1:-1].split(","))
  inside = low < value < high
  return inside or any(
    value == end and bracket in "[]"
    for end, bracket in ((low, interval[0]), (high, interval[-1]))
  )


def line_of(factory, argument, value):
  """The line, if it is for this value; other arguments are missing."""
  try:
    factory(**{argument: value})
  except (ValueError, TypeError) as error:
    line = str(error)
  else:
    return ""
  assert "\n" not in line
  return line if line.startswith((f"{argument}=", f"{argument}: ")) else ""


def test_numbers_outside_of_the_interval_are_refused():
  """Before anything else is looked at."""
  for factory, argument, field in FACTORIES.values():
    for value in NUMBERS if isinstance(field, fields.Scalar) else ():
      line = line_of(factory, argument, value)
      assert bool(line) != _is_in(value, field.interval), (argument, value)
      assert line.startswith(f"{argument}={value:g}: must be " * bool(line))


RULE = "must be an optimizer, such as optax.sgd(0.1)"
OF_ROUND = ", or a function from the round to one"
# Checker of a field -> values of another type, and the end of the line.
WRONG = {
  check_switch: ((1, "yes", None), "must be True or False"),
  rules.check_optimizer: (("adam",), f"{RULE}; write optax.adam(...)"),
  rules.check_client_rule: (
    ("sgd",),
    f"{RULE}{OF_ROUND}; write optax.sgd(...)",
  ),
  rules.check_rate: (("0.1", None), "must be a number"),
  check_in_interval: (("1", [1.0], True), "must be a number"),
  fields.LOSS.accepts: (
    (3, "x"),
    "must be a function (params, batch, rng) -> ",
  ),
}


def test_values_of_another_type_are_refused():
  checkers = set()
  for factory, argument, field in FACTORIES.values():
    checker = getattr(field.accepts, "func", field.accepts)
    bad, words = WRONG.get(checker, ((), ""))
    for value in bad:
      if value is not None or not field.optional:
        line = line_of(factory, argument, value)
        assert line.startswith(f"{argument}={value!r}: {words}")
        checkers.add(checker)
  assert checkers == set(WRONG)


def test_an_unknown_argument_is_left_to_python():
  with pytest.raises(TypeError, match="unexpected keyword argument 'rate'"):
    fo.local_sgd(linear.loss_fn, rate=0.1)
  with pytest.raises(TypeError, match="missing 1 required positional"):
    fo.local_sgd(linear.loss_fn)
  assert list(inspect.signature(fo.local_sgd).parameters) == [
    "loss_fn",
    "learning_rate",
  ]


@fields.checked(
  cohorts=fields.array("[T, 2]", of_integers=True, interval="[0, 3)"),
  rates=fields.array("[T]"),
  examples=fields.POOL,
)
def every_kind(
  seed: fields.Seed = 0,
  cohorts: Any = None,
  rates: Any = None,
  examples: Any = None,
  direction: Literal["max", "min"] | None = None,
  folder: str | os.PathLike | None = None,
  label: str = "",
):
  return "accepted"


@pytest.mark.parametrize(
  "accepted",
  [
    {"seed": 1 << 40},
    {"cohorts": [[0, 2]]},
    {"cohorts": np.zeros((0, 2))},
    {"rates": [1, 0.5, math.nan]},
    {"examples": {"x": np.zeros((2, 3)), "y": [0, 1]}},
    {"direction": "min"},
    {"direction": None, "folder": None},
    {"folder": pathlib.Path("runs")},
  ],
)
def test_every_kind_accepts(accepted):
  assert every_kind(**accepted) == "accepted"


def test_a_module_is_imported():
  assert errors.imported("math", "Counting", "") is math


def _read(error):
  with errors.while_reading("a.txt", "give another", KeyError):
    raise error


def _measured(name):
  evaluate = lambda params, data, test: {name: 1.0}
  functions.checked_metrics(evaluate, linear.PARAMS, linear.DATA, None)


def _deleted():
  array = jax.device_put(np.zeros(2, np.float32))  # Nothing is compiled.
  array.delete()
  return array


def in_pool(value):
  fo.ClientData({"x": value}, np.zeros((1, 2), int), np.ones(1, int))


KEY = jax.random.key(0)  # Compiles, so before anything is counted.
SPARSE = scipy.sparse.eye(2)
MASKED = np.ma.masked_array(np.ones(2), [0, 1])


test_is_refused = refusals.of_table(
  "fields.txt", checks, models, errors, check_tree, partition, rates,
  every_kind, _read, _measured, _deleted, in_pool, KEY=KEY, SPARSE=SPARSE,
  MASKED=MASKED,
)  # fmt: skip


@pytest.mark.parametrize(
  ("value", "text"),
  [
    ("a" * 80, "'" + "a" * 59 + "..."),
    (np.ones((2, 3), np.float32), "an array float32[2, 3]"),
    (optax.sgd(0.1), "an optimizer"),
    (functools.partial(optax.sgd, 0.1), "a partial of optax.sgd"),
    (dict, "the class dict"),
    (fo.fed_avg, "the function fedjax_opt.fed_avg"),
    (math.gcd, "the function gcd"),
    (list(range(61)), "a list of 61"),
    ([np.ones((9, 9))], "a list"),
    (object(), "an object"),
    ([1, "a"], "[1, 'a']"),
  ],
)
def test_how_values_are_shown(value, text):
  assert brief(value) == text
