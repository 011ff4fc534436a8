"""Compares methods from Python: all tuned alike, then run with fresh seeds."""

import inspect
import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, Unpack

from fedjax_opt.base import Batch, Params
from fedjax_opt.checks import fields
from fedjax_opt.data.clients import ClientData
from fedjax_opt.data.population import Population
from fedjax_opt.engine import inputs
from fedjax_opt.engine.run_options import RunOptions, check_option_names
from fedjax_opt.evaluation import PerExampleFn
from fedjax_opt.results import environment
from fedjax_opt.results.metric_names import check_has_direction
from fedjax_opt.results.progress import bar
from fedjax_opt.results.selection import Criterion
from fedjax_opt.study import arguments, sizes, tuning, words
from fedjax_opt.study.cells import Cell
from fedjax_opt.study.problem import Method, Problem
from fedjax_opt.study.study import Study
from fedjax_opt.study.verdicts import check_min_effect, check_target

Clients = ClientData | Population


@fields.checked(
  methods=fields.mapping_of(
    None,
    'a dict of methods by label, such as {"FedAvg": fo.Method(make, grid)}',
  ),
  rounds=fields.integer(),
  seeds=inputs.SEEDS,
  report_seeds=inputs.SEEDS,
  conditions=arguments.CONDITIONS,
  criterion=fields.instance_of(
    Criterion, 'a Criterion, such as fo.Criterion("validation_loss", "min")'
  ),
  target=fields.Scalar(words="finite; None for no target"),
  min_effect=fields.Scalar(words="finite; None for the default"),
  budget=fields.one_of(*tuning.BUDGETS),
  crossed=fields.integer(2),
  own_models=fields.function("(params, batch) -> {name: [B]}, or None"),
)
def compare(
  methods: Mapping[str, Method],
  params: Params | Callable[[Any], Params],
  data: Clients | Callable[..., Clients],
  *,
  rounds: int,
  seeds: Sequence[int] | None = None,
  report_seeds: Sequence[int] | None = None,
  conditions: Sequence[Mapping[str, Any]] = ({},),
  validation: Batch | ClientData | None = None,
  test: Batch | ClientData | None = None,
  own_models: PerExampleFn | None = None,
  criterion: Criterion | None = None,
  metric: str | None = None,
  target: float | None = None,
  min_effect: float | None = None,
  nested: bool = False,
  crossed: int | None = None,
  budget: str = "equal",
  title: str = "Study",
  progress: bool = False,
  **options: Unpack[RunOptions],
) -> Study:
  """Tunes every method under every condition, and measures its best setting.

  The grid of a method with all seeds is one program. The best setting, by the
  mean of the criterion over `seeds`, then runs with `report_seeds`. These were
  not used before, so the reported runs have no part in the choice.

  For example::

    study = fo.compare(
      {
        "FedAvg": fo.Method(fed_avg, {"learning_rate": [0.03, 0.1, 0.3]}),
        "SCAFFOLD": fo.Method(scaffold, {"learning_rate": [0.03, 0.1, 0.3]}),
      },
      params,
      lambda seed, alpha: clients(alpha, seed),
      conditions=[{"alpha": 1.0}, {"alpha": 0.1}],
      rounds=50,
      validation=validation,
      test=test,
      evaluate=fo.evaluation.federated(per_example),
    )
    study.write("report")

  Args:
    methods: label -> `Method`, or the pair (make, grid).
    params: the initial model, or a function from a random key to one.
    data: the clients, or a function that returns them, given a seed and, by
      name, the values of a condition that are no options.
    rounds: R, of every run.
    seeds: of tuning; 0 to 4 if None.
    report_seeds: of the report; ten after the last of `seeds` by default.
    conditions: each a mapping from an option, such as `local_steps`, or an
      argument of `data` to its value.
    validation: examples {name: [N, ...]} on which settings are chosen, or
      clients that have them, see `simulate`; no client of `data` may have them.
      `fo.data.hold_out` and `ClientData.split` hold examples out.
    test: examples for the report, as `validation`. While settings are tuned,
      `evaluate` gets None for them, unless the criterion is a `test_` metric.
    own_models: `(params, batch) -> {name: [B]}`, to choose by, and to compare,
      the models that clients use themselves: of Ditto the personal ones, of
      FedAvg the server's. A fifth of each client's examples is then held out
      for `client_test_` metrics, and a tenth of the rest for
      `client_validation_` metrics; both are means over all held-out examples.
    criterion: the score by which a setting is chosen. Default: the last
      `validation_` value of the same name as `metric`.
    metric: the metric by which methods are compared in the report. Default:
      test_accuracy, with `own_models` client_test_accuracy.
    target: a value of `metric`; the report has the cost of reaching it. None
      for no such cost.
    min_effect: the smallest difference of interest, in the unit of `metric`
      (0.01 is a point of accuracy): a method that is behind the best by less is
      not called worse. None for 0.005 of accuracies, and 0 of others.
    nested: whether tuning is repeated with each seed of the report: the whole
      grid runs with `report_seeds`, and each seed gets the setting that is best
      by its own score. So the intervals include the luck of the choice. `seeds`
      are then not used.
    crossed: number of partitions, and of seeds, to cross for a table of what
      the spread of results is made of: choice, partition and seed. On each of
      these partitions the whole grid also runs with each of these seeds, which
      nothing else uses. `data` must then be a function. None for no such table.
    budget: 'equal' refuses methods that try different numbers of settings,
      unless they try one; 'unequal' allows them.
    title: of the report.
    progress: whether a bar shows the cells done, and which one runs.
    **options: see `RunOptions`; `evaluate` must be given.

  Returns:
    The `Study`, with a cell for each method and condition.

  Raises:
    ValueError: naming the invalid argument, before anything is compiled.
    TypeError: naming the argument of a wrong type, likewise.
  """
  arguments_of = inspect.signature(compare).parameters
  check_option_names(options, arguments=arguments_of)
  if metric is None:
    metric = "client_test_accuracy" if own_models else "test_accuracy"
  check_has_direction(metric)
  if metric.startswith("client_") and own_models is None:
    raise ValueError(
      f"metric={metric!r}: is of the models that clients use themselves; give "
      "own_models=per_example"
    )
  check_min_effect(min_effect, metric)
  check_target(target, metric)
  arguments.check_conditions(conditions)
  arguments.check_names_of_conditions(list(conditions[0]), data, options)
  methods = arguments.checked_methods(methods)
  budgets = {n: tuning.num_settings(m.grid) for n, m in methods.items()}
  if budget == "equal":
    tuning.check_equal(budgets, "budget='unequal'")
  is_tuned = max(budgets.values()) > 1
  seeds, report_seeds = arguments.both_seeds(
    seeds, report_seeds, is_tuned and not nested
  )
  arguments.check_crossed(crossed, data)
  criterion = arguments.criterion_of(
    criterion, metric, validation is not None, options, is_tuned
  )
  params = inputs.checked_params(params, may_be_function=True)
  problem = Problem(
    params=params,
    data=data,
    rounds=rounds,
    validation=validation,
    test=test,
    criterion=criterion,
    options=options,
    design=tuning.Design.of(seeds, report_seeds, nested, crossed),
    own_models=own_models,
  )
  clients = problem.check(methods, conditions, metric)
  arguments.check_apart(validation, test)
  cells = tuple(_run_all(problem, methods, conditions, progress))
  shared_options, notes = _shared_and_notes(
    methods, options, conditions[0], [*clients.values()]
  )
  return Study(
    cells,
    metric,
    title,
    target,
    _about(problem, list(clients.values()), shared_options, is_tuned),
    notes=(*notes, *(() if own_models else arguments.notes_of(methods))),
    clients=clients,
    min_effect=min_effect,
  )


