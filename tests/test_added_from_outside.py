"""An entry of a registry is all that a new choice needs.

Each is defined here, in one function, and added to its registry in one line.
"""

import jax
import jax.numpy as jnp
import methods_tables as tables
import numpy as np
import optax
import pytest

import fedjax_opt as fo
from experiments.command_line import choice_pages
from experiments.specification import spec as specs
from experiments.studies import planned_cells, request, study_facts
from experiments.tasks import TASKS, TaskEntry, classification
from fedjax_opt.algorithms import ALGORITHMS
from fedjax_opt.data.partition import SCHEMES
from fedjax_opt.registry import (
  AlgorithmEntry,
  Entry,
  Hyperparameter,
  RuleEntry,
)
from fedjax_opt.rules import RULES
from fedjax_opt.study.words import condition_label
from tests.helpers.commands import call, printed, summary_of


def damped(learning_rate, kappa):
  """Gradient descent with steps of bounded length.

  References:
    Nobody, 1999, Algorithm 3.
  """
  step = lambda grads: learning_rate / (kappa + optax.tree.norm(grads))
  return optax.stateless(
    lambda grads, params: optax.tree.scale(-step(grads), grads)
  )


def half_way(loss_fn, client, pull):
  """The server goes a part of the way to the mean of the clients."""

  def round(params, cohort):
    def one_client(worker, params):
      return optax.tree.sub(worker.descend(loss_fn, client, params), params)

    reply = cohort.mean(one_client, broadcast=params)
    return optax.tree.add_scale(params, pull, reply.value), reply

  return fo.Algorithm(
    init=lambda params: params,
    round=round,
    params=lambda params: params,
  )


def every_nth(labels, num_clients, seed=0, first=0):
  """Deals the examples as they come."""
  return [
    np.arange((first + i) % num_clients, len(labels), num_clients)
    for i in range(num_clients)
  ]


def blobs(spread):
  """Two classes of points, logistic regression."""
  rng = np.random.default_rng(0)
  y = np.arange(80) % 2
  x = rng.normal(size=(80, 3)) * spread + 2 * y[:, None]
  examples = {"x": x.astype(np.float32), "y": y}

  def apply(params, batch, rng, **options):
    return batch["x"] @ params["w"] + params["b"]

  init = lambda key: {
    "w": 0.1 * jax.random.normal(key, (3, 2)),
    "b": jnp.zeros(2),
  }
  train = {k: v[:60] for k, v in examples.items()}
  test = {k: v[60:] for k, v in examples.items()}
  return classification.task(apply, init, train, test, num_classes=2)


# kind of entry -> registry, name, entry, the flag of its hyperparameter.
ADDED = {
  "client": (
    RULES,
    "damped_sgd",
    RuleEntry(
      damped,
      "steps of bounded length (Nobody, 1999)",
      (
        Hyperparameter("learning_rate", 0.1, "step size", "[0, inf)"),
        Hyperparameter("kappa", 0.5, "damps steps", "(0, inf)", label="κ"),
      ),
      label="DampedSGD",
    ),
    "client_kappa",
  ),
  "algorithm": (
    ALGORITHMS,
    "half_way",
    AlgorithmEntry(
      half_way,
      "a part of the way to the mean",
      (Hyperparameter("pull", 0.5, "which part", "(0, 1]", label="ψ"),),
      label="HalfWay",
    ),
    "pull",
  ),
  "partition": (
    SCHEMES,
    "every_nth",
    Entry(
      every_nth,
      "dealt as they come",
      (
        Hyperparameter("first", 0, "who begins", "[0, inf)", label="the first"),
      ),
      label="every n-th",
    ),
    "first",
  ),
  "task": (
    TASKS,
    "two_blobs",
    TaskEntry(
      blobs,
      "points around two centres",
      (Hyperparameter("spread", 1.0, "deviation", "(0, inf)", label="σ"),),
      takes=(),
      is_convex=True,
      label="Two Blobs",
    ),
    "spread",
  ),
}
# What pages and tables call the kinds.
KINDS = {
  "client": "client rules",
  "algorithm": "algorithms",
  "partition": "partitions",
  "task": "tasks",
}
FLAGS = [f"--{kind}={name}" for kind, (_, name, _, _) in ADDED.items()]
TINY = [
  "--rounds=2", "--num_clients=4", "--cohort_size=2", "--batch_size=5",
  "--local_steps=2", "--noprogress",
]  # fmt: skip


@pytest.fixture(autouse=True)
def add(monkeypatch):
  for registry, name, entry, _ in ADDED.values():
    monkeypatch.setitem(registry, name, entry)


def answer(capsys, *arguments):
  return " ".join(printed(capsys, *arguments).out.split())


@pytest.mark.parametrize("kind", ADDED)
def test_it_is_in_the_help(kind, capsys):
  _, name, entry, flag = ADDED[kind]
  text = answer(capsys, "--helpfull")
  assert f" {name} {entry.help} " in text
  assert f" --{flag} " in text
  page = answer(capsys, f"--help={name}")
  assert page.startswith(f"{name} (")
  assert f"--{flag} " in page
  assert choice_pages.example(KINDS[kind], name) in page.replace("\\ ", "")
  parameter = answer(capsys, f"--help={flag}")
  assert entry.hyperparameters[-1].help in parameter.lower()
  assert f" {name} {entry.help}" in answer(capsys, "--list")


@pytest.mark.parametrize("kind", ADDED)
def test_the_tables_of_the_site_have_it(kind):
  _, name, entry, flag = ADDED[kind]
  title = KINDS[kind].removeprefix("client ")
  text = "".join(tables.filled(page.read_text()) for page in tables.PAGES)
  table = text.split(f"<!-- {title} -->")[1].split("<!--")[0]
  (line,) = [x for x in table.splitlines() if x.startswith(f"| `{name}`")]
  for part in (entry.label, f"`--{flag}`", entry.help.partition(" (")[0]):
    assert part in line


def test_it_runs(tmp_path):
  more_flags = ["--pull=0.5,1", "--spread=0.5", "--first=1", "--client_kappa=1"]
  assert call(*FLAGS, *TINY, *more_flags, f"--output_dir={tmp_path}") == 0
  summary = summary_of(tmp_path)
  hyperparameters = [point["hyperparameters"] for point in summary["points"]]
  assert [point["pull"] for point in hyperparameters] == [0.5, 1.0]
  assert {point["status"] for point in summary["points"]} == {"ok"}


def test_a_comparison_calls_it_by_its_label():
  methods = ["half_way client=damped_sgd", "fed_avg client=sgd"]
  conditions = ["--task=two_blobs", "--partition=every_nth", "--spread=0.5,1"]
  comparison = request.read_request(
    ["", *(f"--method={method}" for method in methods), *conditions, *TINY], ""
  )
  cells = planned_cells.plan(comparison)
  assert [(cell.method, condition_label(cell.condition)) for cell in cells] == [
    ("HalfWay, DampedSGD", "σ = 0.5"),
    ("HalfWay, DampedSGD", "σ = 1"),
    ("FedAvg, SGD", "σ = 0.5"),
    ("FedAvg, SGD", "σ = 1"),
  ]
  assert study_facts._named("two_blobs,digits") == "Two Blobs, digits"
  entries = study_facts._shared_facts(cells, [], {})
  assert (entries["task"], entries["partition"]) == ("Two Blobs", "every n-th")


def test_its_hyperparameters_are_conditions_where_the_kind_says_so():
  conditions = specs.conditions()
  assert {"first", "spread"} <= set(conditions)
  assert not {"pull", "client_kappa"} & set(conditions)
