"""Readers of files, given random bytes: one line that says what is wrong."""

import json
import os
import pathlib
import sqlite3
import tempfile

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from experiments.single_run import resuming
from fedjax_opt import Population, load_run
from fedjax_opt.data import npz_files
from fedjax_opt.data.clients import ClientData
from fedjax_opt.datasets import femnist
from fedjax_opt.results import folder_digests
from fedjax_opt.results.model_file import encoded, read_model
from tests.helpers.refusals import refusal

_METRICS = "point,round,client_lr,seed,train_loss\n0,0,0.1,0,2.5\n0,5,0.1,0,\n"
_SUMMARY = {
  "config": {"rounds": 5},
  "points": [{"hyperparameters": {"seed": 0}, "final": {"train_loss": 1}}],
  "selected": 0,
}
settings = hypothesis.settings(max_examples=60, deadline=None, derandomize=True)


@st.composite
def damage(draw):
  """`(content) -> bytes`: some bytes replaced, removed or added, or all."""
  kind = draw(st.sampled_from(["replaced", "cut", "added", "other"]))
  at = draw(st.floats(0, 1))
  new = draw(st.binary(min_size=1, max_size=40))

  def damaged(content):
    start = int(at * len(content))
    return {
      "replaced": content[:start] + new + content[start + len(new) :],
      "cut": content[:start],
      "added": content[:start] + new + content[start:],
      "other": new,
    }[kind]

  return damaged


def check(read, path, content):
  """Reads a file with this content: it can, or says in one line why not."""
  path.write_bytes(content)
  try:
    read()
  except ValueError as error:
    assert len(str(error).splitlines()) == 1  # noqa: PT017


def run_folder(folder):
  (folder / "config.json").write_text('{"rounds": 5}')
  (folder / "metrics.csv").write_text(_METRICS)
  (folder / "summary.json").write_text(json.dumps(_SUMMARY))
  (folder / "params.safetensors").write_bytes(
    encoded({"a": {"b": np.ones(3)}}, {"p": 1})
  )
  folder_digests.add(folder)  # Of none, so that the other readers are reached.
  return folder


def npz(folder):
  data = {"x": np.ones((4, 2), np.float32), "y": np.arange(4)}
  np.savez_compressed(folder / "a.npz", **data, client_ids=np.arange(4))


def tff(folder):
  with sqlite3.connect(folder / femnist.TFF_FILE[: -len(".lzma")]) as file:
    file.execute("CREATE TABLE client_metadata (client_id, split_name)")
    file.execute(
      "CREATE TABLE examples (split_name, client_id, serialized_example_proto)"
    )
    for split in ("all_train", "all_test"):
      file.execute("INSERT INTO client_metadata VALUES ('w', ?)", (split,))
      file.execute("INSERT INTO examples VALUES (?, 'w', ?)", (split, b"\x0a"))
  file.close()


def population(folder):
  client = {"x": np.ones((2, 3), np.float32)}
  Population.write(folder / "p", [client, client])


_READERS = {
  "npz": (npz, "a.npz", lambda d: ClientData.from_npz(d / "a.npz", 9)),
  "npz names": (npz, "a.npz", lambda d: npz_files.names(d / "a.npz")),
  "femnist": (tff, "emnist_all.sqlite", femnist.load),
  "population": (
    population, "p/population.npz", lambda d: Population.open(d / "p")
  ),
  "digests": (run_folder, "digests.json", load_run),
  "config": (run_folder, "config.json", load_run),
  "config to resume": (run_folder, "config.json", resuming._config_of),
  "metrics": (run_folder, "metrics.csv", load_run),
  "summary": (run_folder, "summary.json", load_run),
  "model": (
    run_folder,
    "params.safetensors",
    lambda d: read_model(d / "params.safetensors"),
  ),
}  # fmt: skip


@pytest.mark.parametrize("name", _READERS)
def test_random_bytes(name):
  make, file, read = _READERS[name]

  @settings
  @hypothesis.given(damage())
  def of_damage(damaged):
    check(lambda: read(folder), path, damaged(content))

  with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    make(folder)
    path = folder / file
    content = path.read_bytes()
    of_damage()


_JSON = st.recursive(
  st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
  lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
  max_leaves=8,
)


@settings
@hypothesis.given(_JSON, st.sampled_from(["config", "summary", "point"]))
@pytest.mark.slow
def test_other_json(value, place):
  summary = _SUMMARY | {"points": value} if place == "point" else value
  name = "config" if place == "config" else "summary"
  with tempfile.TemporaryDirectory() as folder:
    folder = run_folder(pathlib.Path(folder))
    path = folder / f"{name}.json"
    content = json.dumps(value if place == "config" else summary).encode()
    check(lambda: load_run(folder), path, content)
    check(lambda: repr(load_run(folder)), path, content)
    if place == "config":
      check(lambda: resuming._config_of(folder), path, content)


@pytest.mark.parametrize("name", ["config.json", "summary.json"])
def test_json_that_is_nested_deeply(tmp_path, name):
  path = run_folder(tmp_path) / name
  path.write_text("[" * 200_000)
  message = refusal(load_run, tmp_path)
  assert "it is nested too deeply" in message
  assert name in message
  if name == "config.json":
    message = refusal(resuming._config_of, tmp_path)
    assert "cannot be read; give the folder" in message


@pytest.mark.parametrize("name", ["metrics.csv", "params.safetensors"])
def test_a_pipe_is_no_file_of_a_run(tmp_path, name):
  """It would be read until somebody writes."""
  path = run_folder(tmp_path) / name
  (tmp_path / "digests.json").unlink(missing_ok=True)
  path.unlink()
  os.mkfifo(path)
  message = refusal(load_run, tmp_path)
  assert f"{name}: cannot be read (it is no fi" in message


def test_a_model_whose_leaf_holds_others(tmp_path):
  import safetensors.numpy

  arrays = {"a": np.ones(1), "a/b": np.ones(1)}
  safetensors.numpy.save_file(arrays, tmp_path / "m")
  with pytest.raises(ValueError, match="is a leaf, and holds others"):
    read_model(tmp_path / "m")
