"""Metrics, costs, options and settings in words, for sentences and tables."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from fedjax_opt.checks import memory
from fedjax_opt.checks.values import listed
from fedjax_opt.results.metric_names import TIME
from fedjax_opt.results.names import (
  NOTHING,
  metric_name,
  name_of,
  value_of,
)

# Beginning of a metric's name -> the examples that it is measured on.
_MEASURED_ON = {
  "client_test_": "examples that each client holds out",
  "client_validation_": "the clients' own validation examples",
  "train_": "the clients' training examples",
  "validation_": "the validation examples",
  "test_": "the test examples",
}
# Several numbers, as flags have them: 0.1,1e-3; and not one number: 12,345.
_NUMBER_LIST = re.compile(r"(?!\d{1,3}(,\d{3})+$)[\d.e+-]+(,[\d.e+-]+)+")
# Texts that look like a number, a switch or nothing.
_LIKE_OTHERS = re.compile(rf"-?([\d.]+(e-?\d+)?|∞)|yes|no|{NOTHING}")
# Types of options of which a sentence shows the value.
_SHOWN = (bool, int, float, str, list, tuple)
# The most methods that a sentence names.
_MAX_NAMES = 8


def metric_words(metric: str) -> str:
  """A metric inside of a sentence: 'test accuracy'."""
  name = metric_name(metric).removesuffix(" (%)")
  return name[:1].lower() + name[1:] if name[1:2].islower() else name


def on_examples(metric: str) -> str:
  """A metric and where it is measured: 'accuracy on the test examples'."""
  begin = "regularized_" if metric.startswith("regularized_") else ""
  name = metric.removeprefix(begin)
  for part, examples in _MEASURED_ON.items():
    if name.startswith(part):
      short_name = metric_words(begin + name.removeprefix(part))
      return f"{short_name} on {examples}"
  return metric_words(metric)


def quoted_if_list(label: str) -> str:
  """A label inside of a sentence: in quotation marks if it has a comma."""
  return f"“{label}”" if re.search("[,;:]| and ", label) else label


def unique(names: Iterable[str], form: str = "{} ({})") -> list[str]:
  """The names; one that occurred before gets a number."""
  distinct: list[str] = []
  for name in names:
    text, copy = name, 1
    while text in distinct:
      copy += 1
      text = form.format(name, copy)
    distinct.append(text)
  return distinct


def names_or_count(names: Sequence[str]) -> str:
  """Methods by name, or their number if there are many."""
  is_many = len(names) > _MAX_NAMES
  return f"{len(names)} methods" if is_many else listed(names)


def counted(number: int, word: str) -> str:
  """'1 seed', '2 seeds'."""
  return f"{number} {word}" + "s" * (number != 1)


def span(numbers: Iterable[int]) -> str:
  """'3', or '3 to 5' if the values differ; '–' for none."""
  values = sorted(set(numbers))
  ends = dict.fromkeys(f"{value:,}" for value in (*values[:1], *values[-1:]))
  return " to ".join(ends) or NOTHING


def p_value(value: float) -> str:
  """A p-value: 0.031, < 0.001."""
  if not np.isfinite(value):
    return NOTHING
  return "< 0.001" if value < 0.001 else f"{value:#.2g}".rstrip(".")


def seconds(value: float) -> str:
  """A time: 4.2 s, 3 min 20 s, 1 h 5 min."""
  if not np.isfinite(value):
    return NOTHING
  if value < 59.95:
    return f"{value:.1f} s"
  total = round(value)
  if total < 3600:
    return f"{total // 60} min {total % 60} s"
  return f"{total // 3600} h {total % 3600 // 60} min"


def cost(name: str, value: float | None) -> str:
  """A cost of `COSTS`: 37.5, 3 min 20 s, 1.24 MB, 12,400."""
  if value is None or not np.isfinite(value):
    return NOTHING
  if name == TIME:
    return seconds(value)
  if name == "bytes":
    digits = "#.3g" if value >= 1000 else ".3g"  # 3.00 beside 6.01.
    return memory.size_text(value, digits).replace(". ", " ")
  is_whole = value >= 1000 or float(value).is_integer()
  return f"{value:,.0f}" if is_whole else f"{value:.1f}"


def condition_label(condition: Mapping[str, Any]) -> str:
  """A condition for people, such as 'α = 0.1, local steps = 4'."""
  return ", ".join(
    f"{name_of(n)} = {all_digits(v)}" for n, v in condition.items()
  )


def setting_label(hyperparameters: Mapping[str, Any]) -> str:
  """A setting for people, such as 'client learning rate 0.1'."""
  parts = [f"{name_of(n)} {all_digits(v)}" for n, v in hyperparameters.items()]
  return ", ".join(parts)


def differing_options(
  options: Mapping[str, Mapping[str, Any]],
) -> dict[str, str]:
  """Name -> the sentence on an option, of those in which methods differ.

  Args:
    options: method -> name -> value; functions and other objects, which a
      sentence cannot show, are a method's own.
  """
  sentences = {}
  for name in dict.fromkeys(n for values in options.values() for n in values):
    methods: dict[Any, list[str]] = {}
    for method, values in options.items():
      value = values.get(name)
      is_shown = value is None or type(value) in _SHOWN
      key = value_of(value) if is_shown else id(value)
      methods.setdefault(key, []).append(quoted_if_list(method))
    parts = [
      f"{key if isinstance(key, str) else 'its own'} for {listed(labels)}"
      for key, labels in methods.items()
    ]
    if len(parts) > 1:
      sentences[name] = (
        f"Methods differ in {name_of(name)}: {'; '.join(parts)}."
      )
  return sentences


def all_digits(value: Any) -> str:
  """A value for people, so that no two look the same: 0.1, yes, “1”.

  It has all its digits. A text that looks like another value is quoted.
  """
  text = value_of(value)
  if isinstance(value, str) and _LIKE_OTHERS.fullmatch(text):
    return f"“{text}”"
  is_float = isinstance(value, float | np.floating) and np.isfinite(value)
  return repr(float(value)) if is_float and float(text) != value else text


def option_text(value: Any) -> str:
  """An option of a study for people; it may be a mapping or a list."""
  if isinstance(value, Mapping):
    return ", ".join(
      f"{name} {option_text(entry)}" for name, entry in value.items()
    )
  if isinstance(value, list | tuple | set | frozenset):
    return ", ".join(map(option_text, value))
  if isinstance(value, str):
    return value.replace(",", ", ") if _NUMBER_LIST.fullmatch(value) else value
  return all_digits(value)
