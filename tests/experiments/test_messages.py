"""The flags of what clients send, and of how the server combines it."""

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


def sent(upload):
  return upload.rule.update(U, upload.rule.init(U), None, key=KEY)


@pytest.mark.parametrize(
  ("arguments", "expected"),
  [
    (["--upload=top_k"], transforms.top_k(0.01)),
    (["--upload=top_k", "--upload_fraction=0.2"], transforms.top_k(0.2)),
    (["--upload=random_k", "--upload_fraction=0.2"], transforms.random_k(0.2)),
    (["--upload=sign"], transforms.sign()),
    (["--upload=quantize", "--upload_levels=3"], transforms.quantize(3)),
    (
      ["--upload=quantize", "--error_feedback"],
      transforms.error_feedback(transforms.quantize(15)),
    ),
  ],
)
def test_flags_reach_the_upload(arguments, expected):
  ((name, upload),) = wrapped(*arguments)
  assert name == "upload"
  assert upload.num_bytes(U) == expected.num_bytes(U)
  chex.assert_trees_all_equal(sent(upload), sent(expected))


ROWS = jnp.asarray(np.random.default_rng(0).normal(size=(9, 4)) ** 3)


@pytest.mark.parametrize(
  ("arguments", "expected"),
  [
    (["--aggregator=median"], aggregators.median()),
    (["--aggregator=trimmed_mean"], aggregators.trimmed_mean(0.1)),
    (
      ["--aggregator=trimmed_mean", "--trim_fraction=0.3"],
      aggregators.trimmed_mean(0.3),
    ),
    (["--aggregator=multi_krum"], aggregators.multi_krum(1)),
    (
      ["--aggregator=multi_krum", "--krum_faulty=3"],
      aggregators.multi_krum(3),
    ),
  ],
)
def test_flags_reach_the_aggregator(arguments, expected):
  given = ("--weighting=uniform", *arguments)
  ((name, aggregator),) = wrapped(*given)
  assert name == "aggregator"
  counted = np.arange(9) != 2
  found = aggregator.combine(ROWS, counted)
  np.testing.assert_array_equal(found, expected.combine(ROWS, counted))
  assert np.any(found != ROWS[counted].mean(0))


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


def test_no_client_need_be_faulty():
  """As where the share of faulty clients is the condition of a study."""
  spec = spec_of("--fault=flip", "--faulty_fraction=0")
  assert (spec.fault.name, spec.faulty_fraction) == ("flip", 0)


def test_nothing_is_the_default():
  assert wrapped() == []
  values = prepare(TASK).spec.values()
  assert values["aggregator"] == "mean"
  assert "upload" not in values
