"""What the name of a metric says: its direction, its range, its cost."""

import math
import re

from fedjax_opt.checks.fields import checked

# The column of simulated seconds, which runs on a schedule have.
TIME = "time"
# Cost of a run -> the columns of a history whose sum it is: bytes and gradients
# so far, of a client of the cohort on average. Rounds are those of the history.
COSTS: dict[str, tuple[str, ...]] = {
  "rounds": (),
  TIME: (TIME,),
  "bytes": ("bytes_down", "bytes_up"),
  "gradient_evaluations": ("gradient_evaluations",),
}
# The columns that are counts.
SPENT = (*COSTS["bytes"], *COSTS["gradient_evaluations"])
# The end of a metric's name says in which direction it improves.
_LARGER_IS_BETTER = ("f1", "precision", "recall", "auc", "r2")
_FROM_0_TO_1 = ("f1", "precision", "recall", "auc", "density")
_SMALLER_IS_BETTER = (
  "loss", "error", "perplexity", "mse", "rmse", "mae", "gap",
)  # fmt: skip

# What a name begins with: whose metric it is, and on which examples.
_BEGINNING = re.compile("^(regularized_|client_)?(?:(train|validation|test)_)?")


@checked()
def direction(name: str) -> str | None:
  """The direction in which a metric improves: 'max', 'min', or None."""
  last_word = name.rsplit("_", 1)[-1]
  is_loss = name.endswith("loss")
  if is_loss or last_word in _SMALLER_IS_BETTER or name == "grad_norm_sq":
    return "min"
  if is_accuracy(name) or last_word in _LARGER_IS_BETTER:
    return "max"
  return None


def check_has_direction(metric: str) -> None:
  """Raises ValueError if a metric's direction of improvement is not known."""
  if direction(metric) is None:
    raise ValueError(
      f"metric={metric!r}: it is not known whether larger or smaller values "
      "are better; its name must have 'accuracy' in it or end in one of "
      f"{', '.join((*_SMALLER_IS_BETTER, *_LARGER_IS_BETTER))}"
    )


@checked()
def is_accuracy(name: str) -> bool:
  """Whether a metric is an accuracy, in [0, 1] and shown in percent."""
  return "accuracy" in name and "inaccuracy" not in name


def split_of(name: str) -> str | None:
  """The examples of a metric: 'train', 'validation', 'test', or None."""
  return _BEGINNING.match(name)[2]


def on_validation(name: str) -> str:
  """The metric of the same kind on validation examples."""
  return _BEGINNING.sub(r"\1validation_", name)


def reported_names(criterion: str) -> tuple[str, str]:
  """The test metrics for a criterion's metric, the one to report first.

  They are its own metric on test examples, and the accuracy, which comes first
  unless the clients' own models are what counts.
  """
  own = criterion.replace("validation_", "test_")
  accuracy = "test_accuracy"
  return (own, accuracy) if own.startswith("client_") else (accuracy, own)


def bounds(name: str) -> tuple[float, float]:
  """The lowest and highest value that a metric can have, by its name."""
  last_word = name.rsplit("_", 1)[-1]
  if is_accuracy(name) or last_word in _FROM_0_TO_1:
    return 0.0, 1.0
  low = 0.0 if last_word in ("mse", "rmse", "mae") else -math.inf
  return low, 1.0 if last_word == "r2" else math.inf
