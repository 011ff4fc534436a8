"""The tasks of Shakespeare's next character, and runs of them."""

import jax
import numpy as np
import pytest
from scipy import special

from experiments.tasks import shakespeare as tasks_of_plays
from fedjax_opt import models
from fedjax_opt.datasets import shakespeare, tfds
from tests.helpers.commands import call, summary_of, task_of

NAMES = ("shakespeare_lstm", "shakespeare_transformer")
LENGTH = 6
SHORT = (
  "--task=shakespeare_lstm",
  f"--sequence_length={LENGTH}",
  "--rounds=2",
  "--eval_every=2",
  "--cohort_size=2",
  "--batch_size=4",
  "--noprogress",
)


@pytest.fixture(autouse=True)
def small(monkeypatch):
  """Five speakers, and models of a few units."""
  rng = np.random.default_rng(0)
  words = lambda n: "".join(rng.choice(list("abc \n")[:4], size=n))
  text = "\n\n".join(f"{speaker}:\n{words(9 * k)}" for k, speaker in
                     enumerate("ABCDE", 3))  # fmt: skip
  load_text = lambda name, split, data_dir: [{"text": text}]
  monkeypatch.setattr(tfds, "load_text", load_text)
  tokens = tasks_of_plays.NUM_TOKENS
  factories = {
    "lstm": lambda length: models.LSTM(tokens, 2, (4, 4)),
    "transformer": lambda length: models.Decoder(tokens, length, 4, 1, 2),
  }
  monkeypatch.setattr(tasks_of_plays, "MODELS", factories)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.default_cases("shakespeare_transformer")
def test_loss_and_accuracy_are_of_the_targets_that_are_no_padding(name):
  task = task_of(f"--task={name}", f"--sequence_length={LENGTH}")
  params = task.init(jax.random.key(0))
  batch = {n: np.asarray(v[:5]).copy() for n, v in task.train.items()}
  for i in range(4):
    batch["y"][i, 5 - i :] = shakespeare.PADDING
  model = tasks_of_plays.MODELS[name.removeprefix("shakespeare_")](LENGTH)
  logits = np.asarray(jax.jit(model.apply)({"params": params}, batch["x"]))
  measured = jax.jit(task.per_example)(params, batch)
  loss = jax.jit(task.loss_fn)(params, batch, jax.random.key(1))
  for i in range(5):
    mask = batch["y"][i] != shakespeare.PADDING
    targets, out = batch["y"][i][mask], logits[i][mask]
    losses = special.logsumexp(out, axis=1) - out[np.arange(len(out)), targets]
    expected = {
      "loss": losses.mean(),
      "accuracy": (out.argmax(-1) == targets).mean(),
    }
    for metric, value in expected.items():
      np.testing.assert_allclose(measured[metric][i], value, rtol=1e-5)
    np.testing.assert_allclose(loss[i], expected["loss"], rtol=1e-5)
  features = jax.eval_shape(task.features_fn, params, batch, jax.random.key(1))
  assert features.shape == (5, 4)


def test_what_is_padding_does_not_matter():
  task = task_of("--task=shakespeare_transformer", "--sequence_length=6")
  params = task.init(jax.random.key(0))
  batch = {n: np.asarray(v[:2]).copy() for n, v in task.train.items()}
  batch["y"][:, 4:] = shakespeare.PADDING
  other = {"x": batch["x"].copy(), "y": batch["y"]}
  other["x"][:, 4:] = 3
  loss_fn = jax.jit(lambda batch: task.loss_fn(params, batch, None))
  features_fn = jax.jit(lambda batch: task.features_fn(params, batch, None))
  for function in (loss_fn, features_fn):
    np.testing.assert_allclose(function(batch), function(other), rtol=1e-6)
  # An example of padding alone, which no data has, is a number.
  batch["y"][:] = shakespeare.PADDING
  np.testing.assert_array_equal(loss_fn(batch), 0)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["fed_avg", "fed_ex_lora"])
def test_adapters_of_the_transformer(tmp_path, algorithm):
  folder = tmp_path / "run"
  status = call(
    *SHORT, "--task=shakespeare_transformer", f"--algorithm={algorithm}",
    "--lora_rank=1", "--client=adam", f"--output_dir={folder}",
  )  # fmt: skip
  assert status == 0
  summary = summary_of(folder)
  # A and B of two kernels [4, 4], and the last layer, [4, 66] with a bias.
  sent = 4 * (2 * 2 * 4 + 4 * 66 + 66)
  assert summary["cost"]["bytes_up_per_round"] == sent
  final = summary["points"][0]["final"]
  for split in ("train", "validation", "test"):
    perplexity = np.exp(final[f"{split}_loss"])
    assert final[f"{split}_perplexity"] == pytest.approx(perplexity, rel=1e-5)


def test_speakers_with_few_sequences_are_left_out(tmp_path, error_of):
  folder = tmp_path / "run"
  line = error_of(*SHORT, "--min_sequences=50", f"--output_dir={folder}")
  assert line.startswith("--min_sequences=50: no speaker of the text has as")
  assert not folder.exists()
