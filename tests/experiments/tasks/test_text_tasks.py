"""Tasks of texts: what is loaded, from what they start, and what is refused."""

import functools
import shlex

import jax
import numpy as np
import pytest

from fedjax_opt.data.digest import changed
from fedjax_opt.datasets import texts, tokenization
from fedjax_opt.models import Encoder
from tests.helpers import text_data
from tests.helpers import text_models as plain
from tests.helpers.commands import (
  call,
  config_of,
  prepare,
  spec_of,
  summary_of,
  table,
  task_of,
)
from tests.helpers.refusals import refusal

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
  return functools.partial(
    task_of, "--task=dbpedia_distilbert", f"--data_dir={data}"
  )


TINY = ("--encoder=tiny", "--vocab_size=90")


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
  tokens = np.concatenate([task.train["x"], load(*TINY).test["x"]])
  assert tokens[:, -1].any()


def test_every_tenth_test_text_of_dbpedia_and_all_of_ag_news():
  for name, every in (("dbpedia", 10), ("agnews", 1)):
    task = spec_of(f"--task={name}_distilbert").task
    assert task.static["test_every"] == every


@pytest.mark.slow
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


def test_features_are_mean_hidden_states_and_are_computed_once(
  data, checkpoint, monkeypatch
):
  arguments = (
    *("--task=dbpedia_features", f"--data_dir={data}", "--max_length=8"),
    *(f"--pretrained={checkpoint}", "--test_every=2"),
  )
  task = task_of(*arguments)
  tokens = texts.load_tokens(
    "dbpedia", "test", tokenization.read(checkpoint, 14), 8, data_dir=data
  )
  leaves = plain.leaves("distilbert", num_classes=14)
  states = plain.hidden_states("distilbert", leaves, tokens["x"][::2])
  mean = (states * (tokens["x"][::2] != 0)[..., None]).sum(1)
  expected = mean / np.linalg.norm(mean, axis=1, keepdims=True)
  np.testing.assert_allclose(task.test["x"], expected, atol=1e-5)
  np.testing.assert_array_equal(task.test["y"], tokens["y"][::2])
  shapes = jax.tree.map(np.shape, task.init(jax.random.key(0)))
  assert shapes == {"output": {"kernel": (plain.HIDDEN, 14), "bias": (14,)}}
  monkeypatch.setattr(Encoder, "embed", None)
  second_task = task_of(*arguments)
  np.testing.assert_array_equal(second_task.train["x"], task.train["x"])


@pytest.mark.slow
def test_a_head_for_other_classes_is_drawn_by_the_seed(load, tmp_path):
  folder = plain.write(tmp_path / "four", "bert")
  task = load(f"--pretrained={folder}", "--max_length=8")
  first, second = (task.init(jax.random.key(seed)) for seed in (0, 1))
  assert first["head"]["output"]["kernel"].shape == (plain.HIDDEN, 14)
  is_same = jax.tree.map(lambda a, b: bool((a == b).all()), first, second)
  assert all(jax.tree.leaves({**is_same, "head": {}}))
  assert not is_same["head"]["dense"]["kernel"]
  assert not is_same["head"]["output"]["kernel"]


def test_ag_news_by_tfds(tmp_path):
  folder = tmp_path / "tfds"
  text_data.prepare_ag_news(folder)
  task = task_of("--task=agnews_distilbert", f"--data_dir={folder}", *TINY)
  assert task.num_classes == 4
  assert len(task.train["y"]) == 56
  assert len(task.test["y"]) == 28


def test_an_encoder_is_known_by_its_weights(data, checkpoint):
  flags = f"--data_dir={data} --pretrained={checkpoint} --max_length=6"
  flags += " --task=dbpedia_distilbert --num_clients=2 --batch_size=2"
  before = prepare(*flags.split()).loaded.digests
  arrays = plain.leaves("distilbert", num_classes=15)
  plain.write(checkpoint, "distilbert", arrays, "distilbert.")
  now = prepare(*flags.split()).loaded.digests
  assert changed(before, now) == "other data (pretrained)"


@pytest.mark.slow
def test_a_run(data, checkpoint, tmp_path):
  arguments = [
    *("--task=dbpedia_distilbert", f"--data_dir={data}"),
    *(f"--pretrained={checkpoint}", "--max_length=6"),
    *("--client=delta_sgd", "--num_clients=4", "--cohort_size=2", "--rounds=1"),
    *("--batch_size=4", "--partition=iid", "--precision=mixed"),
    *("--lora_rank=2", "--lora_alpha=4"),
    *("--noprogress", f"--output_dir={tmp_path / 'out'}"),
  ]
  assert call(*arguments) == 0
  header = (tmp_path / "out" / "metrics.csv").read_text().split("\n")[0]
  assert "test_accuracy" in header
  assert "train_loss" not in header
  flags = config_of(tmp_path / "out")
  assert flags["pretrained"] == str(checkpoint)
  assert not {"encoder", "vocab_size"} & set(flags)
  # Adapters of two layers' queries and values, and the head, are sent.
  hidden, per_layer = plain.HIDDEN, 2 * plain.HIDDEN * 2
  head = hidden * hidden + hidden + hidden * 14 + 14
  summary = summary_of(tmp_path / "out")
  sent = 4 * (2 * plain.LAYERS * per_layer + head)
  assert summary["cost"]["bytes_up_per_round"] == sent


@pytest.mark.parametrize(("arguments", "message"), table("texts"))
def test_is_refused(load, checkpoint, tmp_path, arguments, message):
  names = {"folder": tmp_path, "encoder": checkpoint}
  line = refusal(load, *shlex.split(arguments.format(**names)))
  assert line.startswith(message.format(**names))
