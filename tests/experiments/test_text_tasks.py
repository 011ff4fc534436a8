"""Tasks of texts: what is loaded, from what they start, and what is refused."""

import json
import re

import jax
import numpy as np
import pytest

from experiments import run, tasks
from fedjax_opt.datasets import texts, tokenization
from tests import text_data
from tests import text_models as plain
from tests.experiments.commands import spec_of

pytest.importorskip("tokenizers")


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def data(tmp_path):
  text_data.write_csv(tmp_path / "data" / "dbpedia_csv", "dbpedia")
  return tmp_path / "data"


@pytest.fixture
def checkpoint(tmp_path):
  arrays = plain.leaves("distilbert", num_classes=14)
  return plain.write(tmp_path / "model", "distilbert", arrays, "distilbert.")


@pytest.fixture
def load(data):
  """`(*arguments) -> Task`, of DBpedia."""

  def load(*arguments, task="dbpedia_distilbert"):
    return tasks.load(
      spec_of(f"--task={task}", f"--data_dir={data}", *arguments)
    )

  return load


TINY = ("--encoder=tiny", "--vocab_size=90")


def test_random_start(load):
  task = load(*TINY, "--max_length=12")
  assert task.num_classes == 14
  assert set(task.criteria) == {"validation", "test"}
  params = task.init(jax.random.key(0))
  assert params["embeddings"]["word"].shape[1] == 128
  assert params["embeddings"]["word"].shape[0] <= 90
  assert params["embeddings"]["position"].shape == (512, 128)
  assert "type" not in params["embeddings"]
  assert set(params) == {"embeddings", "layers_0", "layers_1", "head"}
  assert params["head"]["output"]["kernel"].shape == (128, 14)
  batch = {name: values[:50] for name, values in task.train.items()}
  loss = jax.jit(task.loss_fn)(params, batch, jax.random.key(0)).mean()
  assert loss == pytest.approx(np.log(14), rel=0.1)


def test_the_default_is_as_large_as_distilbert(load):
  shapes = jax.eval_shape(load().init, jax.random.key(0))
  assert {f"layers_{i}" for i in range(6)} <= set(shapes)
  assert "layers_6" not in shapes
  assert shapes["layers_0"]["intermediate"]["kernel"].shape == (768, 3072)


def test_tokens_and_labels(load, data):
  task = load(*TINY, "--max_length=5", "--test_every=4")
  tokenizer = texts.train_tokenizer("dbpedia", 90, data)
  for part, split, every in ((task.train, "train", 1), (task.test, "test", 4)):
    loaded = texts.load("dbpedia", split, data)
    expected = tokenization.encode(tokenizer, loaded["x"], 5)[::every]
    np.testing.assert_array_equal(part["x"], expected)
    np.testing.assert_array_equal(part["y"], loaded["y"][::every])


def test_columns_of_padding_alone_are_left_out(load):
  wide, task = load(*TINY, "--max_length=200"), load(*TINY)
  assert task.train["x"].shape[1] == wide.train["x"].shape[1] < 20
  both = np.concatenate([task.train["x"], load(*TINY).test["x"]])
  assert both[:, -1].any()


def test_every_tenth_test_text_of_dbpedia_and_all_of_ag_news():
  for name, every in (("dbpedia", 10), ("agnews", 1)):
    task = spec_of(f"--task={name}_distilbert").task
    assert task.static["test_every"] == every


def test_a_pretrained_start(load, checkpoint):
  arguments = (f"--pretrained={checkpoint}", "--max_length=8")
  task = load(*arguments)
  params = task.init(jax.random.key(0))
  batch = {name: values[:6] for name, values in task.train.items()}
  logits = plain.logits(
    "distilbert", plain.leaves("distilbert", num_classes=14), batch["x"]
  )
  expected = np.log(np.exp(logits).sum(-1)) - np.take_along_axis(
    logits, batch["y"][:, None], 1
  ).squeeze(1)
  loss = jax.jit(task.loss_fn)
  np.testing.assert_allclose(
    loss(params, batch, None), expected, rtol=1e-3, atol=1e-4
  )
  # With a key there is dropout.
  assert not np.allclose(loss(params, batch, jax.random.key(0)), expected)
  measured = jax.jit(task.per_example)(params, batch)
  np.testing.assert_allclose(measured["loss"], expected, rtol=1e-3, atol=1e-4)
  right = logits.argmax(-1) == batch["y"]
  np.testing.assert_array_equal(measured["accuracy"], right)
  features = jax.eval_shape(task.features_fn, params, batch, None)
  assert features.shape == (6, plain.HIDDEN)


