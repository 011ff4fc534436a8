"""The notebooks as they are committed; build.py --quick executes them."""

import importlib.util
import pathlib
import re
import subprocess
import sys
import types

import nbformat
import pytest

FOLDER = pathlib.Path(__file__).parents[2] / "notebooks"
NAMES = sorted(path.stem for path in FOLDER.glob("*.ipynb"))


@pytest.fixture(scope="module")
def build():
  spec = importlib.util.spec_from_file_location("build", FOLDER / "build.py")
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  return module


def test_every_text_has_a_notebook_and_the_other_way_round(build):
  assert [text.stem for text in build.sources()] == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_was_made_from_its_text_and_executed(build, name):
  assert not build.unpaired(FOLDER / f"{name}.py")
  notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
  assert not build.faults(notebook, name)
  counts = [c.execution_count for c in notebook.cells if c.cell_type == "code"]
  assert counts == list(range(1, len(counts) + 1))
  assert notebook.metadata == build.METADATA


def test_a_quick_check_sets_sizes_that_the_notebook_has(build):
  assert set(build.QUICK) == {name[:2] for name in NAMES}
  for text in build.sources():
    sizes = build.from_text(text).cells[2].source
    names = re.findall(r"[a-z_]{5,}", build.QUICK[text.stem[:2]])
    assert names
    assert [name for name in names if name not in sizes] == []


@pytest.fixture
def install(build, tmp_path, monkeypatch):
  """`install(status) -> what pip was asked to install`, in an empty folder."""
  monkeypatch.chdir(tmp_path)
  monkeypatch.delenv("FEDJAX_OPT_SOURCE", raising=False)
  monkeypatch.delitem(sys.modules, "google.colab", raising=False)

  def install(status=0):
    requirements = []

    def run(command):
      requirements.append(command[-1])
      return types.SimpleNamespace(returncode=status)

    monkeypatch.setattr(subprocess, "run", run)
    exec(build.INSTALL, {})
    return requirements

  return install


def test_nothing_is_installed_where_the_package_is(install):
  assert install() == []


def test_a_wheel_beside_the_notebook_is_installed(install, monkeypatch):
  pathlib.Path("fedjax_opt-0.1.0-py3-none-any.whl").touch()
  monkeypatch.setitem(sys.modules, "google.colab", types.ModuleType("colab"))
  assert install() == ["./fedjax_opt-0.1.0-py3-none-any.whl[run]"]
  monkeypatch.setenv("FEDJAX_OPT_SOURCE", "folder[run]")
  assert install() == ["folder[run]"]


def test_colab_installs_the_repository_or_says_what_to_do(
  build, install, monkeypatch
):
  monkeypatch.setitem(sys.modules, "google.colab", types.ModuleType("colab"))
  address = f"https://github.com/{build.REPOSITORY}"
  assert install() == [f"fedjax_opt[run] @ git+{address}"]
  with pytest.raises(SystemExit, match="pip wheel --no-deps") as stop:
    install(status=1)
  assert f"As long as {address} is not public" in str(stop.value)
