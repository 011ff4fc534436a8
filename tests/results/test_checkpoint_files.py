"""The files of checkpoints: what is in them, damage, and what is of others."""

import errno
import functools
import os
import shutil

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_opt.base import STREAMS
from fedjax_opt.results import checkpoint
from fedjax_opt.results.checkpoint import CheckpointError, Checkpoints
from tests.helpers.file_limits import limited
from tests.helpers.refusals import refusal

STATE = {
  "w": jax.random.normal(jax.random.key(0), 2000),
  "half": jnp.arange(3, dtype=jnp.bfloat16),
  "count": np.array(7, np.int32),
  "key": jax.random.split(jax.random.key(3, impl="rbg"), 2),
}


@pytest.fixture(scope="module")
def saved_twice(tmp_path_factory):
  """The folder of checkpoints of `STATE` in rounds 3 and 6."""
  folder = tmp_path_factory.mktemp("twice")
  for round in (3, 6):
    checkpoints = Checkpoints(folder, 3, resume=round > 3)
    checkpoints.save(round, STATE, {"a": np.arange(2.0)})
  return folder


@pytest.fixture
def twice(saved_twice, tmp_path):
  """A copy of that folder."""
  return shutil.copytree(saved_twice, tmp_path, dirs_exist_ok=True)


def names(folder):
  return sorted(os.listdir(folder))


def load(folder):
  return Checkpoints(folder, 3, resume=True).load(STATE)


def test_all_types_of_leaves_come_back(twice):
  saved = Checkpoints(twice, 3, resume=True).load(jax.eval_shape(lambda: STATE))
  chex.assert_trees_all_equal(saved.state, STATE)
  assert saved.state["key"].dtype == STATE["key"].dtype
  assert saved.record["a"].tolist() == [0, 1]
  assert isinstance(load(twice).state["count"], np.ndarray)


def flip(path):
  content = bytearray(path.read_bytes())
  content[content.index(np.asarray(STATE["w"]).tobytes()) + 300] ^= 1
  path.write_bytes(content)


def drop(path):
  """Takes bytes out of the middle."""
  content = path.read_bytes()
  path.write_bytes(content[:1000] + content[1040:])


DAMAGE = {
  "state/3.npy is not what was written": flip,
  "File is not a zip file": lambda path: os.truncate(path, 500),
  "Invalid argument": drop,
  "No data left in file": lambda path: os.truncate(path, 0),
  "it is of another round": lambda path: shutil.copy(
    path.with_name("3.npz"), path
  ),
}


@pytest.mark.parametrize("reason", DAMAGE)
def test_damage_is_told_and_set_aside(reason, twice):
  DAMAGE[reason](twice / "6.npz")
  checkpoints = Checkpoints(twice, 3, resume=True)
  with pytest.warns(UserWarning, match=r"^checkpoint of round 6 in ") as notes:
    assert checkpoints.load(STATE).round == 3
  (line,) = (str(warning.message) for warning in notes)
  assert line.endswith(f" cannot be read ({reason}); ignored")
  assert names(twice) == ["3.npz", "6.npz.damaged"]
  checkpoints.save(6, STATE, {})
  assert load(twice).round == 6


