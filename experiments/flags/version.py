"""What `--version` prints."""

from fedjax_opt.results import environment


def answer(word: str | None = None, intro: str = "") -> str:
  """The versions of fedjax_opt and jax, and the device that runs use."""
  del word, intro
  versions, device = environment.versions(), environment.device()
  return (
    f"fedjax_opt {versions['fedjax_opt']}, jax {versions['jax']}, device "
    f"{device['kind']} ({device['count']} on {device['platform']})"
  )
