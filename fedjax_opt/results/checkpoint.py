"""Checkpoints: a run that was killed can be resumed, bit for bit."""

import contextlib
import errno
import gc
import json
import logging
import os
import pathlib
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from fedjax_opt import processes
from fedjax_opt.base import STREAMS, State
from fedjax_opt.checks import fields
from fedjax_opt.checks import values as checks
from fedjax_opt.data import digest as digest_of_data
from fedjax_opt.results import checkpoint_folder

# How the digest of a program begins in an identity.
DIGEST = "sha256:"


class Saved(NamedTuple):
  """What a checkpoint holds."""

  round: int  # rounds done
  state: State  # of the server, and what all clients keep
  record: dict[str, np.ndarray]  # what was measured until then


class Checkpoints:
  """The checkpoints of one run.

  The newest two are kept. One that a kill left half-written, or whose content
  is not what was written, is ignored with a warning, and the one before it is
  used; a damaged one is renamed. Each has a digest of every file. States are
  written by orbax. Nothing else in the folder is changed or removed.

  >>> checkpoints = Checkpoints("runs/one/checkpoints", every=50)
  >>> simulate(algorithm, params, data, rounds=1000, checkpoints=checkpoints)

  and, after the run was killed, the same with `resume=True`. With a larger
  `rounds` a run that has ended is extended: an evaluation of its last round
  that the longer run would not have is forgotten, so that it has the bits of a
  run that was never stopped, unless the algorithm depends on `rounds` or has
  secret noise (`privacy.with_privacy`).

  Another algorithm, other data, seeds or settings are refused. The model that a
  resumed run is given does not count, nor how it is computed, such as
  `client_chunk` and `grid_map`.
  """

  @fields.checked(every=fields.whole(1))
  def __init__(
    self,
    folder: str | os.PathLike,
    every: int | None,
    *,
    resume: bool = False,
    identity: Mapping[str, Any] | None = None,
  ):
    """Checks that checkpoints may be in the folder; writes nothing.

    Args:
      folder: of the checkpoints alone.
      every: rounds between checkpoints. None for one only after the last
        round, and where a signal ends the run before it.
      resume: whether to resume the run from its newest checkpoint.
      identity: {name: value} of all that must be the same in a resumed run,
        such as flags and versions; values that JSON has. None for the
        algorithm, the data, the seeds and the settings.

    Raises:
      TypeError: if `every` is no whole number.
      ValueError: if `every` is not positive; with `resume`, if there is no
        checkpoint or it is of another run; without, if there is one; if
        something else has the name of a checkpoint.
    """
    self.every = every
    self._folder = pathlib.Path(folder).absolute()
    self._is_given = identity is not None
    with checks.told_as("identity"):
      self._identity = json.loads(json.dumps(dict(identity or {})))
    self._resume = resume
    checkpoint_folder.check_own(self._folder)
    steps = checkpoint_folder.steps(self._folder)
    # Others, of another process, are not removed.
    self._own = set(steps)
    self._check_no_other_run()
    if resume and not steps:
      raise ValueError(
        f"resume=True: {str(self._folder)!r} holds no checkpoint to go on from"
      )
    self._check_identity()

  def identify(self, identity: Callable[[], Mapping[str, Any]]) -> None:
    """Takes what identifies the run that begins, if that was not given.

    Args:
      identity: returns {name: value}, of values that JSON has; digests begin
        with `DIGEST`.

    Raises:
      ValueError: if the run to resume is another one.
    """
    if not self._is_given:
      self._identity = json.loads(json.dumps(dict(identity())))
      if self._resume:
        self._check_identity()

  @staticmethod
  def are_in(folder: str | os.PathLike) -> bool:
    """Whether a folder holds any that were finished."""
    return bool(checkpoint_folder.steps(pathlib.Path(folder)))

  def is_due(self, round: int) -> bool:
    """Whether a checkpoint is to be saved after so many rounds."""
    return self.every is not None and round % self.every == 0

  def save(
    self, round: int, state: State, record: Mapping[str, np.ndarray]
  ) -> None:
    """Writes a checkpoint, and removes all but the newest two of this run.

    Raises:
      OSError: if it cannot be written; those before it stay.
    """
    about = {
      "identity": self._identity,
      "shapes": _shapes(state),
      "streams": STREAMS,
    }
    try:
      with checkpoint_folder.writing(self._folder, round, about) as path:
        # Orbax keeps 35 kB of memory for each save of arrays of JAX, 13 kB for
        # one of NumPy. Which of them `load` gives follows from its argument.
        state = jax.tree.map(_on_host, state)
        checkpointer, arguments = _orbax()
        with checkpointer:
          checkpointer.save(
            path / checkpoint_folder.STATE, args=arguments.StandardSave(state)
          )
        np.savez(path / checkpoint_folder.RECORD, **record)
    except Exception as error:
      raise OSError(
        f"checkpoint of round {round} in {str(self._folder)!r} cannot be "
        f"written ({_reason(error)})"
      ) from error
    self._own.add(round)
    found = checkpoint_folder.steps(self._folder)
    for step in [step for step in found if step in self._own][2:]:
      checkpoint_folder.remove(self._folder, step)

  def load(self, state: State) -> Saved | None:
    """The newest undamaged checkpoint, or None if none is asked for.

    Newer ones, which are damaged, are renamed.

    Args:
      state: of the structure and shapes that the run begins with.

    Raises:
      CheckpointError: if none can be read, one cannot be read for a reason that
        may pass, or it is of another algorithm or model.
    """
    self._check_no_other_run()
    if not self._resume:
      return None
    for path in checkpoint_folder.left(self._folder):
      warnings.warn(
        f"{str(path)!r} is a checkpoint that was not written to its end; "
        "ignored",
        stacklevel=2,
      )
    steps = checkpoint_folder.steps(self._folder)
    for number, step in enumerate(steps):
      try:
        with _quiet():
          about = checkpoint_folder.checked(self._folder, step)
          other = difference(about["shapes"], _shapes(state))
          saved = None if other else self._restore(step, state)
      except Exception as error:
        self._check_damaged(step, error)
        warnings.warn(
          f"checkpoint of round {step} in {str(self._folder)!r} cannot be read "
          f"({_reason(error)}); ignored",
          stacklevel=2,
        )
        continue
      if other:
        raise CheckpointError(
          f"resume=True: {str(self._folder)!r} is of another algorithm or "
          f"model: {other}"
        )
      if processes.is_first_process():
        for newer in steps[:number]:
          checkpoint_folder.set_aside(self._folder, newer)
      return saved
    raise CheckpointError(
      f"resume=True: no checkpoint in {str(self._folder)!r} can be read"
    )

  def _restore(self, step: int, state: State) -> Saved:
    """Reads one checkpoint; an error may be of any type."""
    path = self._folder / str(step)

    def like(leaf):
      # NumPy arrays, which are on the host, are restored as NumPy arrays.
      if isinstance(leaf, np.ndarray):
        return leaf
      return jax.ShapeDtypeStruct(np.shape(leaf), leaf.dtype)

    target = jax.tree.map(like, state)
    checkpointer, arguments = _orbax()
    with checkpointer:
      found = checkpointer.restore(
        path / checkpoint_folder.STATE, args=arguments.StandardRestore(target)
      )
    with np.load(path / checkpoint_folder.RECORD) as record:
      return Saved(step, found, dict(record))

  def _check_damaged(self, step: int, error: Exception) -> None:
    """Checks that a checkpoint which cannot be read never will be.

    Raises:
      CheckpointError: if another try may read it. It stays as it is.
    """
    if _may_pass(error):
      raise CheckpointError(
        f"resume=True: checkpoint of round {step} in {str(self._folder)!r} "
        f"cannot be read now ({_reason(error)}); it is kept, so try again once "
        "that has passed"
      ) from error

  def _check_no_other_run(self) -> None:
    """Raises ValueError if there are checkpoints that are not to be resumed."""
    if not self._resume and checkpoint_folder.steps(self._folder):
      raise ValueError(
        f"resume=False: {str(self._folder)!r} holds checkpoints of a run; give "
        "resume=True to go on with it, or another folder"
      )

  def _check_identity(self) -> None:
    """Checks that the newest checkpoint which can be read is of this run."""
    for step in checkpoint_folder.steps(self._folder):
      try:
        about = checkpoint_folder.about(self._folder, step)
        break
      except Exception as error:
        self._check_damaged(step, error)
    else:
      return
    if about["streams"] != STREAMS:
      raise ValueError(
        f"resume=True: {str(self._folder)!r} is of a run with streams="
        f"{about['streams']} of random numbers, not {STREAMS}, which would go "
        "on with other cohorts; give another folder"
      )
    saved, given = about["identity"], self._identity
    if saved and given and (other := difference(saved, given)):
      raise ValueError(
        f"resume=True: {str(self._folder)!r} is of a run with {other}; give "
        "what that run had, or another folder"
      )


