"""Errors in code and files that callers give, each as one clear line."""

import contextlib
import importlib.util
import os
import pathlib
import re
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import jax

from fedjax_opt.checks.values import check_function

# Errors of functions that ask for the values of traced arrays, and the remedy.
_TRACED = (
  jax.errors.ConcretizationTypeError,
  jax.errors.TracerArrayConversionError,
  jax.errors.TracerIntegerConversionError,
)
TRACED = (
  "it needs the value of a traced array; write jnp.where instead of if, and "
  "jax.numpy instead of float(), int() and NumPy"
)
# The class of what a verb of a cohort returns, in an error of other code.
_REPLY = re.compile(r"\bReply\b")
# The longest message, in characters.
_LONGEST = 240
_PACKAGE = pathlib.Path(__file__).parents[1]


def is_own(error: BaseException, package: pathlib.Path = _PACKAGE) -> bool:
  """Whether a package raised an error, so that it is a clear line already.

  If a library that the package called raised it, the last line of its traceback
  is elsewhere, or calls something.

  Args:
    error: with its traceback.
    package: the folder of the package.
  """
  for frame in traceback.extract_tb(error.__traceback__)[-1:]:
    # Without the source of this package, it is taken for its own.
    is_raise = (frame.line or "raise ").startswith("raise ")
    return is_raise and package in pathlib.Path(frame.filename).parents
  return False


def failed(what: str, error: Exception) -> Exception:
  """The error to raise, in one line, where what the caller gave has failed.

  Args:
    what: the argument and what was done with it, such as "loss_fn: failed".
    error: of any type and length; the caller gives it as the cause.
  """
  kind = TypeError if isinstance(error, TypeError) else ValueError
  words = " ".join(str(error).split()) or "no message"
  line = f"{what}: {type(error).__name__}: {words}"
  if isinstance(error, _TRACED):
    line = f"{what}: {TRACED}"
  elif isinstance(error, TypeError | ValueError) and _REPLY.search(words):
    line = f"{what}: a reply is no tree of arrays; use reply.value"
  return kind(line if len(line) <= _LONGEST else f"{line[: _LONGEST - 3]}...")


@contextlib.contextmanager
def in_one_line(what: str) -> Iterator[None]:
  """A context where errors of a caller's code become one line; see `failed`."""
  try:
    yield
  except Exception as error:
    if is_own(error):
      raise
    raise failed(what, error) from error


def first_line(error: Exception) -> str:
  """The first line of what an error says; its class if it says nothing."""
  lines = str(error).strip().splitlines() or [type(error).__name__]
  return lines[0]


def reason(error: Exception) -> str:
  """Why something cannot be read or written, in one short line."""
  return getattr(error, "strerror", None) or first_line(error)[:200]


@contextlib.contextmanager
def reworded_errors(what: str = "", **named: str) -> Iterator[None]:
  """A context whose ValueErrors begin with `what`, in one line.

  Args:
    what: a flag with its value, or the path of a file.
    **named: what an argument is called instead, wherever the error names it.
  """
  try:
    yield
  except ValueError as error:
    text = str(error)
    for name, alias in named.items():
      text = re.sub(rf"\b{name}(?==|: )", lambda _, new=alias: new, text)
    raise ValueError(": ".join(filter(None, [what, text]))) from None


@contextlib.contextmanager
def while_reading(
  path: str | os.PathLike, remedy: str, *errors: type[Exception]
) -> Iterator[None]:
  """A context in which a failure to read a file is one line that names it.

  Args:
    path: of the file.
    remedy: what to do, such as "download it again".
    *errors: types of errors besides OSError.
  """
  try:
    yield
  except (OSError, *errors) as error:
    name = str(path).replace("\n", "\\n")
    line = f"{name}: cannot be read ({reason(error)}); {remedy}"
    raise ValueError(line) from error


def imported(module: str, what: str, install: str) -> Any:
  """A module of an optional package.

  Args:
    module: its name.
    what: what needs it, such as "reading fMRI data".
    install: the argument for pip, such as "fedjax_opt[fmri]".

  Raises:
    ImportError: if it, or what it imports, is not installed.
  """
  try:
    return importlib.import_module(module)
  except ImportError as error:
    raise ImportError(
      f"{what} needs the package {error.name}: pip install '{install}'"
    ) from error


def check_installed(module: str, what: str, extra: str) -> None:
  """Checks that a module is installed, without importing it, which is slow.

  Args:
    module: its name.
    what: what needs it, such as "pictures need matplotlib".
    extra: the extra of this package that has it.

  Raises:
    ImportError: if it is missing; the message says what to install.
  """
  if importlib.util.find_spec(module) is None:
    raise ImportError(f"{what}: pip install 'fedjax_opt[{extra}]'")


def call_user(
  name: str,
  takes: str,
  function: Callable[..., Any],
  *args: Any,
  where: str = "",
) -> Any:
  """Calls a function of the caller; an error that it raises becomes one line.

  Args:
    name: of the argument that it was given for.
    takes: its form, see `check_function`.
    function: the function.
    *args: what it is called with.
    where: what it was called on, for the message, such as " on a batch".

  Raises:
    TypeError: if it takes other arguments, or raises one.
    ValueError: if it raises another error.
  """
  check_function(name, function, takes)
  with in_one_line(f"{name}: failed{where}"):
    return function(*args)
