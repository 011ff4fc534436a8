"""The figures and theorems of the composite optimization paper."""

from experiments.artefacts.base import Artefact
from experiments.fco import averaging, real_data, regression, theorems

_ALL = (
  *regression.ARTEFACTS,
  *averaging.ARTEFACTS,
  *real_data.ARTEFACTS,
  *theorems.ARTEFACTS,
)


def _order(artefact: Artefact) -> tuple[bool, int, str]:
  """Figures by their number, then all else."""
  name = artefact.name.split("/")[1]
  number = name.removeprefix("figure")
  is_figure = number.isdigit()
  return not is_figure, int(number) if is_figure else 0, name


ARTEFACTS = tuple(sorted(_ALL, key=_order))
