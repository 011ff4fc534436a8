"""What is refused: always one line."""

import pytest


def refusal(call, *args, kind=(ValueError, TypeError), **kwargs) -> str:
  """The one line that a call is refused with."""
  with pytest.raises(kind) as error:
    call(*args, **kwargs)
  assert "\n" not in str(error.value)
  return str(error.value)
