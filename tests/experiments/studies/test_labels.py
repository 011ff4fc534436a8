"""Labels of methods."""

import pytest

from experiments.studies.study_facts import difference_notes
from tests.helpers.plans import FED_AVG, RATES, SCAFFOLD, by_method, planned


def test_labels_say_what_differs():
  cells = planned(
    "--method=fed_prox client=sgd mu=0.1",
    "--method=fed_prox client=sgd mu=1",
    "--method=fed_prox client=sgdm",
  )
  assert list(by_method(cells)) == [
    "FedProx, SGD (μ 0.1)", "FedProx, SGD (μ 1)", "FedProx, SGDM",
  ]  # fmt: skip
  # A rule that nobody chose, unless it is what one expects.
  usual = ("--method=fed_avg", "--method=scaffold", "--method=fed_exp")
  assert list(by_method(planned(*usual))) == [
    "FedAvg, Δ-SGD", "SCAFFOLD", "FedExP",
  ]  # fmt: skip


def test_labels_say_what_another_method_changes_of_what_all_have():
  usual = ("--client=sgd", "--upload=quantize", "--client_lr=0.1")
  methods = ("--method=fed_avg upload=sign", "--method=fed_avg", SCAFFOLD)
  cells = planned(*usual, *methods)
  assert list(by_method(cells)) == [
    "FedAvg (upload sign)", "FedAvg (upload quantize)", "SCAFFOLD",
  ]  # fmt: skip
  assert difference_notes(cells) == [
    "Methods differ in upload: sign for FedAvg (upload sign); quantize for "
    "FedAvg (upload quantize) and SCAFFOLD."
  ]
  # A rule of the server is no rule of the clients.
  methods = ("--method=fed_avg client=adam", "--method=fed_avg server=adam")
  cells = planned("--client=sgd", "--server=sgdm", *methods, SCAFFOLD)
  assert list(by_method(cells)) == [
    "FedAvg, Adam, server SGDM", "FedAvg, SGD, server Adam", "SCAFFOLD",
  ]  # fmt: skip


@pytest.mark.parametrize("label", ['"My method"', "'My method'"])
def test_a_label_with_spaces_is_quoted(label):
  (cell,) = planned(f"{FED_AVG} label={label}", RATES)
  assert cell.method == "My method"
