"""Checkpoints: a run that was killed can be resumed, bit for bit."""

import io
import json
import os
import pathlib
import re
import shutil
import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from fedjax_opt.base import State
from fedjax_opt.engine import processes


class Saved(NamedTuple):
  """What a checkpoint holds."""

  round: int  # rounds done
  state: State  # of the server, and what all clients keep
  record: dict[str, np.ndarray]  # what was measured until then


class Checkpoints:
  """The checkpoints of one run.

  The newest two are kept. One that a kill left half-written is ignored with a
  warning, and the one before it is used. They are written by orbax.

  >>> checkpoints = Checkpoints("runs/one/checkpoints", every=50)
  >>> simulate(algorithm, params, data, rounds=1000, checkpoints=checkpoints)

  and, after the run was killed, the same with `resume=True`. With a larger
  `rounds` a run that has ended is extended: an evaluation of its last round
  that the longer run would not have is forgotten, so that it has the bits of a
  run that was never stopped, unless the algorithm depends on `rounds`.
  """

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
        such as flags and versions; values that JSON has.

    Raises:
      ValueError: if `every` is not positive; with `resume`, if there is no
        checkpoint or it is of another run; without, if there is one.
    """
    if every is not None and every < 1:
      raise ValueError(f"checkpoint_every={every}: must be at least 1")
    self.every = every
    self._folder = pathlib.Path(folder).absolute()
    self._identity = json.loads(json.dumps(dict(identity or {})))
    self._resume = resume
    steps = _steps(self._folder)
    self._check_no_other_run()
    if resume and not steps:
      raise ValueError(
        f"resume=True: {str(self._folder)!r} holds no checkpoint to go on from"
      )
    for step in steps:
      about = self._about(step)
      if about is not None:
        self._check_identity(about["identity"])
        break

  @staticmethod
  def are_in(folder: str | os.PathLike) -> bool:
    """Whether a folder holds any that were finished."""
    return bool(_steps(pathlib.Path(folder)))

  def is_due(self, round: int) -> bool:
    """Whether a checkpoint is to be saved after so many rounds."""
    return self.every is not None and round % self.every == 0

  def save(
    self, round: int, state: State, record: Mapping[str, np.ndarray]
  ) -> None:
    """Writes a checkpoint, and deletes all but the newest two.

    Raises:
      OSError: if it cannot be written; those before it stay.
    """
    import orbax.checkpoint as ocp

    buffer = io.BytesIO()
    np.savez(buffer, **record)
    blob = np.frombuffer(buffer.getvalue(), np.uint8)
    about = {"identity": self._identity, "shapes": _shapes(state)}
    try:
      with self._manager() as manager:
        manager.save(
          round,
          args=ocp.args.Composite(
            state=ocp.args.StandardSave(state),
            # As bytes: neither orbax nor JAX then changes a type.
            record=ocp.args.StandardSave({"npz": blob}),
            about=ocp.args.JsonSave(about),
          ),
          force=True,
        )
    except Exception as error:
      for name in _names(self._folder):
        if name.split(".")[0] == str(round):
          shutil.rmtree(self._folder / name, ignore_errors=True)
      raise OSError(
        f"checkpoint of round {round} in {str(self._folder)!r} cannot be "
        f"written ({_reason(error)})"
      ) from error

  def load(self, state: State) -> Saved | None:
    """The newest checkpoint that can be read, or None if none is asked for.

    Newer ones, which cannot be read, are deleted.

    Args:
      state: of the structure and shapes that the run begins with.

    Raises:
      CheckpointError: if none can be read, or it is of another algorithm or
        model.
    """
    self._check_no_other_run()
    if not self._resume:
      return None
    self._warn_of_unfinished()
    for step in _steps(self._folder):
      try:
        saved = self._restore(step, state)
      except _OtherRun as error:
        raise CheckpointError(
          f"resume=True: {str(self._folder)!r} is of another algorithm or "
          f"model: {error}"
        ) from None
      except Exception as error:
        warnings.warn(
          f"checkpoint of round {step} in {str(self._folder)!r} cannot be read "
          f"({_reason(error)}); ignored",
          stacklevel=2,
        )
      else:
        self._delete_newer(step)
        return saved
    raise CheckpointError(
      f"resume=True: no checkpoint in {str(self._folder)!r} can be read"
    )

  def _restore(self, step: int, state: State) -> Saved:
    """Reads one checkpoint.

    Raises:
      _OtherRun: if its state has other shapes.
      Exception: of any type, if it cannot be read.
    """
    import orbax.checkpoint as ocp

    about = self._about(step)
    if about is None:
      raise OSError("not readable")
    shapes = _shapes(state)
    if about["shapes"] != shapes:
      raise _OtherRun(difference(about["shapes"], shapes))
    # NumPy arrays, which are on the host, are restored as NumPy arrays.
    target = jax.tree.map(
      lambda leaf: (
        leaf
        if isinstance(leaf, np.ndarray)
        else jax.ShapeDtypeStruct(np.shape(leaf), leaf.dtype)
      ),
      state,
    )
    with self._manager() as manager:
      found = manager.restore(
        step,
        args=ocp.args.Composite(
          state=ocp.args.StandardRestore(target),
          record=ocp.args.StandardRestore(),
        ),
      )
    blob = np.asarray(found["record"]["npz"]).tobytes()
    with np.load(io.BytesIO(blob)) as arrays:
      return Saved(step, found["state"], dict(arrays))

  def _warn_of_unfinished(self) -> None:
    for name in _names(self._folder):
      if name.isdecimal():
        continue
      warnings.warn(
        f"{str(self._folder / name)!r} is a checkpoint that was not written to "
        "its end; ignored",
        stacklevel=3,
      )

  def _delete_newer(self, step: int) -> None:
    """Deletes those after this one: new ones will have their names."""
    for newer in _steps(self._folder):
      if newer > step and processes.is_first_process():
        shutil.rmtree(self._folder / str(newer))

  def _manager(self):
    import orbax.checkpoint as ocp

    # Of several processes the first one writes and all read; none waits for
    # another.
    index = jax.process_index()
    alone = ocp.options.MultiprocessingOptions(
      primary_host=index,
      active_processes={index},
      barrier_sync_key_prefix=f"process_{index}",
    )
    is_one_of_several = jax.process_count() > 1
    return ocp.CheckpointManager(
      self._folder,
      options=ocp.CheckpointManagerOptions(
        max_to_keep=2,
        create=not is_one_of_several,
        enable_async_checkpointing=False,
        **({"multiprocessing_options": alone} if is_one_of_several else {}),
      ),
    )

  def _about(self, step: int) -> dict[str, Any] | None:
    """What the checkpoint is of, or None if that cannot be read."""
    try:
      path = self._folder / str(step) / "about" / "metadata"
      about = json.loads(path.read_text())
      return about if {"identity", "shapes"} <= set(about) else None
    except (OSError, ValueError, TypeError):
      return None

  def _check_no_other_run(self) -> None:
    """Raises ValueError if there are checkpoints that are not to be resumed."""
    if not self._resume and _steps(self._folder):
      raise ValueError(
        f"resume=False: {str(self._folder)!r} holds checkpoints of a run; give "
        "resume=True to go on with it, or another folder"
      )

  def _check_identity(self, saved: Mapping[str, Any]) -> None:
    if saved != self._identity:
      raise ValueError(
        f"resume=True: {str(self._folder)!r} is of a run with "
        f"{difference(saved, self._identity)}; give the flags and versions of "
        "that run, or another folder"
      )


def _names(folder: pathlib.Path) -> list[str]:
  return os.listdir(folder) if folder.is_dir() else []


def _steps(folder: pathlib.Path) -> list[int]:
  """Rounds of the checkpoints that were finished, the newest first."""
  return sorted(map(int, filter(str.isdecimal, _names(folder))), reverse=True)


class CheckpointError(ValueError):
  """There are checkpoints, but none that the run can be resumed from."""


class _OtherRun(Exception):
  """The checkpoint is whole, but not of this run."""


def difference(saved: Mapping[str, Any], given: Mapping[str, Any]) -> str:
  """What differs, by name, such as 'batch_size=32, not 64'; five at most."""
  names = [n for n in {**saved, **given} if saved.get(n) != given.get(n)]
  return ", ".join(
    f"{name}={saved.get(name)}, not {given.get(name)}" for name in names[:5]
  )


def _shapes(state: State) -> dict[str, str]:
  leaves = jax.tree_util.tree_leaves_with_path(state)
  return {
    jax.tree_util.keystr(path): f"{leaf.dtype}{list(np.shape(leaf))}"
    for path, leaf in leaves
  }


def _reason(error: Exception) -> str:
  """The error of a library, in one short line."""
  if isinstance(error, OSError) and error.strerror:
    return error.strerror
  known = re.search(r"No space left on device|File too large", str(error))
  lines = str(error).strip().splitlines() or [type(error).__name__]
  return known[0] if known else lines[0][:200]
