"""How many seeds a study needs, by the spread of a stored study."""

import io
from typing import Any

from experiments.studies.request import Request
from fedjax_opt.checks import memory
from fedjax_opt.files import csv_files
from fedjax_opt.files.folders import user_path
from fedjax_opt.results.names import name_of
from fedjax_opt.study import power
from fedjax_opt.study.report import formats
from fedjax_opt.study.report.study_tables import ReportTable
from fedjax_opt.study.words import condition_label, counted, quoted_if_list

_PAIRS = "pairs.csv"
_MAX_BYTES = 100_000_000
_COLUMNS = {"method", "other", "sd", "seeds"}


def table(request: Request) -> list[str]:
  """A table of the seeds that each pair of methods needs, as lines.

  Args:
    request: `seeds_needed` is the difference, `output_dir` the stored study.

  Raises:
    ValueError: if the folder holds no pairs of methods.
  """
  frame, difference = _pairs(request.output_dir), request.seeds_needed
  # As in the report: pairs without a spread have a p-value too.
  num_pairs = int((frame["seeds"] > 1).sum())
  frame = frame[frame["sd"] > 0].sort_values("sd", ascending=False)
  rows = [_row(row, difference, num_pairs) for row in frame.to_dict("records")]
  of_all = f"a study of {counted(num_pairs, 'pair')}"
  caption = (
    f"Seeds that find a difference of {difference:g} in 80 % of studies (an "
    f"accuracy is a fraction: 0.01 is one point). seeds: in {of_all}, tested "
    f"at 0.05 / {num_pairs}, the first step of Holm's method. alone: in a "
    "study of this pair alone. sd: the standard deviation of the paired "
    "differences, as measured. found: the smallest difference that the stored "
    f"seeds find in {of_all}."
  )
  if num_even := num_pairs - len(rows):
    verb = "has" if num_even == 1 else "have"
    caption += (
      f" {counted(num_even, 'pair')} {verb} the same difference at all seeds, "
      "so no number."
    )
  num_names = len(rows[0]) - len(("sd", "found", "seeds", "alone"))
  *lines, _ = formats.lines(ReportTable(rows, num_names, caption=caption))
  return lines


def _row(
  pair: dict[str, Any], difference: float, num_pairs: int
) -> dict[str, str]:
  names = list(pair)
  condition = {name: pair[name] for name in names[: names.index("method")]}
  sd, num = pair["sd"], int(pair["seeds"])
  detectable = power.smallest_difference(num, sd, num_pairs=num_pairs)
  labels = (quoted_if_list(name_of(pair[n])) for n in ("method", "other"))
  return {
    **({"condition": condition_label(condition)} if condition else {}),
    "pair": " and ".join(labels),
    "sd": f"{sd:.2g}",
    "found": f"{detectable:.2g}",
    "seeds": _seeds(difference, sd, num_pairs),
    "alone": _seeds(difference, sd, 1),
  }


def _seeds(difference: float, sd: float, num_pairs: int) -> str:
  try:
    return str(power.seeds_needed(difference, sd, num_pairs=num_pairs))
  except ValueError:  # This pair swings too much; others may not.
    return f"more than {power.MAX_SEEDS:,}"


def _pairs(folder: str) -> Any:
  """The pairs of a stored study; the differences of some have a spread."""
  path = user_path(folder) / _PAIRS
  if not path.parent.is_dir():
    raise ValueError(
      f"output_dir={folder!r}: does not exist; give the folder of a study"
    )
  if (path.parent / "config.json").exists():
    raise ValueError(
      f"output_dir={folder!r}: is the folder of a run; give that of a study"
    )
  try:
    text = io.StringIO(memory.read_text(path, _MAX_BYTES))
    # Labels may look like numbers, or like NA.
    as_text = dict.fromkeys(("method", "other"), str)
    of_spread = {"keep_default_na": False, "na_values": {"sd": ["", "nan"]}}
    frame = csv_files.parse(text, dtype=as_text, **of_spread)
  except (OSError, ValueError) as error:
    reason = getattr(error, "strerror", None) or error
    raise ValueError(
      f"output_dir={folder!r}: its {_PAIRS} cannot be read ({reason}); give "
      "the folder of a study; that study's command writes the file again"
    ) from None
  if set(frame) >= _COLUMNS and (frame["sd"] > 0).any():
    return frame
  raise ValueError(
    f"output_dir={folder!r}: its {_PAIRS} has no pair of methods whose "
    "differences have a spread; give a study of several methods and seeds"
  )
