"""docs/optax_rules.md says what is: every row is made anew."""

import importlib.util
import pathlib

import pytest

FILE = pathlib.Path(__file__).parents[2] / "docs" / "optax_rules.py"
_SPEC = importlib.util.spec_from_file_location("optax_rules", FILE)
optax_rules = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(optax_rules)

WRITTEN = optax_rules.TABLE.read_text()
FACTORIES = optax_rules.factories()
PARTS = 8  # They run side by side.

pytestmark = [
  pytest.mark.skipif(
    not WRITTEN.startswith(optax_rules.head().splitlines()[0]),
    reason="the table is that of another version of optax",
  ),
  pytest.mark.filterwarnings("ignore"),
]


def written_lines():
  return WRITTEN.removeprefix(optax_rules.head()).splitlines()


def test_all_factories_are_there():
  names = [line.split("`")[1] for line in written_lines()]
  assert names == list(FACTORIES)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_rows(part):
  """If it fails: `python docs/optax_rules.py`, and look at what changed."""
  lines = dict(zip(FACTORIES, written_lines(), strict=True))
  for name in list(FACTORIES)[part::PARTS]:
    row = optax_rules.try_rule(name, FACTORIES[name])
    assert optax_rules.line(row) == lines[name]


def test_what_the_extra_arguments_are_for():
  """Each has a rule that works at a client because of it."""
  because = {
    "value": "optax.polyak_sgd",
    "value_fn": "optax.lbfgs",
    "grad_fn": "optax.contrib.sam, opaque_mode=True",
    "obj_fn": "optax.contrib.sophia",
  }
  lines = dict(zip(FACTORIES, written_lines(), strict=True))
  for name in because.values():
    assert lines[name].startswith(f"| `{name}` | yes | no |")