class CheckpointError(ValueError):
  """There are checkpoints, but none that the run can be resumed from."""


def difference(saved: Mapping[str, Any], given: Mapping[str, Any]) -> str:
  """What differs, by name, such as 'batch_size=32, not 64'; five at most.

  Data are compared where there were digests of them already.

  Returns:
    The words; '' if nothing differs.
  """
  names = {name: None for name in (*saved, *given)}
  names.pop(digest_of_data.NAME, None)
  pairs = ((name, saved.get(name), given.get(name)) for name in names)
  words = [_unlike(*pair) for pair in pairs if pair[1] != pair[2]]
  before, now = (config.get(digest_of_data.NAME) for config in (saved, given))
  other = digest_of_data.difference(before, now) if before and now else ""
  return ", ".join([*filter(None, [other]), *words][:5])


def _unlike(name: str, one: Any, other: Any) -> str:
  if any(str(value).startswith(DIGEST) for value in (one, other)):
    return f"another {name}"
  return f"{name}={one}, not {other}"


def _shapes(state: State) -> dict[str, str]:
  leaves = jax.tree_util.tree_leaves_with_path(state)
  return {
    jax.tree_util.keystr(path): f"{leaf.dtype}{list(np.shape(leaf))}"
    for path, leaf in leaves
  }


