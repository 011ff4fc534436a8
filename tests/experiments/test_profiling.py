"""--profile: a trace of some rounds."""

import gzip
import json

import pytest

from tests.experiments.commands import call

SMALL = (
  "--task=digits_logistic", "--num_clients=6", "--cohort_size=2",
  "--client=sgd", "--client_lr=0.1", "--batch_size=64", "--eval_every=2",
)  # fmt: skip


@pytest.mark.parametrize("rounds", [0, 6])
def test_the_rounds_between_two_evaluations_are_traced(
  rounds, tmp_path, capsys
):
  folder = tmp_path / "run"
  given = (f"--rounds={rounds}", "--profile", f"--output_dir={folder}")
  assert call(*SMALL, *given) == 0
  (line,) = [
    line
    for line in capsys.readouterr().err.splitlines()
    if line.startswith("profile: ")
  ]
  (path,) = (folder / "profile").rglob("perfetto_trace.json.gz")
  assert str(path) in line
  with gzip.open(path, "rt") as file:
    names = {event.get("name", "") for event in json.load(file)["traceEvents"]}
  has_rounds = any("jit(rounds)" in name for name in names)
  assert has_rounds == (rounds > 0)
  assert list((folder / "profile").rglob("*.xplane.pb"))
