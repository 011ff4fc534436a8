"""The tasks of Shakespeare's next character, and runs of them."""

import json

import jax
import numpy as np
import optax
import pytest

from experiments import tasks
from experiments.tasks import shakespeare as tasks_of_plays
from fedjax_opt import load_run, models
from fedjax_opt.datasets import shakespeare, tfds
from tests.experiments.commands import call, spec_of

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
  text = "\n\n".join(f"{who}:\n{words(9 * k)}" for k, who in
                     enumerate("ABCDE", 3))  # fmt: skip
  load_text = lambda name, split, data_dir: [{"text": text}]
  monkeypatch.setattr(tfds, "load_text", load_text)
  tokens = tasks_of_plays.NUM_TOKENS
  made = {
    "lstm": lambda length: models.LSTM(tokens, 2, (4, 4)),
    "transformer": lambda length: models.Decoder(tokens, length, 4, 1, 2),
  }
  monkeypatch.setattr(tasks_of_plays, "MODELS", made)


@pytest.fixture
def load():
  """`(*arguments) -> Task`."""

  def load(*arguments):
    return tasks.load(spec_of(*arguments))

  return load


@pytest.mark.parametrize("name", NAMES)
def test_loss_and_accuracy_are_of_the_targets_that_are_no_padding(load, name):
  task = load(f"--task={name}", f"--sequence_length={LENGTH}")
  params = task.init(jax.random.key(0))
  batch = {n: np.asarray(v[:5]).copy() for n, v in task.train.items()}
  for i in range(4):
    batch["y"][i, 5 - i :] = shakespeare.PADDING
  model = tasks_of_plays.MODELS[name.removeprefix("shakespeare_")](LENGTH)
  logits = np.asarray(model.apply({"params": params}, batch["x"]))
  found = task.per_example(params, batch)
  loss = task.loss_fn(params, batch, jax.random.key(1))
  for i in range(5):
    mask = batch["y"][i] != shakespeare.PADDING
    targets, own = batch["y"][i][mask], logits[i][mask]
    losses = optax.softmax_cross_entropy_with_integer_labels(own, targets)
    expected = {
      "loss": losses.mean(),
      "accuracy": (own.argmax(-1) == targets).mean(),
    }
    for metric, value in expected.items():
      np.testing.assert_allclose(found[metric][i], value, rtol=1e-5)
    np.testing.assert_allclose(loss[i], expected["loss"], rtol=1e-5)
  features = task.features_fn(params, batch, jax.random.key(1))
  assert features.shape == (5, 4)


def test_what_is_padding_does_not_matter(load):
  task = load("--task=shakespeare_transformer", "--sequence_length=6")
  params = task.init(jax.random.key(0))
  batch = {n: np.asarray(v[:2]).copy() for n, v in task.train.items()}
  batch["y"][:, 4:] = shakespeare.PADDING
  other = {"x": batch["x"].copy(), "y": batch["y"]}
  other["x"][:, 4:] = 3
  for function in (task.loss_fn, task.features_fn):
    one, two = (function(params, b, None) for b in (batch, other))
    np.testing.assert_allclose(one, two, rtol=1e-6)
  # An example of padding alone, which no data has, is a number.
  batch["y"][:] = shakespeare.PADDING
  np.testing.assert_array_equal(task.loss_fn(params, batch, None), 0)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["fed_avg", "moon", "scaffold"])
@pytest.mark.parametrize("name", NAMES)
def test_runs(tmp_path, name, algorithm):
  folder = tmp_path / "run"
  others = [] if algorithm == "scaffold" else ["--precision=mixed"]
  status = call(
    *SHORT, f"--task={name}", f"--algorithm={algorithm}", *others,
    "--validation_fraction=0.3", "--client_test_fraction=0.3",
    f"--output_dir={folder}",
  )  # fmt: skip
  assert status == 0
  summary = json.loads((folder / "summary.json").read_text())
  final = summary["points"][0]["final"]
  for split in ("train", "validation", "test"):
    assert final[f"{split}_loss"] == pytest.approx(np.log(66), rel=0.3)
    assert 0 <= final[f"{split}_accuracy"] <= 1
  assert (folder / "per_client.csv").read_text().count("\n") == 6


