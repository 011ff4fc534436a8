"""Wrong values of some public functions; all are in `wrong_values`."""

import pytest

from tests.tools import wrong_values


@pytest.mark.slow
@pytest.mark.parametrize("names", ["fed_*", "prox.l*"])
def test_ends_in_one_clear_line(names, monkeypatch, tmp_path):
  monkeypatch.chdir(tmp_path)  # And back, from the folder of the table.
  table = wrong_values.run(tmp_path / "table", [names])
  assert table
  assert not wrong_values.unclear(table)


def test_what_is_public_has_examples():
  for name, function in wrong_values.public().items():
    assert wrong_values.arguments(name, function) is not None
