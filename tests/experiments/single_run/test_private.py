"""Personal models and privacy on the command line."""

import functools

import pytest

from experiments.single_run import run_output
from fedjax_opt import privacy
from tests.helpers.commands import call, config_of, spec_of, summary_of

SMALL = (
  "--task=digits_logistic", "--num_clients=12", "--cohort_size=6",
  "--rounds=3", "--client=sgd", "--client_lr=0.1", "--batch_size=8",
)  # fmt: skip
GAUSSIAN = ("--privacy=gaussian", "--weighting=uniform")
POISSON = ("--sampler=poisson", "--sampler_expected=3")


def metrics_of(folder):
  return (folder / "metrics.csv").read_text()


@pytest.mark.slow
def test_epsilon_is_beside_accuracy_and_noise_is_new_in_each_run(
  tmp_path, capsys, monkeypatch
):
  # It takes a second.
  monkeypatch.setattr(privacy, "epsilon", functools.cache(privacy.epsilon))
  one_folder, other_folder = tmp_path / "one", tmp_path / "other"
  flags = (*SMALL, *GAUSSIAN, *POISSON, "--dp_noise_multiplier=2,4")
  for folder in (one_folder, other_folder):
    assert call(*flags, "--dp_delta=1e-3", f"--output_dir={folder}") == 0
  about = {"rounds": 3, "num_clients": 12, "cohort_size": 3, "places": 6}
  expected = [privacy.epsilon(z, delta=1e-3, **about) for z in (2.0, 4.0)]
  assert summary_of(one_folder)["privacy"] == {
    "delta": 1e-3,
    "epsilon": pytest.approx(expected),
    "is_private": True,
  }
  out = capsys.readouterr().out
  assert "NOT private" not in out
  head = next(line for line in out.splitlines() if "test_accuracy" in line)
  assert "epsilon" in head.split()
  for value in expected:
    assert f" {value:.6g} " in out
  assert metrics_of(one_folder) != metrics_of(other_folder)
  assert "dp_seed" not in config_of(one_folder)


def test_epsilon_of_cohorts_of_fixed_size():
  spec = spec_of(*SMALL, *GAUSSIAN, "--dp_noise_multiplier=2")
  summary = run_output.privacy_summary(
    spec, [{"dp_noise_multiplier": 2.0}], 12, 3
  )
  expected = privacy.epsilon(2.0, 3, 12, 6, 1e-5, sampling="uniform")
  assert summary == {"delta": 1e-5, "epsilon": [expected], "is_private": True}


@pytest.mark.slow
def test_with_a_seed_of_noise_it_says_that_it_is_not_private(tmp_path, capsys):
  flags = (*SMALL, *GAUSSIAN, "--dp_seed=7", f"--output_dir={tmp_path}")
  assert call(*flags) == 0
  line = "NOT private: the noise comes from dp_seed=7, so it can be computed "
  assert line in capsys.readouterr().out
  assert summary_of(tmp_path)["privacy"]["is_private"] is False
