"""Names for people: every choice has one, all else becomes plain words."""

import collections

import pytest

from experiments.specification.kinds import KINDS
from experiments.tasks import TASKS
from fedjax_opt.results import names


@pytest.mark.parametrize("kind", KINDS)
def test_every_choice_has_a_name_of_its_own(kind):
  entries = KINDS[kind].entries
  for name, choice in entries.items():
    assert names.name_of(name) == choice.label or choice.label is None
    assert "_" not in names.name_of(name)
    # A label says more than plain words; those of tasks are put together.
    assert kind == "task" or choice.label != name.replace("_", " ")
    assert choice.label or kind not in ("algorithm", "client")
  labels = collections.Counter(map(names.name_of, entries))
  assert set(labels.values()) == {1}


def test_every_word_of_a_task_has_a_name():
  plain = {"digits", "logistic", "small", "low", "rank", "transformer"}
  plain |= {"classes)", "non-convex", "images", "table,", "linear", "model"}
  for task in TASKS:
    shown = names.name_of(task)
    assert {word for word in shown.split() if word.islower()} <= plain
  assert names.name_of("cifar10_resnet56") == "CIFAR-10 ResNet-56"
  assert names.name_of("agnews_distilbert") == "AG News DistilBERT"


@pytest.mark.parametrize(
  ("identifier", "shown"),
  [
    ("fed_avg_slm_z", "FedAvgSLM-Z"),
    ("delta_sgd", "Δ-SGD"),
    ("client_lr", "client learning rate"),
    ("strength", "regularization strength"),
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
    (1e-3, "0.001"),
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
    ("validation_accuracy", "Validation accuracy (%)"),
    ("client_test_loss", "Client test loss"),
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
