"""Names for people: every choice has one, all else becomes plain words."""

import pytest

from experiments.tasks import TASKS
from fedjax_opt.algorithms import ALGORITHMS
from fedjax_opt.data.partition import SCHEMES
from fedjax_opt.prox.registry import REGULARIZERS
from fedjax_opt.results import names
from fedjax_opt.rules import RULES

REGISTRIES = (
  (ALGORITHMS, names._ALGORITHMS),
  (RULES, names._RULES),
  (SCHEMES, names._PARTITIONS),
  (REGULARIZERS, names._REGULARIZERS),
)


@pytest.mark.parametrize(("registry", "table"), REGISTRIES)
def test_every_choice_has_a_name_and_no_other_has(registry, table):
  assert set(table) == set(registry)
  for identifier, shown in table.items():
    assert names.name_of(identifier) == shown
    assert "_" not in shown


def test_no_two_choices_of_a_registry_have_the_same_name():
  for _, table in REGISTRIES:
    assert len(set(table.values())) == len(table)


def test_every_word_of_a_task_has_a_name():
  plain = {"digits", "logistic", "small", "low", "rank", "transformer"}
  plain |= {"classes)", "non-convex"}
  for task in TASKS:
    shown = names.name_of(task)
    assert {word for word in shown.split() if word.islower()} <= plain
  assert names.name_of("cifar10_resnet56") == "CIFAR-10 ResNet-56"
  assert names.name_of("agnews_distilbert") == "AG News DistilBERT"


def test_every_hyperparameter_has_a_name():
  found = {
    parameter.name
    for registry, _ in REGISTRIES
    for choice in registry.values()
    for parameter in choice.hyperparameters
  }
  assert found <= set(names._NAMES)


@pytest.mark.parametrize(
  ("identifier", "shown"),
  [
    ("fed_avg_slm_z", "FedAvgSLM-Z"),
    ("delta_sgd", "Δ-SGD"),
    ("client_lr", "client learning rate"),
    ("server_b1", "server β₁"),
    ("local_steps", "local steps"),
    ("cohort_size", "clients per round"),
    ("mnist_cnn", "MNIST CNN"),
    ("my_own_thing", "my own thing"),
    ("FedAvg, tuned", "FedAvg, tuned"),
  ],
)
def test_names(identifier, shown):
  assert names.name_of(identifier) == shown


@pytest.mark.parametrize(
  ("value", "shown"),
  [
    (0.1, "0.1"),
    (1e-3, "0.001"),
    (3e-5, "3e-5"),
    (1.25e-7, "1.25e-7"),
    (0.0, "0"),
    (2e6, "2e6"),
    (100000.0, "100000"),
    (float("inf"), "∞"),
    (10, "10"),
    (True, "yes"),
    (None, "–"),
    ("sgdm", "SGDM"),
  ],
)
def test_values(value, shown):
  assert names.value_of(value) == shown


@pytest.mark.parametrize(
  ("metric", "shown"),
  [
    ("train_loss", "Training loss"),
    ("validation_loss", "Validation loss"),
    ("test_accuracy", "Test accuracy (%)"),
    ("validation_accuracy", "Validation accuracy (%)"),
    ("client_test_accuracy", "Client test accuracy (%)"),
    ("client_test_loss", "Client test loss"),
    (
      "train_worst_decile_accuracy",
      "Training accuracy, worst 10 % of clients (%)",
    ),
    (
      "client_test_worst_decile_accuracy",
      "Client test accuracy, worst 10 % of clients (%)",
    ),
    ("train_accuracy_decile_3", "Training accuracy, decile 3 of clients (%)"),
    ("worst_decile_accuracy", "Accuracy, worst 10 % of clients (%)"),
    ("f1", "F1"),
    ("my_metric", "My metric"),
  ],
)
def test_metrics(metric, shown):
  assert names.metric_name(metric) == shown
