"""What is read of the runs of a cell."""

import shlex
import types

from experiments.studies import cell_runs


def test_the_command_of_a_run_can_be_called(tmp_path):
  folder = tmp_path / "a run"
  folder.mkdir()
  (folder / "flags.txt").write_text("# Run.\n--data_dir=my data\n--rounds=2\n")
  command = cell_runs._command(types.SimpleNamespace(folder=folder))
  words = ["--data_dir=my data", "--rounds=2", f"--output_dir={folder}"]
  assert shlex.split(command)[3:] == words