def test_a_head_for_other_classes_is_drawn_by_the_seed(load, tmp_path):
  folder = plain.write(tmp_path / "four", "bert")
  task = load(f"--pretrained={folder}", "--max_length=8")
  one, two = (task.init(jax.random.key(seed)) for seed in (0, 1))
  assert one["head"]["output"]["kernel"].shape == (plain.HIDDEN, 14)
  same = jax.tree.map(lambda a, b: bool((a == b).all()), one, two)
  assert all(jax.tree.leaves({**same, "head": {}}))
  assert not same["head"]["dense"]["kernel"]
  assert not same["head"]["output"]["kernel"]


def test_no_metric_of_training_examples(load):
  task = load(*TINY)
  names = jax.eval_shape(
    lambda key: task.evaluate(task.init(key), None, task.test, task.train),
    jax.random.key(0),
  )
  assert set(names) == {
    *("test_loss", "test_accuracy"),
    *("validation_loss", "validation_accuracy"),
  }


def test_ag_news_by_tfds(tmp_path):
  folder = tmp_path / "tfds"
  text_data.prepare_ag_news(folder)
  task = tasks.load(
    spec_of("--task=agnews_distilbert", f"--data_dir={folder}", *TINY)
  )
  assert task.num_classes == 4
  assert len(task.train["y"]) == 56
  assert len(task.test["y"]) == 28


def test_a_run(data, checkpoint, tmp_path):
  arguments = [
    *("run", "--task=dbpedia_distilbert", f"--data_dir={data}"),
    *(f"--pretrained={checkpoint}", "--max_length=6", "--algorithm=fed_avg"),
    *("--client=delta_sgd", "--num_clients=4", "--cohort_size=2", "--rounds=2"),
    *("--batch_size=4", "--partition=iid", "--precision=mixed"),
    *("--noprogress", f"--output_dir={tmp_path / 'out'}"),
  ]
  assert run.main(arguments) == 0
  header = (tmp_path / "out" / "metrics.csv").read_text().split("\n")[0]
  assert "test_accuracy" in header
  assert "train_loss" not in header
  flags = json.loads((tmp_path / "out" / "config.json").read_text())
  assert flags["pretrained"] == str(checkpoint)
  assert not {"encoder", "vocab_size"} & set(flags)


# Mistakes.


def refused(capsys, *arguments, task="dbpedia_distilbert"):
  assert run.main(["run", f"--task={task}", *arguments]) == 1
  (line,) = capsys.readouterr().err.strip().split("\n")
  return line


def test_a_bad_folder_is_one_line(capsys, data, checkpoint, tmp_path):
  def refusal(folder, *more):
    return refused(
      capsys, f"--pretrained={folder}", f"--data_dir={data}", *more
    )

  absent = tmp_path / "absent"
  expected = f"pretrained={str(absent)!r}: {str(absent)!r} must be an existing"
  assert expected in refusal(absent)
  assert "pretrained=' ': must be a folder with config.json" in refusal(" ")
  assert "max_length=11: must be at most 10, the positions" in refusal(
    checkpoint, "--max_length=11"
  )
  assert "encoder=tiny: is what the folder of pretrained says" in refusal(
    checkpoint, "--encoder=tiny"
  )
  assert "vocab_size=9: is what the folder of pretrained says" in refusal(
    checkpoint, "--vocab_size=9"
  )
  vocabulary = checkpoint / "vocab.txt"
  vocabulary.write_text(vocabulary.read_text() + "more\n")
  assert re.search(
    r"pretrained=.*vocab\.txt: has tokens up to 14; must be below vocab_size=",
    refusal(checkpoint, "--max_length=8"),
  )
  vocabulary.unlink()
  assert "has neither tokenizer.json nor vocab.txt" in refusal(
    checkpoint, "--max_length=8"
  )
  (checkpoint / "model.safetensors").write_bytes(b"")
  assert "is not a safetensors file" in refusal(checkpoint, "--max_length=8")


def test_flags_of_other_tasks(capsys, data, checkpoint):
  assert "pretrained='x': belongs to task agnews_distilbert, " in (
    refused(capsys, "--pretrained=x", task="digits")
  )
  assert "max_length" in refused(capsys, "--max_length=4", task="digits")
  arguments = (f"--data_dir={data}", f"--pretrained={checkpoint}")
  assert "augmentation" in refused(
    capsys, *arguments, "--augmentation=crop_flip"
  )
  assert "select_on='train'" in refused(capsys, *arguments, "--select_on=train")


def test_numbers_out_of_range(capsys, data):
  folder = f"--data_dir={data}"
  assert "max_length=2: must be" in refused(capsys, folder, "--max_length=2")
  assert "test_every=0: must be" in refused(capsys, folder, "--test_every=0")
  assert "vocab_size=20: must be at least" in refused(
    capsys, folder, "--vocab_size=20"
  )
  assert "encoder='huge': must be one of base, small, mini, tiny" in refused(
    capsys, folder, "--encoder=huge"
  )


def test_data_that_is_not_there(capsys, tmp_path):
  assert "has no dbpedia_csv/train.csv; unpack https://" in refused(
    capsys, f"--data_dir={tmp_path}"
  )
