"""What the tests of figures share."""

import pytest

pytest.importorskip("matplotlib")


@pytest.fixture
def figure(monkeypatch):
  """The last figure that was written, for a look at its lines."""
  from matplotlib.figure import Figure

  written = []
  savefig = Figure.savefig

  def keep(self, *args, **kwargs):
    written.append(self)
    return savefig(self, *args, **kwargs)

  monkeypatch.setattr(Figure, "savefig", keep)
  return lambda: written[-1]
