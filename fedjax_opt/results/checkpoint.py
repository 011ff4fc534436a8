"""Checkpoints: a run that was killed can be resumed, bit for bit.

A checkpoint is one file, `ROUND.npz`: the leaves of the state, the metrics so
far, and `about`, a JSON text that identifies the run. The file is written under
another name and then renamed, so a kill leaves all of it or nothing. The format
has a CRC-32 of each array. All are checked before any array is used.
"""

import errno
import json
import os
import pathlib
import re
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_opt import multi_process
from fedjax_opt.base import STREAMS, State
from fedjax_opt.checks import errors, fields
from fedjax_opt.data import digest as digest_of_data
from fedjax_opt.files import json_files

# The beginning of the digest of a program in an identity.
SHA256 = "sha256:"
_ABOUT, _STATE, _RECORD = "about", "state/", "record/"  # Names in a file.
_ROUND = "0|[1-9][0-9]*"


class Saved(NamedTuple):
  """What a checkpoint holds."""

  round: int  # rounds done
  state: State  # the server's state, and what all clients keep
  record: dict[str, np.ndarray]  # what was measured until then


class Checkpoints:
  """The checkpoints of one run.

  The newest two are kept. A damaged checkpoint is renamed, with a warning, and
  the checkpoint before it is used. Files that a kill left half-written are
  removed. Nothing else in the folder is changed.

  >>> checkpoints = Checkpoints("runs/one/checkpoints", every=50)
  >>> simulate(algorithm, params, data, rounds=1000, checkpoints=checkpoints)

  After a kill, the same call with `resume=True` continues the run. A larger
  `rounds` extends a finished run. If the longer run would not evaluate the
  former last round, that evaluation is dropped. So the extended run has the
  bits of a run that was never stopped, unless the algorithm depends on `rounds`
  or has secret noise (`privacy.with_privacy`).

  Another algorithm, other data, seeds or options are refused. A resumed run
  ignores its argument `params`. Settings of how it is computed, such as
  `client_chunk` and `grid_map`, may differ.
  """

  @fields.checked(every=fields.integer(1))
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
      every: rounds between checkpoints. None for only one, after the last round
        or where a signal ends the run.
      resume: whether to resume the run from its newest checkpoint.
      identity: {name: value} of all that must be the same in a resumed run,
        such as flags and versions; values that JSON has. None for the
        algorithm, the data, the seeds and the options.

    Raises:
      TypeError: if `every` is no whole number.
      ValueError: if `every` is not positive; with `resume`, if there is no
        checkpoint or it is of another run; without, if there is one; if
        something else has the name of a checkpoint.
    """
    self.every = None if every is None else int(every)
    self._folder = pathlib.Path(folder).absolute()
    self._is_given = identity is not None
    with errors.in_one_line("identity"):
      self._identity = json.loads(json.dumps(dict(identity or {})))
    self._resume = resume
    _check_names(self._folder)
    # Files of other processes are not removed.
    self._own = set(_rounds(self._folder))
    self._check_no_other_run()
    if resume and not self._own:
      raise ValueError(
        f"resume=True: {str(self._folder)!r} holds no checkpoint to go on from"
      )
    self._check_identity()

  def identify(self, identity: Callable[[], Mapping[str, Any]]) -> None:
    """Sets the identity of the run that begins, unless it was given before.

    Args:
      identity: returns {name: value}, of values that JSON has; digests begin
        with `SHA256`.

    Raises:
      ValueError: if the run to resume is another one.
    """
    if not self._is_given:
      self._identity = json.loads(json.dumps(dict(identity())))
      if self._resume:
        self._check_identity()

  @staticmethod
  def are_in(folder: str | os.PathLike) -> bool:
    """Whether a folder has any complete checkpoints."""
    return bool(_rounds(pathlib.Path(folder)))

  def is_due(self, round: int) -> bool:
    """Whether a checkpoint is to be saved after this many rounds."""
    return self.every is not None and round % self.every == 0

  def save(
    self, round: int, state: State, record: Mapping[str, np.ndarray]
  ) -> None:
    """Writes a checkpoint, and removes all but the newest two of this run.

    Raises:
      OSError: if it cannot be written; earlier checkpoints stay.
    """
    header = {
      "identity": self._identity,
      "round": round,
      "shapes": _shapes(state),
      "streams": STREAMS,
    }
    leaves = enumerate(jax.tree.leaves(state))
    arrays = {
      _ABOUT: np.frombuffer(json.dumps(header).encode(), np.uint8),
      **{f"{_STATE}{i}": _on_host(leaf) for i, leaf in leaves},
      **{f"{_RECORD}{name}": values for name, values in record.items()},
    }
    try:
      self._folder.mkdir(parents=True, exist_ok=True)
      with (
        json_files.atomic_write(self._path(round)) as unfinished,
        open(unfinished, "wb") as file,
      ):
        np.savez(file, allow_pickle=False, **arrays)
    except Exception as error:
      raise OSError(
        f"checkpoint of round {round} in {str(self._folder)!r} cannot be "
        f"written ({errors.reason(error)})"
      ) from error
    self._own.add(round)
    for old_round in [r for r in _rounds(self._folder) if r in self._own][2:]:
      self._path(old_round).unlink()

  def load(self, state: State) -> Saved | None:
    """The newest undamaged checkpoint; None if no run is to be resumed.

    Damaged checkpoints that are newer are renamed.

    Args:
      state: of the structure and shapes that the run begins with.

    Raises:
      CheckpointError: if none can be read, if one cannot be read for a reason
        that may pass, or if it is of another algorithm or model.
    """
    self._check_no_other_run()
    if not self._resume:
      return None
    damaged = []
    for round in _rounds(self._folder):
      try:
        arrays = self._read(round)
        header = _about(arrays, round)
        words = what_differs(header["shapes"], _shapes(state))
        saved = None if words else Saved(round, *_restored(arrays, state))
      except Exception as error:
        self._check_damaged(round, error)
        warnings.warn(
          f"checkpoint of round {round} in {str(self._folder)!r} cannot be "
          f"read ({errors.reason(error)}); ignored",
          stacklevel=2,
        )
        damaged.append(self._path(round))
        continue
      if words:
        raise CheckpointError(
          f"resume=True: {str(self._folder)!r} is of another algorithm or "
          f"model: {words}"
        )
      if multi_process.is_first_process():
        for path in damaged:
          os.replace(path, f"{path}.damaged")
        for leftover in _rounds(self._folder, ".npz.tmp"):  # A kill left it.
          self._path(leftover).with_suffix(".npz.tmp").unlink()
      return saved
    raise CheckpointError(
      f"resume=True: no checkpoint in {str(self._folder)!r} can be read"
    )

  def _path(self, round: int) -> pathlib.Path:
    return self._folder / f"{round}.npz"

  def _read(self, round: int) -> dict[str, np.ndarray]:
    """All arrays of a checkpoint, by name; raises errors of any type."""
    with open(self._path(round), "rb") as file, np.load(file) as arrays:
      if name := arrays.zip.testzip():
        raise ValueError(f"{name} is not what was written")
      return dict(arrays)

  def _check_damaged(self, round: int, error: Exception) -> None:
    """Checks that a checkpoint that cannot be read is damaged for good.

    Raises:
      CheckpointError: if a later attempt may read it. The file stays as it is.
    """
    if _may_pass(error):
      raise CheckpointError(
        f"resume=True: checkpoint of round {round} in {str(self._folder)!r} "
        f"cannot be read now ({errors.reason(error)}); it is kept, so try "
        "again once that has passed"
      ) from error

  def _check_no_other_run(self) -> None:
    """Raises ValueError if there are checkpoints that are not to be resumed."""
    if not self._resume and _rounds(self._folder):
      raise ValueError(
        f"resume=False: {str(self._folder)!r} holds checkpoints of a run; give "
        "resume=True to go on with it, or another folder"
      )

  def _check_identity(self) -> None:
    """Checks that the newest readable checkpoint is of this run."""
    for round in _rounds(self._folder):
      try:
        with open(self._path(round), "rb") as file, np.load(file) as arrays:
          header = _about(arrays, round)
        break
      except Exception as error:
        self._check_damaged(round, error)
    else:
      return
    if header["streams"] != STREAMS:
      raise ValueError(
        f"resume=True: {str(self._folder)!r} is of a run with version "
        f"{header['streams']} of the random streams, and this is version "
        f"{STREAMS}, which draws other cohorts; give another folder"
      )
    saved, current = header["identity"], self._identity
    if saved and current and (words := what_differs(saved, current)):
      raise ValueError(
        f"resume=True: {str(self._folder)!r} is of a run with {words}; give "
        "what that run had, or another folder"
      )


class CheckpointError(ValueError):
  """There are checkpoints, but the run cannot be resumed from any of them."""


def what_differs(saved: Mapping[str, Any], given: Mapping[str, Any]) -> str:
  """What differs, by name, such as 'batch_size=32, not 64'; five at most.

  Data are compared only if both sides have digests of them. Programs follow
  from data and options, so they are named only if these agree.

  Returns:
    The words; '' if nothing differs.
  """
  data_key = digest_of_data.DATA_DIGESTS
  names = {name: None for name in (*saved, *given)}
  names.pop(data_key, None)
  pairs = ((name, saved.get(name), given.get(name)) for name in names)
  options, programs = [], []
  for name, old, new in pairs:
    if old == new:
      continue
    if any(str(value).startswith(SHA256) for value in (old, new)):
      programs.append(f"another {name}")
    else:
      options.append(f"{name}={old}, not {new}")
  before, now = (config.get(data_key) for config in (saved, given))
  data_words = digest_of_data.changed(before, now) if before and now else ""
  words = [*filter(None, [data_words]), *options] or programs
  return ", ".join(words[:5])


def _shapes(state: State) -> dict[str, str]:
  leaves = jax.tree_util.tree_leaves_with_path(state)
  return {
    jax.tree_util.keystr(path): f"{leaf.dtype}{list(np.shape(leaf))}"
    for path, leaf in leaves
  }


def _on_host(leaf: Any) -> np.ndarray:
  """A leaf as a NumPy array; of random keys, their data."""
  if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
    leaf = jax.random.key_data(leaf)
  return np.asarray(leaf)


def _about(arrays: Mapping[str, np.ndarray], round: int) -> dict[str, Any]:
  """The record `about` of a checkpoint with these arrays."""
  header = json.loads(arrays[_ABOUT].tobytes())
  if header["round"] != round:
    raise ValueError("it is of another round")
  return header


def _restored(
  arrays: Mapping[str, np.ndarray], state: State
) -> tuple[State, dict[str, np.ndarray]]:
  """The state, and what was measured, from the arrays of a checkpoint.

  Args:
    arrays: by name.
    state: a state of the structure and types that were saved. Leaves that are
      NumPy arrays in it, on the host, are so in the result.
  """

  def restored(array, leaf):
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
      impl = jax.random.key_impl(jnp.empty(0, leaf.dtype))
      return jax.random.wrap_key_data(array, impl=impl)
    array = array.view(leaf.dtype)  # Types unknown to NumPy are bytes in files.
    return array if isinstance(leaf, np.ndarray) else jnp.array(array)

  leaves, structure = jax.tree.flatten(state)
  loaded = [restored(arrays[f"{_STATE}{i}"], x) for i, x in enumerate(leaves)]
  record = {
    name.removeprefix(_RECORD): values
    for name, values in arrays.items()
    if name.startswith(_RECORD)
  }
  return structure.unflatten(loaded), record


def _rounds(folder: pathlib.Path, end: str = ".npz") -> list[int]:
  """Rounds of the checkpoints in a folder, if it is there; newest first."""
  names = os.listdir(folder) if folder.is_dir() else []
  matches = (re.fullmatch(f"({_ROUND}){re.escape(end)}", n) for n in names)
  return sorted((int(match[1]) for match in matches if match), reverse=True)


def _check_names(folder: pathlib.Path) -> None:
  """Checks that everything with the name of a checkpoint is one.

  Raises:
    ValueError: naming what is not a checkpoint. It is left as it is.
  """
  for path in sorted(folder.iterdir()) if folder.is_dir() else ():
    is_file = path.suffix == ".npz" and path.is_file()
    # Earlier versions wrote folders.
    is_named = re.fullmatch(rf"({_ROUND})(\.npz)?", path.name)
    if is_named and (path.is_symlink() or not is_file):
      is_link = path.is_symlink()
      kind = "a link" if is_link else "no checkpoint of this version"
      raise ValueError(
        f"{str(path)!r} is {kind}, and has the name of a checkpoint; move it "
        "to another folder"
      )


# Errors that mean damage: a file is missing, or something else has its name; or
# a file has lost bytes, so that its end says that a part begins before byte 0.
_DAMAGE = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EINVAL)


def _may_pass(error: Exception) -> bool:
  """Whether a file that cannot be read now may be readable later."""
  if isinstance(error, OSError):
    return error.errno not in (None, *_DAMAGE)
  # JAX's word for too little memory on a device.
  return isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error)
