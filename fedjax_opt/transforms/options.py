"""The options of a run that change what the server gets, put into effect."""

from collections.abc import Callable, Mapping
from typing import Any

from fedjax_opt.base import Algorithm
from fedjax_opt.transforms.aggregators import with_aggregator
from fedjax_opt.transforms.faults import with_fault
from fedjax_opt.transforms.upload import with_upload

# From the client to the server.
_WRAPPERS = {
  "upload": with_upload,
  "fault": with_fault,
  "aggregator": with_aggregator,
}


def with_options(
  make: Callable[..., Algorithm],
  options: Mapping[str, Any],
  first: Mapping[str, Any],
) -> Callable[..., Algorithm]:
  """A function that makes the algorithm with these options.

  Args:
    make: `(**hyperparameters) -> Algorithm`.
    options: see `RunOptions`; others than `upload`, `fault` and `aggregator`
      have no part in it.
    first: hyperparameters of a point, with which it is tried.

  Raises:
    ValueError: if an option does not fit the algorithm.
    TypeError: if one is of a wrong type.
  """
  arguments = {n: options[n] for n in _WRAPPERS if options.get(n) is not None}
  if not arguments:
    return make

  def wrapped(**point: Any) -> Algorithm:
    algorithm = make(**point)
    for name, value in arguments.items():
      algorithm = _WRAPPERS[name](algorithm, value)
    return algorithm

  wrapped(**first)
  return wrapped