def _orbax() -> tuple[Any, Any]:
  """What reads and writes a state, a context manager; and its arguments."""
  import orbax.checkpoint as ocp

  options = {}
  if jax.process_count() > 1:
    # Of several processes the first one writes and all read; none waits for
    # another.
    index = jax.process_index()
    options["multiprocessing_options"] = ocp.options.MultiprocessingOptions(
      primary_host=index,
      active_processes={index},
      barrier_sync_key_prefix=f"process_{index}",
    )
  handler = ocp.StandardCheckpointHandler(**options)
  return ocp.Checkpointer(handler, **options), ocp.args


def _on_host(leaf: Any) -> Any:
  """A NumPy array; random keys stay, as NumPy has none."""
  if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
    return leaf
  return np.asarray(leaf)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
  """Keeps what libraries log of a damaged checkpoint off the terminal."""
  before = logging.root.manager.disable
  logging.disable(logging.CRITICAL)
  try:
    yield
  except Exception:
    gc.collect()  # Tasks that failed are logged as they are freed.
    raise
  finally:
    logging.disable(before)


# What a folder that is there lacks, or has of another kind, is damage.
_DAMAGE = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST)
_PASSING = re.compile(
  r"RESOURCE_EXHAUSTED|UNAVAILABLE|PERMISSION_DENIED|DEADLINE_EXCEEDED|"
  r"[Oo]ut of memory|Cannot allocate|Input/output error|Permission denied|"
  r"Too many open files|Stale (NFS )?file handle|No space left"
)


def _may_pass(error: BaseException | None) -> bool:
  """Whether what cannot be read may be read at another time."""
  while error is not None:
    if isinstance(error, MemoryError) or _PASSING.search(str(error)):
      return True
    if isinstance(error, OSError) and error.errno not in (None, *_DAMAGE):
      return True
    error = error.__cause__ or error.__context__
  return False


def _reason(error: Exception) -> str:
  """The error of a library, in one short line."""
  if isinstance(error, OSError) and error.strerror:
    return error.strerror
  known = re.search("No space left on device|File too large", str(error))
  return known[0] if known else checks.first_line(error)[:200]