@pytest.mark.filterwarnings("ignore")
def test_none_that_can_be_read(twice):
  for path in twice.iterdir():
    os.truncate(path, path.stat().st_size // 2)
  message = refusal(load, twice)
  assert message.endswith(f"no checkpoint in {str(twice)!r} can be read")
  assert names(twice) == ["3.npz", "6.npz"]


@pytest.mark.parametrize(
  ("error", "reason"),
  [
    (MemoryError("Unable to allocate 9 GiB"), "Unable to allocate 9 GiB"),
    (OSError(errno.EIO, "Input/output error"), "Input/output error"),
    (ValueError("RESOURCE_EXHAUSTED: Out of memory"), "RESOURCE_EXHAUSTED"),
  ],
)
def test_what_may_pass_costs_no_checkpoint(error, reason, twice, monkeypatch):
  def fail(*args, **kwargs):
    raise error

  checkpoints = Checkpoints(twice, 3, resume=True)
  with monkeypatch.context() as patch:
    patch.setattr(np, "load", fail)
    message = refusal(checkpoints.load, STATE, kind=CheckpointError)
  assert message.startswith(
    f"resume=True: checkpoint of round 6 in {str(twice)!r} cannot be read "
    f"now ({reason}"
  )
  assert message.endswith("; it is kept, so try again once that has passed")
  assert names(twice) == ["3.npz", "6.npz"]
  assert load(twice).round == 6


def test_what_is_of_others_stays(twice):
  """Beside checkpoints, of another process, and under the name of one."""
  (twice / "5.mine").mkdir()
  (twice / "notes.txt").write_text("mine")
  (twice / "latest").symlink_to(twice / "6.npz")
  first, second = (Checkpoints(twice, 3, resume=True) for _ in range(2))
  for checkpoints, rounds in ((first, (9, 12)), (second, (15, 18))):
    for round in rounds:
      checkpoints.save(round, STATE, {})
  (twice / "21.npz").mkdir()
  text = f"checkpoint of round 21 in {str(twice)!r} cannot be written (Is a d"
  assert refusal(second.save, 21, STATE, {}, kind=OSError).startswith(text)
  assert names(twice) == [
    *("12.npz", "15.npz", "18.npz", "21.npz", "5.mine", "9.npz", "latest"),
    "notes.txt",
  ]


@pytest.mark.parametrize(
  ("name", "make", "kind"),
  [
    ("20", "mkdir", "no checkpoint of this version"),  # As earlier ones had.
    ("20.npz", "mkdir", "no checkpoint of this version"),
    ("20.npz", "link", "a link"),
  ],
)
def test_what_is_only_named_as_a_checkpoint(name, make, kind, twice):
  path = twice / name
  path.mkdir() if make == "mkdir" else path.symlink_to(twice / "6.npz")
  assert refusal(load, twice) == (
    f"{str(path)!r} is {kind}, and has the name of a checkpoint; move it to "
    "another folder"
  )
  assert os.path.lexists(path)


def test_one_object_serves_one_run(tmp_path):
  checkpoints = Checkpoints(tmp_path, 3)
  assert checkpoints.load(STATE) is None
  checkpoints.save(3, STATE, {})
  assert "holds checkpoints of a run; give resu" in refusal(
    checkpoints.load, STATE
  )
  assert names(tmp_path) == ["3.npz"]


def test_a_full_disk_leaves_what_was_complete(twice):
  large = {"w": np.random.default_rng(0).normal(size=100_000)}
  checkpoints = Checkpoints(twice, 3, resume=True)
  with limited(50_000):
    text = refusal(checkpoints.save, 9, large, {"a": np.ones(2)}, kind=OSError)
  assert text == (
    f"checkpoint of round 9 in {str(twice)!r} cannot be written (File too "
    "large)"
  )
  assert names(twice) == ["3.npz", "6.npz"]
  assert load(twice).round == 6


def test_what_cannot_be_resumed(tmp_path, monkeypatch):
  empty, folder = tmp_path / "empty", tmp_path / "full"

  assert refusal(Checkpoints, empty, 0) == ("every=0: must be at least 1")
  assert refusal(Checkpoints, empty, 3, resume=True) == (
    f"resume=True: '{empty}' holds no checkpoint to go on from"
  )
  identity = {"lr": 0.1, "versions": {"jax": "1"}}
  Checkpoints(folder, 3, identity=identity).save(3, {"w": jnp.ones(3)}, {})
  assert refusal(Checkpoints, folder, 3) == (
    f"resume=False: '{folder}' holds checkpoints of a run; give resume=True to "
    "go on with it, or another folder"
  )
  resumed = functools.partial(Checkpoints, folder, 3, resume=True)
  assert refusal(resumed, identity=identity | {"lr": 0.2}) == (
    f"resume=True: '{folder}' is of a run with lr=0.1, not 0.2; give what that "
    "run had, or another folder"
  )
  checkpoints = resumed(identity=identity)
  assert refusal(checkpoints.load, {"w": jnp.ones(4)}) == (
    f"resume=True: '{folder}' is of another algorithm or model: "
    "['w']=float32[3], not float32[4]"
  )
  monkeypatch.setattr(checkpoint, "STREAMS", 7)
  assert refusal(resumed, identity=identity) == (
    f"resume=True: '{folder}' is of a run with version {STREAMS} of the random "
    "streams, and this is version 7, which draws other cohorts; give another "
    "folder"
  )
