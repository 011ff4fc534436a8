"""What is refused: always one line, and before anything is compiled."""

import contextlib
import dataclasses
import functools
import pathlib
import tempfile

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedjax_opt as fo
from tests.helpers import linear
from tests.helpers.compilations import compilations
from tests.helpers.tables_of_calls import read_cases

# Programs of single operations, which bring an array to the device.
_TRIVIAL = {"jit(stage)", "jit(convert_element_type)"}


def refusal(
  call, *args, kind=(ValueError, TypeError, ImportError), **kwargs
) -> str:
  """The one line that a call is refused with."""
  with pytest.raises(kind) as error:
    call(*args, **kwargs)
  assert "\n" not in str(error.value)
  return str(error.value)


def check(call, line):
  """That a call is refused in one line, before anything is compiled.

  Args:
    call: without arguments.
    line: type of the error, and its line; how it begins, if that ends with
      "...".
  """
  raises = pytest.raises((ValueError, TypeError, ImportError))
  with compilations() as programs, raises as error:
    call()
  text = str(error.value)
  actual = f"{error.type.__name__}: {text}"
  beginning = line.removesuffix("...")
  assert actual.startswith(beginning) if beginning != line else actual == line
  assert "\n" not in text
  assert len(text) <= 250
  assert _TRIVIAL.issuperset(programs)


def of_file(read, name, text):
  """What a function makes of a file of this name that has this text."""
  with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
    pathlib.Path(name).write_text(text)
    return read(name)


def of_table(file, *functions, **values):
  """A test of each row of a table in checks/refusals/.

  A row is a call, and below it what `check` is given of it.

  Args:
    file: of the table.
    *functions: functions and modules that its calls name, besides all of
      linear.py.
    **values: others that they name.
  """
  modules = (dataclasses, functools, fo, jax, np, optax)
  names = {"fo": fo, "jnp": jnp, "np": np} | vars(linear) | values
  names |= {f.__name__.rpartition(".")[2]: f for f in (*modules, *functions)}
  rows = read_cases(f"checks/refusals/{file}")

  @pytest.mark.parametrize(("call", "line"), rows)
  def test(call, line):
    check(lambda: eval(call, dict(names)), line)

  return test
