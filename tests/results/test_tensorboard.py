"""TensorBoard events, read back from their files."""

import builtins
import pathlib
import struct

import pytest

from fedjax_opt.results import tensorboard, writers
from fedjax_opt.results.selection import Criterion
from tests.results.histories import two_points

POINTS = ({"client_lr": 0.1, "seed": 0}, {"client_lr": 1.0, "seed": 0})


class TestTensorBoard:
  @pytest.mark.parametrize("live", [True, False])
  def test_one_sub_run_for_each_point(self, tmp_path, monkeypatch, live):
    pytest.importorskip("tensorboardX")
    monkeypatch.setattr(tensorboard, "_MAX_OPEN", 64 if live else 1)
    writer = writers.RunWriter(tmp_path, {}, POINTS)
    writer.write(two_points())
    assert (tmp_path / "tensorboard").exists() == live
    writer.finish(two_points(), Criterion())
    assert "TensorBoard" not in writer.closing_line()
    runs = sorted(p.name for p in (tmp_path / "tensorboard").iterdir())
    assert runs == ["0,client_lr=0.1", "1,client_lr=1"]
    first = scalars(tmp_path / "tensorboard" / runs[0])
    assert first["test_accuracy"] == [
      (10, pytest.approx(1 / 3)),
      (20, pytest.approx(2 / 3)),
    ]
    # Nothing after the divergence.
    second = scalars(tmp_path / "tensorboard" / runs[1])
    assert second["test_accuracy"] == [(10, 0.25)]

  def test_absent_without_tensorboardx(self, tmp_path, monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
      if name == "tensorboardX":
        raise ImportError(name)
      return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    writer = writers.RunWriter(tmp_path, {}, POINTS)
    summary = writer.finish(two_points(), Criterion())
    assert summary["tensorboard"] is None
    assert not (tmp_path / "tensorboard").exists()
    assert "pip install 'fedjax_opt[tensorboard]'" in writer.closing_line()


def scalars(folder: pathlib.Path) -> dict[str, list[tuple[int, float]]]:
  """Reads an event file: records of length, checksum, event, checksum."""
  from tensorboardX.proto import event_pb2

  (path,) = folder.iterdir()
  content, at = path.read_bytes(), 0
  found: dict[str, list[tuple[int, float]]] = {}
  while at < len(content):
    (length,) = struct.unpack_from("<Q", content, at)
    event = event_pb2.Event.FromString(content[at + 12 : at + 12 + length])
    at += 12 + length + 4
    for value in event.summary.value:
      found.setdefault(value.tag, []).append((event.step, value.simple_value))
  return found
