"""The parts of each client's own examples: to train, to test and to choose."""

from typing import NamedTuple

from fedjax_opt.checks.errors import reworded_errors
from fedjax_opt.data.clients import ClientData

# Parts of each client's examples; the second, of those that the first leaves.
CLIENT_TEST_FRACTION, VALIDATION_FRACTION = 0.2, 0.1


class ExampleParts(NamedTuple):
  """The parts of each client's examples.

  Attributes:
    train: what the clients train on; None for clients that never train.
    test: held-out examples on which models are measured, or None.
    validation: held-out examples on which settings are chosen, or None.
  """

  train: ClientData | None
  test: ClientData | None = None
  validation: ClientData | None = None

  @classmethod
  def of(
    cls, data: ClientData, seed: int, *fractions: tuple[str, float | None]
  ) -> "ExampleParts":
    """Holds out parts of each client's examples, each part from the rest.

    Args:
      data: the clients.
      seed: the seed of the draws.
      *fractions: pairs (name in an error, fraction) for `test`, then for
        `validation`; the fraction is None or 0 for no such part.

    Raises:
      ValueError: if the clients have too few examples.
    """
    parts: list[ClientData | None] = []
    for name, fraction in fractions:
      parts.append(None)
      if fraction:
        with reworded_errors(fraction=name):
          data, parts[-1] = data.split(fraction, seed)
    return cls(data, *parts)
