"""Which programs XLA compiles."""

import contextlib

import jax


@contextlib.contextmanager
def compilations():
  """A list that gets the name of each program that is compiled meanwhile."""
  names = []

  def note(event, duration, fun_name="", **_):
    if event == "/jax/core/compile/backend_compile_duration":
      names.append(fun_name)

  jax.monitoring.register_event_duration_secs_listener(note)
  try:
    yield names
  finally:
    jax.monitoring.unregister_event_duration_listener(note)
