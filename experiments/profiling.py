"""A trace of what the device and the host do between two evaluations."""

import pathlib
import sys

import jax


class Profile:
  """Traces the rounds between the first two evaluations of a run.

  All is compiled by then.
  """

  def __init__(self, output_dir: pathlib.Path):
    """Begins nothing yet.

    Args:
      output_dir: of the run; the trace is in its folder 'profile'.
    """
    self._folder = output_dir / "profile"
    self._evaluations = 0
    self._is_running = False

  def at_evaluation(self) -> None:
    """Begins at the first evaluation, and ends at the second."""
    self._evaluations += 1
    if self._evaluations == 1:
      options = jax.profiler.ProfileOptions()
      options.python_tracer_level = 0  # It would be most of the file.
      jax.profiler.start_trace(
        self._folder, create_perfetto_trace=True, profiler_options=options
      )
      self._is_running = True
    else:
      self.close()

  def close(self) -> None:
    """Ends, if it goes on, and writes what was traced."""
    if not self._is_running:
      return
    self._is_running = False
    jax.profiler.stop_trace()
    # Of a run that was resumed the folder has several, named by the time.
    trace = max(self._folder.rglob("perfetto_trace.json.gz"))
    print(
      f"profile: {trace}, for https://ui.perfetto.dev; the folder profile is "
      "for TensorBoard's profiler",
      file=sys.stderr,
    )
