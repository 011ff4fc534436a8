"""What a run must have to go on with another one, see `Checkpoints`.

Settings and seeds as they are; digests of the data, and of the text of the
programs, which has all that functions of the caller compute.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from fedjax_opt.engine.config import GRID_DEFAULTS, PLAINLY
from fedjax_opt.files import json_files
from fedjax_opt.results.checkpoint import DIGEST

# Of other settings a checkpoint has what programs say of them.
_WRITTEN = str | bool | int | float | np.generic | None
_FUNCTIONS = {
  "start": "initial state of the algorithm",
  "cohorts": "sampler",
  "rounds": "algorithm, or setting that is a function",
  "evaluation": "evaluate",
}


def of_run(
  settings: Mapping[str, Any],
  programs: Mapping[str, jax.stages.Lowered],
  others: Mapping[str, Any],
) -> dict[str, Any]:
  """What tells a run from others, {name: value} of values that JSON has.

  Args:
    settings: those given. Those that decide how rounds are computed, which does
      not change results, are left out.
    programs: by the keys of `_FUNCTIONS`.
    others: what else there is, such as seeds and a digest of the data.
  """
  is_written = lambda x: isinstance(x, _WRITTEN) or type(x) in (list, tuple)
  written = {
    name: value if is_written(value) else "a function"
    for name, value in {**GRID_DEFAULTS, **settings}.items()
    if name not in PLAINLY
  }
  of_text = lambda text: DIGEST + hashlib.sha256(text.encode()).hexdigest()
  digests = {
    _FUNCTIONS[name]: of_text(program.as_text())
    for name, program in programs.items()
  }
  return json_files.plain(written | others | digests)
