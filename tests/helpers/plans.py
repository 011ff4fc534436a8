"""Studies that are planned, and not run."""

from experiments.studies import planned_cells, request

FED_AVG, SCAFFOLD = "--method=fed_avg client=sgd", "--method=scaffold"
DELTA = "--method=fed_avg client=delta_sgd"
RATES = "--client_lr=0.1,1"


def asked(*arguments):
  return request.read_request(["compare", *arguments], "intro")


def planned(*arguments):
  return planned_cells.plan(asked(*arguments))


def by_method(cells):
  groups = {}
  for cell in cells:
    groups.setdefault(cell.method, []).append(cell)
  return groups
