"""Ways to divide a pool of labelled examples among clients.

Every scheme returns one array of pool rows per client and copies no examples:
`ClientData.from_partition(examples, rows)` is the next step. Every scheme
depends on its arguments and an integer seed alone, and gives every client at
least one example. The schemes are in partition_schemes.py.

  scheme               sizes             each example used     source
  -------------------  ----------------  --------------------  -----------------
  iid                  equal (+-1)       once
  dirichlet            as given          any number of times   Δ-SGD, LDA
  dirichlet_disjoint   vary              once                  Yurochkin et al.
  similarity           equal (+-1)       once                  DOMO
  class_q              equal             at most once          BVR-L-SGD
  shards               nearly equal      once                  McMahan et al.
  size_skew            log-normal        once                  FedProx, appendix
  natural              of the ids        once
"""

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from fedjax_opt import registry
from fedjax_opt.checks.fields import Seed, checked
from fedjax_opt.checks.values import brief, check_choice, check_count
from fedjax_opt.data.partition_schemes import Labels, Rows
from fedjax_opt.data.partition_schemes import class_q as class_q
from fedjax_opt.data.partition_schemes import dirichlet as dirichlet
from fedjax_opt.data.partition_schemes import (
  dirichlet_disjoint as dirichlet_disjoint,
)
from fedjax_opt.data.partition_schemes import iid as iid
from fedjax_opt.data.partition_schemes import natural as natural
from fedjax_opt.data.partition_schemes import shards as shards
from fedjax_opt.data.partition_schemes import similarity as similarity
from fedjax_opt.data.partition_schemes import size_skew as size_skew
from fedjax_opt.registry import Entry


def _sizes(name: str, text: str) -> int | tuple[int, int]:
  """A whole number, or (low, high)."""
  if not re.fullmatch(r"\d+(-\d+)?", text):
    raise ValueError(
      f"{name}={text}: must be a whole number, such as 500, or a range, such "
      "as 100-500"
    )
  low, _, high = text.partition("-")
  return (int(low), int(high)) if high else int(low)


# What the docstrings of the schemes do not say of their arguments.
_FURTHER = {
  "examples_per_client": {
    "help": "examples of each client, or LOW-HIGH, such as 100-500, from which "
    "each is drawn",
    "reads": _sizes,
  },
  "size_sigma": {"label": "σ of log sizes"},
}


# What every scheme takes.
_COMMON = ("labels", "num_clients", "seed", "client_ids")


def _scheme(factory: Callable[..., Rows], label: str | None = None) -> Entry:
  """The entry of a scheme, whose other arguments can be set by name."""
  fields = getattr(factory, "checked_fields", {})
  arguments = {n: _FURTHER.get(n, {}) for n in fields if n not in _COMMON}
  parameters = registry.from_factory(factory, **arguments)
  return Entry(factory, hyperparameters=parameters, label=label)


# Factories take the labels of the examples, or the client of each one as
# `client_ids`.
SCHEMES: dict[str, Entry] = {
  "iid": _scheme(iid, "IID"),
  "dirichlet": _scheme(dirichlet, "Dirichlet"),
  "dirichlet_disjoint": _scheme(dirichlet_disjoint, "disjoint Dirichlet"),
  "similarity": _scheme(similarity),
  "class_q": _scheme(class_q, "class fractions"),
  "shards": _scheme(shards),
  "size_skew": _scheme(size_skew),
  "natural": _scheme(natural, "natural clients"),
}
registry.register(SCHEMES)


@checked()
def split(
  name: str,
  labels: Labels | None,
  num_clients: int | None,
  seed: Seed = 0,
  client_ids: np.ndarray | None = None,
  **parameters: Any,
) -> Rows:
  """Divides a pool by a scheme, given by name.

  Args:
    name: a key of `SCHEMES`.
    labels: [N] non-negative integers.
    num_clients: M. For 'natural': the number of distinct ids, or None.
    seed: of all draws; 'natural' draws nothing.
    client_ids: [N], for 'natural' only.
    **parameters: parameters of the scheme, such as alpha; those left out take
      their defaults in `SCHEMES`.

  Returns:
    M arrays of rows.

  Raises:
    ValueError: if the name is unknown, a parameter belongs to another scheme,
      or a value is out of range.
  """
  check_choice("partition", name, SCHEMES)
  for key, value in parameters.items():
    of = registry.entries_with(SCHEMES, key)
    if name not in of:
      belongs = f"belongs to partition {', '.join(of)}" if of else "unknown"
      raise ValueError(
        f"{key}={brief(value)}: {belongs}, not to partition {name}"
      )
  scheme = SCHEMES[name]
  if not scheme.takes("client_ids"):
    return scheme.factory(labels, num_clients, seed=seed, **parameters)
  if client_ids is None:
    raise ValueError(
      f"partition={name!r}: the data comes without client ids; must be one of "
      f"{', '.join(n for n, o in SCHEMES.items() if not o.takes('client_ids'))}"
    )
  if labels is not None:
    check_count("client_ids", client_ids, len(labels), "examples")
  rows = scheme.factory(client_ids)
  if num_clients not in (None, len(rows)):
    raise ValueError(
      f"num_clients={num_clients}: the data has {len(rows)} natural clients; "
      "leave num_clients out"
    )
  return rows
