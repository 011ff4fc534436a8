"""The labels of methods: what tells them apart, in a few words."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from experiments.specification import choice_flags
from experiments.specification import spec as specs
from experiments.specification.method import default_client, rules_taken
from experiments.specification.spec import CLIENT_DEFAULT
from fedjax_opt.data import digest
from fedjax_opt.results.load import Run
from fedjax_opt.results.names import name_of

# Flags that choose the parts of a method.
CHOICES = ("algorithm", "client", "server", "regularizer")
# Parts of a config.json that do not depend on the method.
_OF_NO_METHOD = {n for n, flag in specs.FLAGS.items() if not flag.is_identity}
_OF_NO_METHOD |= {"device", "streams", "versions", "seed", specs.LIMITED}
_OF_NO_METHOD.add(digest.DATA_DIGESTS)


def labels_of(
  methods: Sequence[Mapping[str, Any]], shared: Mapping[str, Any] = {}
) -> list[str]:
  """A label for each method: its own, or its choices and flags that differ.

  Args:
    methods: the flags of each method.
    shared: the flags of all methods.

  Raises:
    ValueError: if two methods are the same.
  """
  told = [_told(method, methods, shared) for method in methods]
  short = [_label(flags, shared) for flags in told]
  labels = list(short)
  for i, method in enumerate(methods):
    alike = [j for j, label in enumerate(short) if label == short[i]]
    if len(alike) > 1 and "label" not in method:
      own_flags = {
        name: value
        for name, value in told[i].items()
        if name not in CHOICES
        and any(told[j].get(name) != value for j in alike)
      }
      if own_flags:
        text = ", ".join(f"{name_of(n)} {v}" for n, v in own_flags.items())
        labels[i] = f"{labels[i]} ({text})"
  for label, method in zip(labels, methods, strict=True):
    if labels.count(label) > 1:
      rule = _rule_not_given(method, shared)
      why = rule and f", as {method['algorithm']} takes {rule} by default"
      raise ValueError(
        f"method: two methods have the label {label!r}{why}; give each a "
        "label=NAME of its own"
      )
  return labels


def labels_of_runs(
  runs: Sequence[Run],
  conditions: Sequence[Mapping[str, Any]],
  planned: Sequence[tuple[str, Mapping[str, Any]]] = (),
) -> list[str]:
  """A label for each run; the same for one method under several conditions.

  A tuned hyperparameter is not in the labels, unless only it tells runs apart.

  Args:
    runs: which.
    conditions: of each run.
    planned: label and flags of each method of the same study that is to run; a
      run of one of these methods has its label.

  Raises:
    ValueError: if two runs have the same method and condition.
  """
  configs = [run.config for run in runs] + [flags for _, flags in planned]
  texts = [{n: str(v) for n, v in config.items()} for config in configs]
  tuned = {name for text in texts for name, v in text.items() if "[" in v}
  for ignored in (tuned, set()):
    made = _labels_without(texts, ignored)
    of_planned = zip(made[len(runs) :], planned, strict=True)
    given = {label: own_label for label, (own_label, _) in of_planned}
    labels = [given.get(label, label) for label in made[: len(runs)]]
    cells = list(zip(labels, map(str, conditions), strict=True))
    if len(set(cells)) == len(cells):
      return labels
  i = next(i for i, cell in enumerate(cells) if cell in cells[:i])
  raise ValueError(
    f"runs: {str(runs[cells.index(cells[i])].folder)!r} and "
    f"{str(runs[i].folder)!r} hold the same method under the same conditions; "
    "give one of them"
  )


def _told(
  method: Mapping[str, Any],
  methods: Sequence[Mapping[str, Any]],
  shared: Mapping[str, Any],
) -> dict[str, Any]:
  """A method's flags, and shared flags that another method overrides."""
  entry = choice_flags.ALGORITHM.entries.get(method["algorithm"])
  takes = dict.fromkeys(CHOICES, False) | (rules_taken(entry) if entry else {})
  changed = {name for other in methods for name in other}
  from_all = {
    name: value
    for name, value in shared.items()
    if name in changed and value is not None and takes.get(name, True)
  }
  return from_all | dict(method)


def _rule_not_given(
  method: Mapping[str, Any], shared: Mapping[str, Any]
) -> str:
  """The clients' rule of a method that names none; "" if it is plain steps."""
  entry = choice_flags.ALGORITHM.entries.get(method["algorithm"])
  if entry is None or "client" in {**shared, **method}:
    return ""
  rule = default_client(entry)
  return rule if rule == CLIENT_DEFAULT else ""


def _label(method: Mapping[str, Any], shared: Mapping[str, Any]) -> str:
  if method.get("label"):
    return str(method["label"])
  chosen = {name: method[name] for name in CHOICES if name in method}
  # FedAvg's clients take other steps than those of SGD, unless they are told.
  if rule := _rule_not_given(method, shared):
    chosen["client"] = rule
  # Its rule would be taken for that of the clients.
  return ", ".join(
    f"{'server ' * (name == 'server')}{name_of(str(chosen[name]))}"
    for name in CHOICES
    if name in chosen
  )


def _labels_without(
  texts: Sequence[Mapping[str, str]], tuned: Collection[str]
) -> list[str]:
  """Labels made of choices and other flags that differ, without some flags."""
  ignored = {*specs.conditions(), *CHOICES, *tuned, *_OF_NO_METHOD}
  by_run = [
    {n: text[n] for n in CHOICES if n in text}
    | {n: v for n, v in text.items() if n not in ignored and "[" not in v}
    for text in texts
  ]
  # Flags that are the same in all runs do not tell them apart.
  own_flags = [
    {
      name: value
      for name, value in flags.items()
      if name == "algorithm" or any(g.get(name) != value for g in by_run)
    }
    for flags in by_run
  ]
  different = [g for i, g in enumerate(own_flags) if g not in own_flags[:i]]
  # A choice that all runs share is in no label; nor is a default in its place.
  labels = labels_of(different, dict.fromkeys(CHOICES))
  return [labels[different.index(flags)] for flags in own_flags]
