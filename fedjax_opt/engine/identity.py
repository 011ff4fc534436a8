"""What must be the same in a run that resumes another one; see `Checkpoints`.

Options and seeds are stored as they are. Of the data, and of the text of the
programs, digests are stored. The text says all that the caller's functions
compute.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

import jax

from fedjax_opt.engine.run_options import GRID_DEFAULTS, PLAIN_EXECUTION
from fedjax_opt.files import json_files
from fedjax_opt.results.checkpoint import SHA256

# A checkpoint has values of these types. For other options, such as functions,
# the digests of the programs stand in.
_STORED = str | bool | int | float | None
_PROGRAM_NAMES = {
  "start": "initial state of the algorithm",
  "cohorts": "sampler",
  "rounds": "algorithm, or option that is a function",
  "evaluation": "evaluate",
}


def of_run(
  options: Mapping[str, Any],
  programs: Mapping[str, jax.stages.Lowered],
  extras: Mapping[str, Any],
) -> dict[str, Any]:
  """What identifies a run: {name: value}, with values that JSON has.

  Args:
    options: those given. Options that only decide how rounds are computed,
      and so do not change results, are left out.
    programs: name of `_PROGRAM_NAMES` -> lowered program.
    extras: all else that identifies it, such as seeds and a digest of the data.
  """
  is_written = lambda x: isinstance(x, _STORED) or type(x) in (list, tuple)
  written = {
    name: value if is_written(value) else "a function"
    for name, value in {**GRID_DEFAULTS, **options}.items()
    if name not in PLAIN_EXECUTION
  }
  text_digest = lambda text: SHA256 + hashlib.sha256(text.encode()).hexdigest()
  digests = {
    _PROGRAM_NAMES[name]: text_digest(program.as_text())
    for name, program in programs.items()
  }
  return json_files.to_json(written | extras | digests)