TRAINABLE = "output,layers_1/cell/hf"


def leaves_of(params):
  return {
    jax.tree_util.keystr(at, simple=True, separator="/"): np.asarray(leaf)
    for at, leaf in jax.tree_util.tree_leaves_with_path(params)
  }


def test_trainable_leaves(tmp_path, load):
  folder = tmp_path / "grid"
  arguments = [*SHORT, "--client=sgd", f"--trainable={TRAINABLE}",
               "--checkpoint_every=1", "--grad_norm"]  # fmt: skip
  grid = ["--client_lr=0.1,0.5", "--seed=0,3"]
  status = call(*arguments, *grid, f"--output_dir={folder}")
  assert status == 0
  run = load_run(folder)
  assert run.config["trainable"] == TRAINABLE
  task = load(*SHORT[:2])
  best = run.points[run.selected]
  before = leaves_of(jax.jit(task.init)(jax.random.key(best["seed"])))
  after = leaves_of(run.params)
  assert set(before) == set(after)
  is_trained = lambda name: name.startswith(("output/", "layers_1/cell/hf/"))
  assert any(map(is_trained, before))
  for name in before:
    # The seeds are drawn together, which may round differently.
    same = np.allclose(before[name], after[name], rtol=1e-6, atol=1e-7)
    assert same != is_trained(name), name
  of_message = sum(v.nbytes for n, v in after.items() if is_trained(n))
  summary = json.loads((folder / "summary.json").read_text())
  assert summary["cost"]["bytes_up_per_round"] == of_message


def test_trainable_resumes(tmp_path):
  whole, parts = tmp_path / "whole", tmp_path / "parts"
  arguments = [*SHORT, "--trainable=output", "--checkpoint_every=1",
               "--seed=1,2", "--eval_every=1"]  # fmt: skip
  assert call(*arguments, f"--output_dir={whole}") == 0
  assert call(*arguments, "--rounds=1", f"--output_dir={parts}") == 0
  assert call(*arguments, "--resume", f"--output_dir={parts}") == 0
  for name in ("metrics.csv", "params.safetensors"):
    assert (whole / name).read_bytes() == (parts / name).read_bytes()


def test_personalized_models_move_the_trainable_leaves(tmp_path):
  folder = tmp_path / "run"
  status = call(
    *SHORT, "--trainable=output", "--client_test_fraction=0.3",
    "--personalize_steps=2", f"--output_dir={folder}",
  )  # fmt: skip
  assert status == 0
  summary = json.loads((folder / "summary.json").read_text())
  assert set(summary["per_client"]) == {"global", "personalized"}


BAD = {
  "--trainable=outputs": "trainable='outputs': matches no leaf of the model; "
  "must be among embedding, layers_0, layers_1, output",
  "--trainable=layers_1/cel": "trainable='layers_1/cel': matches no leaf of "
  "the model; must be among layers_1/cell",
  "--trainable=output,,": "trainable='output,,': must be paths of leaves "
  "between commas, such as output or layers_1,output/kernel",
  "--min_sequences=50": "min_sequences=50: no speaker of the text has as many "
  "sequences of 6 characters; must be fewer",
}


@pytest.mark.parametrize("flag", BAD)
def test_bad_flags(flag, tmp_path, capsys):
  folder = tmp_path / "run"
  assert call(*SHORT, flag, f"--output_dir={folder}") == 1
  assert capsys.readouterr().err.strip() == f"error: {BAD[flag]}"
  assert not folder.exists()


def test_an_optimum_is_of_all_leaves(capsys):
  status = call(
    "--task=lasso", "--algorithm=fed_mid", "--optimum", "--trainable=kernel"
  )
  assert status == 1
  message = "trainable='kernel' are some; leave trainable out"
  assert message in capsys.readouterr().err
