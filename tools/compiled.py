"""What a compiled program does, by its text."""

import re

# Operations of optimized HLO that a GPU starts as a kernel of their own.
_KERNEL = re.compile(
  r" (fusion|custom-call|copy|dot|convolution|sort|reduce|scatter|gather)\("
)
_EXCHANGE = re.compile(
  r" (all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter"
  r"|send|recv)(?:-start)?\("
)
_BODY = re.compile(r"body=%?([\w.\-]+)")
_HEAD = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) .*\{$")


def loops(text: str) -> list[int]:
  """The kernels of the loops of a compiled program.

  Returns:
    The most that the body of a loop starts, without those of loops inside: of
    the outer loops, then of those inside them, and so on.
  """
  lines = _lines_of_bodies(text)
  inside = {
    name: [b for line in body for b in _BODY.findall(line)]
    for name, body in lines.items()
  }
  inner = {body for bodies in inside.values() for body in bodies}
  found, level = [], [name for name in lines if name not in inner]
  while level:
    starts = lambda name: sum(
      bool(_KERNEL.search(line)) for line in lines[name]
    )
    found.append(max(map(starts, level)))
    level = [body for name in level for body in inside[name]]
  return found


def _lines_of_bodies(text):
  """{name: lines} of the computations that are the body of a loop."""
  bodies, lines, name = set(_BODY.findall(text)), {}, None
  for line in text.splitlines():
    head = _HEAD.match(line)
    if head:
      name = head.group(1)
    elif name in bodies:
      lines.setdefault(name, []).append(line)
  return lines


def exchanges(text: str) -> dict[str, int]:
  """How many operations of a program exchange arrays between devices."""
  found = _EXCHANGE.findall(text)
  return {name: found.count(name) for name in sorted(set(found))}
