"""Whether runs that are compared ran on the same data."""

from collections.abc import Iterable, Mapping
from typing import Any

from fedjax_opt.data import digest


def check_same_data(
  where: str, found: Iterable[tuple[Any, str, Mapping[str, Any]]], hint: str
) -> None:
  """Checks that all that must have the same data has them.

  Args:
    where: the flag and the condition, for the message.
    found: for each run what it shares with those that must have its data; what
      it is; and the digests of its data.
    hint: what can be done, for the message.

  Raises:
    ValueError: naming two whose data differ.
  """
  first: dict[str, tuple[str, Mapping[str, Any]]] = {}
  for shared, whose, digests in found:
    other, expected = first.setdefault(str(shared), (whose, digests))
    if words := digest.changed(expected, digests):
      raise ValueError(f"{where}: {whose} has {words} than {other}; {hint}")
