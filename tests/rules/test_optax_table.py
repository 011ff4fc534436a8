"""docs/optax_rules.md says what is: every rule is tried anew."""

import re

import optax_rules
import pytest

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
  """Name -> the line of a rule that does not work in both places."""
  lines = WRITTEN.splitlines()
  return {x.split("`")[1]: x for x in lines if x.startswith("| `")}


def written_to_work():
  """The names of the rules that work in both places."""
  names_found = set()
  for sentence in re.findall(r"^From (.*?)\.$", WRITTEN, re.DOTALL | re.M):
    module, *names = re.findall(r"`([^`]+)`", sentence)
    names_found |= {f"{module}.{name}" for name in names}
  return names_found


def test_all_factories_are_there():
  assert not written_to_work() & written_lines().keys()
  assert written_to_work() | written_lines().keys() == FACTORIES.keys()
  assert len(written_to_work()) > 100


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_rows(part):
  """If it fails: `python docs/make/optax_rules.py`; look at what changed."""
  lines = written_lines()
  for name in list(FACTORIES)[part::PARTS]:
    row = optax_rules.try_rule(name, FACTORIES[name])
    assert optax_rules.works(row) == (name in written_to_work()), name
    if not optax_rules.works(row):
      assert optax_rules.line(row) == lines[name]


def test_what_the_extra_arguments_are_for():
  """Each has a rule that works at a client because of it."""
  because = {
    "value": "optax.polyak_sgd",
    "value_fn": "optax.lbfgs",
    "grad_fn": "optax.contrib.sam, opaque_mode=True",
    "obj_fn": "optax.contrib.sophia",
  }
  lines = written_lines()
  for name in because.values():
    assert lines[name].startswith(f"| `{name}` | yes | no |")
