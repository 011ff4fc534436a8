"""The notebooks as they are committed; build.py --check executes them."""

import importlib.util
import pathlib

import nbformat
import pytest

FOLDER = pathlib.Path(__file__).parent.parent / "notebooks"
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
def test_a_notebook_was_made_from_its_text(build, name):
  assert not build.unpaired(FOLDER / f"{name}.py")


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_is_fit_to_be_read(build, name):
  notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
  assert not build.faults(notebook, name)


@pytest.mark.parametrize("name", NAMES)
def test_every_cell_was_executed_in_turn(build, name):
  notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
  counts = [c.execution_count for c in notebook.cells if c.cell_type == "code"]
  assert counts == list(range(1, len(counts) + 1))
  assert notebook.metadata == build.METADATA
