"""What a compiled program does, by its text."""

import collections
import itertools
import re

_COMPUTATION = re.compile(
  r"^(?:ENTRY )?%?([\w.\-]+) [^\n]*\{\n(.*?)^\}", re.MULTILINE | re.DOTALL
)
_BODY = re.compile(r"body=%?([\w.\-]+)")
# Operations of optimized HLO that a GPU starts as a kernel of their own.
_KERNEL = re.compile(
  r" (fusion|custom-call|copy|dot|convolution|sort|reduce|scatter|gather)\("
)
_EXCHANGE = re.compile(
  r" (all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter"
  r"|send|recv)(?:-start)?\("
)


def loops(text: str) -> list[int]:
  """The kernels of the loops of a compiled program.

  Returns:
    The most that the body of a loop starts, without those of loops inside: of
    the outer loops, then of those inside them, and so on.
  """
  texts = dict(_COMPUTATION.findall(text))
  inside = {body: _BODY.findall(texts[body]) for body in _BODY.findall(text)}
  counts, level = [], inside.keys() - itertools.chain(*inside.values())
  while level:
    counts.append(max(len(_KERNEL.findall(texts[body])) for body in level))
    level = {inner for body in level for inner in inside[body]}
  return counts


def exchanges(text: str) -> dict[str, int]:
  """How many operations of a program exchange arrays between devices."""
  return dict(sorted(collections.Counter(_EXCHANGE.findall(text)).items()))
