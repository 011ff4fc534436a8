"""Files of flags."""

import os

import pytest

from experiments.command_line import parser
from tests.refusals import refusal


def test_files_in_place_of_their_names(tmp_path):
  inner, outer = tmp_path / "inner.flags", tmp_path / "outer.flags"
  inner.write_text("--rounds=3\n\n  --seed=1  \n")
  outer.write_text(f"# one\n// two\n--flagfile={inner}\n--seed=2\n")
  given = ["--a=1", f"--flagfile={outer}", "--flagfile", str(inner), "x"]
  assert parser.expanded(given) == [
    *("--a=1", "--rounds=3", "--seed=1", "--seed=2"),
    *("--rounds=3", "--seed=1", "x"),
  ]


@pytest.mark.parametrize(
  "name", ["experiments/domo/cifar100.flags", "domo/cifar100.flags"]
)
def test_presets_are_found_in_every_folder(tmp_path, monkeypatch, name):
  monkeypatch.chdir(tmp_path)
  flags = parser.expanded([f"--flagfile={name}"])
  # Those of the files that it names are among them.
  assert not any("flagfile" in flag for flag in flags)
  assert {"--task=cifar100_vgg16"} < set(flags)
  # A file of one's own comes first.
  (tmp_path / "experiments" / "domo").mkdir(parents=True)
  own = tmp_path / "experiments" / "domo" / "cifar100.flags"
  own.write_text("--rounds=1")
  flags = parser.expanded(["--flagfile=experiments/domo/cifar100.flags"])
  assert flags == ["--rounds=1"]


@pytest.mark.parametrize(
  ("content", "message"),
  [
    (None, "flagfile='{path}': cannot be read (No such file or directory); "
     "must be a file with a flag on each line"),
    (b"\xff\xfe\x00", "flagfile='{path}': cannot be read (not a text); must be "
     "a file with a flag on each line"),
    (b"--seed=1\n" * 200_000, "flagfile='{path}': cannot be read (it has more "
     "than 1 MB); must be a file with a flag on each line"),
    (b"--flagfile={path}", "flagfile='{path}': names itself"),
    (b"--flagfile=", "flagfile: must be a file with a flag on each line"),
    (b"--flagfile", "flagfile: must be a file with a flag on each line"),
  ],
)  # fmt: skip
def test_bad_files(tmp_path, content, message):
  path = tmp_path / "some.flags"
  if content is not None:
    path.write_bytes(content.replace(b"{path}", str(path).encode()))
  assert refusal(parser.expanded, [f"--flagfile={path}"]) == message.replace(
    "{path}", str(path)
  )


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_never_ends(tmp_path, kind):
  path = tmp_path / "some.flags"
  if kind == "pipe":
    os.mkfifo(path)
  else:
    path.symlink_to("/dev/zero")
  said = refusal(parser.expanded, [f"--flagfile={path}"])
  assert said.startswith(f"flagfile='{path}': cannot be read (it is no file)")
