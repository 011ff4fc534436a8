"""The flags of who takes part, what they send, and how that is combined."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import job
from fedjax_opt import transforms
from fedjax_opt.transforms import aggregators, faults
from tests.experiments.commands import prepare, spec_of, task_of

TASK = "--task=digits_logistic"
TASK_OF_DIGITS = task_of(TASK)


def wrapped(*arguments):
  """What the algorithm is wrapped in: (name, value)."""
  found = job.settings_of(spec_of(TASK, *arguments), TASK_OF_DIGITS)
  names = ("upload", "fault", "aggregator")
  return [(n, found[n]) for n in names if found[n] is not None]


U = {"w": jnp.linspace(-1, 2, 40)}
KEY = jax.random.key(0)


def test_flags_reach_the_upload():
  arguments = ("--upload=quantize", "--upload_levels=3", "--error_feedback")
  ((name, upload),) = wrapped(*arguments)
  assert name == "upload"
  expected = transforms.error_feedback(transforms.quantize(3))
  assert upload.num_bytes(U) == expected.num_bytes(U)
  sent = lambda each: each.rule.update(U, each.rule.init(U), None, key=KEY)
  chex.assert_trees_all_equal(sent(upload), sent(expected))


def test_flags_reach_the_aggregator():
  rows = jnp.asarray(np.random.default_rng(0).normal(size=(9, 4)) ** 3)
  arguments = ("--aggregator=multi_krum", "--krum_faulty=3")
  ((name, found),) = wrapped("--weighting=uniform", *arguments)
  assert name == "aggregator"
  counted = np.arange(9) != 2
  expected = aggregators.multi_krum(3).combine(rows, counted)
  np.testing.assert_array_equal(found.combine(rows, counted), expected)
  assert np.any(expected != rows[counted].mean(0))


def test_all_wrap_from_the_client_to_the_server():
  found = wrapped(
    "--upload=sign",
    "--aggregator=median",
    "--weighting=uniform",
    "--fault=noise",
    "--fault_strength=2",
    "--faulty_fraction=0.25",
  )
  assert [name for name, _ in found] == ["upload", "fault", "aggregator"]
  fault = found[1][1]
  assert fault.fraction == 0.25
  expected = faults.noise(0.25, 2.0).corrupt(U, KEY)
  np.testing.assert_allclose(fault.corrupt(U, KEY)["w"], expected["w"])


def test_nothing_is_the_default():
  assert wrapped() == []
  values = prepare(TASK).spec.values()
  assert values["aggregator"] == "mean"
  assert "upload" not in values


def test_uniform_is_the_engine_s_default():
  assert spec_of().sampler.make({}) is None
  prepared = prepare("--task=digits_logistic")
  assert prepared.settings["sampler"] == "uniform"
  assert prepared.spec.values()["sampler"] == "uniform"


@pytest.mark.parametrize("groups", [1, 100])
def test_as_many_groups_as_clients(groups):
  given = ("--sampler=cyclic", f"--sampler_groups={groups}", "--cohort_size=1")
  prepare("--task=digits_logistic", *given)
