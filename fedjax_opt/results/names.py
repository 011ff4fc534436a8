"""Names for people: of choices, hyperparameters and metrics.

Files and flags have identifiers, such as `fed_avg`, `client_lr` and
`test_accuracy`. Pictures, tables and reports say 'FedAvg', 'client learning
rate' and 'Test accuracy (%)'. The names of choices are the labels of their
entries in the registries; an identifier without one becomes plain words.
"""

import numbers
import re
from typing import Any

import numpy as np

from fedjax_opt.checks.fields import checked, instance_of
from fedjax_opt.registry import label_of_entry, label_of_hyperparameter
from fedjax_opt.results.metric_names import is_accuracy

NOTHING = "–"  # Where there is no value.
_VALUE = instance_of(
  (str, numbers.Number, np.generic, type(None)),
  "a value of a hyperparameter, such as 0.1 or 'sgd'",
)
# Names of flags and hyperparameters, or of parts of their names, for which no
# entry of a registry has a label.
_WORDS = {
  "alpha": "α",
  "b1": "β₁",
  "b2": "β₂",
  "beta": "β",
  "client_decay": "decay of the clients' rate",
  "cohort_size": "clients per round",
  "delta": "δ",
  "dp_max_norm": "clipping norm",
  "dp_noise_multiplier": "noise multiplier",
  "eps": "ε",
  "eta_0": "η₀",
  "eval_every": "rounds between evaluations",
  "exact_control": "exact control variates",
  "f_min": "lower bound of the loss",
  "gamma": "γ",
  "l2": "L2 strength",
  "lam": "λ",
  "learning_rate": "learning rate",
  "lr": "learning rate",
  "max_step": "largest step size",
  "max_update_norm": "largest update",
  "mu": "μ",
  "mu_l": "μₗ",
  "mu_s": "μₛ",
  "normalized": "normalized ascent",
  "num_clients": "number of clients",
  "practical": "practical form",
  "reuse_gradients": "reused gradients",
  "rho": "ρ",
  "shared_steps": "share of steps of shared leaves",
  "streams": "version of the random streams",
  "theta_0": "θ₀",
  "zeta": "ζ",
}
# Metrics with their unit, if plain words of the identifier do not say it.
_METRIC_NAMES = {
  "train_loss": "Training loss",
  "train_accuracy": "Training accuracy (%)",
  "regularized_train_loss": "Regularized training loss",
  "optimality_gap": "Gap to the optimum",
  "f1": "F1",
  "grad_norm_sq": "Squared gradient norm",
  "gradient_evaluations": "Gradient evaluations of a client",
  "time": "Simulated time (s)",
}
# Metrics over clients, and the examples that they were measured on.
_OVER_CLIENTS = re.compile(
  "(train_|client_test_|)(?:worst_decile_accuracy|accuracy_decile_(.*))"
)
_MEASURED_ON = {
  "train_": "Training accuracy",
  "client_test_": "Client test accuracy",
  "": "Accuracy",
}


def name_of(identifier: str) -> str:
  """The name of a choice or a hyperparameter, for people.

  Args:
    identifier: such as 'fed_avg', 'delta_sgd', 'dirichlet', 'client_lr' or a
      task's name.

  Returns:
    'FedAvg', 'Δ-SGD', 'Dirichlet', 'client learning rate': the label of the
    registry's entry, or else the words of the identifier.
  """
  label = label_of_entry(identifier) or _of_hyperparameter(identifier)
  if label is not None:
    return label
  side, _, rest = identifier.partition("_")
  if side in ("client", "server") and (label := _of_hyperparameter(rest)):
    return f"{side} {label}"
  return " ".join(_WORDS.get(word, word) for word in identifier.split("_"))


def _of_hyperparameter(name: str) -> str | None:
  return _WORDS.get(name) or label_of_hyperparameter(name)


def shown_name(label: str) -> str:
  """The name of a method or condition whose label may be an identifier."""
  return name_of(label) if label.isidentifier() else label


def value_of(value: Any) -> str:
  """The value of a hyperparameter, for people: 0.1, 3e-5, ∞, Δ-SGD."""
  if value is None:
    return NOTHING
  if isinstance(value, bool | np.bool_):
    return "yes" if value else "no"
  if isinstance(value, float | np.floating):
    return format_number(float(value))
  return name_of(value) if isinstance(value, str) else str(value)


@checked(value=_VALUE)
def format_value(value: Any) -> str:
  """The value in plain text, as in files and terminals: 0.1, 3e-05, sgd."""
  return f"{value:g}" if isinstance(value, float | np.floating) else str(value)


def format_number(value: float) -> str:
  """A short decimal number: 0.1, 0.001, 3e-5, 2e6, ∞."""
  if np.isinf(value):
    return "∞" if value > 0 else "-∞"
  size = abs(value)
  if size and (size < 1e-3 or size >= 1e6):
    mantissa, exponent = f"{value:.3e}".split("e")
    return f"{float(mantissa):g}e{int(exponent)}"
  return f"{value:.4g}" if size < 1000 else f"{value:.7g}"


def metric_name(metric: str) -> str:
  """The name of a metric with its unit, for an axis or a column."""
  if metric in _METRIC_NAMES:
    return _METRIC_NAMES[metric]
  if match := _OVER_CLIENTS.fullmatch(metric):
    examples, decile = match.groups()
    whom = f"decile {decile}" if decile else "worst 10 %"
    return f"{_MEASURED_ON[examples]}, {whom} of clients (%)"
  unit = " (%)" if is_accuracy(metric) else ""
  return capitalized(metric.replace("_", " ")) + unit


def capitalized(text: str) -> str:
  """The text with a capital letter, unless it begins with a symbol."""
  is_word = text[:2].isascii() and text[:2].isalpha()
  return text[:1].upper() + text[1:] if is_word else text
