"""What a run finds out of its task before it begins."""

import jax

from experiments.single_run import job
from tests.helpers.commands import prepare


def test_whether_a_loss_draws_is_seen_through_jit():
  task = prepare("--task=digits").task
  draws = lambda params, batch, rng: jax.random.normal(rng, batch["y"].shape)
  for loss_fn, expected in ((task.loss_fn, False), (draws, True)):
    for loss in (loss_fn, jax.jit(loss_fn)):
      assert job._draws(task._replace(loss_fn=loss)) is expected
