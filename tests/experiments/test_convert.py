"""The converter: it writes the clients that a run has."""

import os
from unittest.mock import Mock

import numpy as np
import pytest

from experiments import convert, run
from experiments.tasks import clients_on_disk
from fedjax_opt import Population
from tests.helpers.commands import call, prepare, table
from tests.helpers.refusals import refusal

SMALL = (
  "--task=digits_logistic",
  "--num_clients=7",
  "--alpha=0.5",
  "--examples_per_client=10-30",
  "--seed=3",
)


def check_same(population, data):
  """That a folder holds these clients."""
  np.testing.assert_array_equal(population.sizes, data.sizes)
  for m in range(data.num_clients):
    rows = data.indices[m, : data.sizes[m]]
    for name, values in population.client(m).items():
      np.testing.assert_array_equal(values, data.examples[name][rows])
      assert values.dtype == data.examples[name].dtype


def test_the_clients_are_those_of_the_run(tmp_path, capsys):
  folder = tmp_path / "new" / "clients"
  # A run's other flags do not matter.
  arguments = (*SMALL, "--rounds=3", f"--population_dir={folder}")
  assert call(*arguments, program=convert) == 0
  out, err = capsys.readouterr()
  assert err == ""
  population = Population.open(folder)
  num_bytes = sum(path.stat().st_size for path in folder.iterdir())
  assert out == (
    f"wrote 7 clients, {population.num_examples} examples, {num_bytes:,} "
    f"bytes: {folder}\n"
  )
  prepared = prepare(*SMALL, "--batch_size=5", "--cohort_size=2")
  check_same(population, prepared.clients[3])
  # All of its clients take part, if they are fewer than usual.
  flags = (f"--population_dir={folder}", "--client=sgd", "--client_lr=0.1")
  job_on_disk = prepare("--task=digits_logistic", *flags, "--batch_size=5")
  assert job_on_disk.options["cohort_size"] == 7
  assert population.fields["x"] == (np.uint8, (8, 8, 1))


def test_validation_examples_of_methods_for_own_models(tmp_path, monkeypatch):
  """They are held out as those of other methods, since the mark says so."""
  sizes_and_marks = []
  for name in ("fed_avg", "ditto"):
    flags = (f"--algorithm={name}", f"--population_dir={tmp_path / name}")
    assert call(*SMALL, *flags, "--client=sgd", program=convert) == 0
    sizes = Population.open(tmp_path / name).sizes.tolist()
    sizes_and_marks.append((sizes, clients_on_disk.notes_of(tmp_path / name)))
  assert sizes_and_marks[0] == sizes_and_marks[1]
  mark = {n: v for n, v in sizes_and_marks[1][1].items() if n != "validation"}
  monkeypatch.setattr(clients_on_disk, "notes_of", lambda folder: mark)
  flags = ("--task=digits_logistic", f"--population_dir={tmp_path / name}")
  assert "other validation examples were held out" in refusal(prepare, *flags)


def test_clients_that_come_with_the_task(tmp_path):
  flag = f"--population_dir={tmp_path}"
  assert call("--task=nonconvex", flag, program=convert) == 0
  data = prepare("--task=nonconvex").clients[0]
  check_same(Population.open(tmp_path), data)


NOT_EMPTY = "--population_dir={folder!r}: is not empty (it has 'mine.txt')"


@pytest.mark.parametrize(
  ("arguments", "message"), [("", NOT_EMPTY), *table("convert")]
)
def test_what_cannot_be_is_one_line(tmp_path, error_of, arguments, message):
  folder = tmp_path / "clients"
  if not arguments:
    folder.mkdir()
    (folder / "mine.txt").touch()
  flags = (f"--population_dir={folder}", *arguments.split())
  line = error_of(*SMALL, *flags, program=convert)
  assert line.startswith(message.format(folder=str(folder)))
  assert os.listdir(tmp_path) == (["clients"] if folder.exists() else [])
  assert not list(folder.glob("*.bin"))


def test_ctrl_c_leaves_nothing(tmp_path, capsys, monkeypatch):
  monkeypatch.setattr(os, "replace", Mock(side_effect=KeyboardInterrupt))
  folder = tmp_path / "clients"
  arguments = (*SMALL, f"--population_dir={folder}")
  assert call(*arguments, program=convert) == 130
  assert capsys.readouterr().out.startswith("interrupted: the same comm")
  assert not folder.exists()


def test_after_a_kill_the_same_command_writes_all(tmp_path):
  folder = tmp_path / "clients"
  arguments = (*SMALL, f"--population_dir={folder}")
  folder.mkdir()
  (folder / "validation.json.tmp").write_text("{")
  assert call(*arguments, program=convert) == 0
  before = {path.name: path.read_bytes() for path in folder.iterdir()}
  (folder / "population.npz").rename(folder / "population.npz.tmp")
  (folder / "y.bin").write_bytes(b"a part")
  assert call(*arguments, program=convert) == 0
  assert {p.name: p.read_bytes() for p in folder.iterdir()} == before
  assert call(*arguments, program=convert) == 1  # Complete: not again.
  (folder / "population.npz").unlink()
  (folder / "mine.txt").touch()
  assert call(*arguments, program=convert) == 1


def test_verify(tmp_path, capsys, error_of):
  folder = tmp_path / "clients"
  flag = f"--population_dir={folder}"
  assert call(*SMALL, flag, program=convert) == 0
  population, before = Population.open(folder), sorted(os.listdir(folder))
  capsys.readouterr()
  assert call("--verify", flag, program=convert) == 0
  assert capsys.readouterr().out == (
    f"undamaged: 7 clients, {population.num_examples} examples: {folder}\n"
  )
  assert sorted(os.listdir(folder)) == before
  path = folder / "x.bin"
  content = path.read_bytes()
  path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
  assert error_of("--verify", flag, program=convert) == (
    f"{str(path)!r} is damaged: it does not hold what was written of client 6; "
    "write the population again"
  )
  path.write_bytes(content)
  path = folder / "y.bin"  # A label that is none of the task's.
  content = path.read_bytes()
  path.write_bytes(content[:-1] + b"\1")
  assert error_of(SMALL[0], flag).startswith(f"{str(path)!r} is damaged")
  path.write_bytes(content)
  mark = folder / "validation.json"
  mark.write_text(mark.read_text().replace("0.1", "0.3"))
  for command in (("--verify", flag), (flag, "--rounds=0", *SMALL[:1])):
    program = convert if "--verify" in command else run
    assert error_of(*command, program=program) == (
      f"{str(mark)!r} is damaged: it does not hold what was written; write the "
      "population again"
    )
  line = error_of("--verify", program=convert)
  assert line.startswith("--population_dir: must be given")
  line = error_of("--verify", flag, "--num_clients=7", program=convert)
  assert line.startswith("--num_clients=7: --verify reads a folder as it is")