def _run_all(
  problem: Problem,
  methods: Mapping[str, Method],
  conditions: Sequence[Mapping[str, Any]],
  progress: bool,
) -> list[Cell]:
  """The cells, method after method; they run condition after condition."""
  cells: dict[str, list[Cell]] = {label: [] for label in methods}
  total = len(methods) * len(conditions)
  with bar(total, "cells") if progress else nullcontext() as progress_bar:
    for condition in conditions:
      here = problem.under(condition)  # All methods share its clients.
      for label, method in methods.items():
        if progress:
          parts = label, words.condition_label(condition)
          progress_bar.set_postfix_str(", ".join(filter(None, parts)))
        cells[label].append(here.run_cell(label, method, condition))
        if progress:
          progress_bar.update()
  return [*itertools.chain(*cells.values())]


def _shared_and_notes(
  methods: Mapping[str, Method],
  options: Mapping[str, Any],
  condition: Mapping[str, Any],
  clients: Sequence[sizes.ClientSummary],
) -> tuple[dict[str, Any], list[str]]:
  """The options that all runs share; sentences on options of single methods.

  Args:
    methods: label -> method.
    options: the study's options.
    condition: one of them.
    clients: the clients of all conditions.
  """
  by_method = {
    label: sizes.reported_options(
      {**options, **condition, **method.options}, clients
    )
    for label, method in methods.items()
  }
  sentences = words.differing_options(by_method)
  first_options = next(iter(by_method.values()))
  differing_names = {*condition, *sentences}
  same = {n: v for n, v in first_options.items() if n not in differing_names}
  return same, list(sentences.values())


def _about(
  problem: Problem,
  clients: Sequence[sizes.ClientSummary],
  options: Mapping[str, Any],
  is_tuned: bool,
) -> dict[str, Any]:
  """What a report says of all runs, by name.

  Args:
    problem: what the runs share.
    clients: the clients of all conditions.
    options: the options that all runs share.
    is_tuned: whether any method chose among settings.
  """
  return {
    **sizes.of_task(problem.params, problem.validation, problem.test),
    **sizes.client_sizes(clients),
    # These options are here for their place in the report, before the others.
    **{name: options[name] for name in sizes.WORK if name in options},
    "rounds": problem.rounds,
    **problem.design.facts(is_tuned),
    **{n: v for n, v in options.items() if isinstance(v, int | float | str)},
    **environment.record(),
  }
