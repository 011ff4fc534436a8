"""One's own data: what is read, held out, and refused."""

import json
import re

import jax
import numpy as np
import pytest

from experiments import convert
from fedjax_opt import Population
from fedjax_opt.data.clients import ClientData
from tests.experiments.commands import call, prepare, spec_of, task_of

N = 60


def arrays(*names, n=N, seed=0):
  """Images of three classes by name, of those names that are asked for."""
  rng = np.random.default_rng(seed)
  x = rng.integers(256, size=(n, 8, 8), dtype=np.uint8)
  x[:, 0, 0] = np.arange(n)  # Tells the examples apart.
  found = {
    "x": x,
    "y": np.arange(n) % 3,
    "client_ids": np.arange(n) // 10,
    "x_test": x[:12] // 2,
    "y_test": np.arange(12) % 4,
  }
  return {name: found[name] for name in names}


@pytest.fixture
def write(tmp_path):
  """`(**arrays) -> str`, the path of a file that holds them."""

  def write(**arrays):
    path = tmp_path / "own.npz"
    np.savez(path, **arrays)
    return str(path)

  return write


def load(file, *arguments):
  """The task; of npz_mlp if no task is given."""
  return task_of("--task=npz_mlp", f"--data_file={file}", *arguments)


def marks(examples):
  return examples["x"].reshape(len(examples["y"]), -1)[:, 0].tolist()


def test_a_test_part_is_held_out_of_each_class(write):
  file = write(**arrays("x", "y"))
  task = load(file)
  assert task.clients is None
  assert task.num_classes == 3
  assert task.train["x"].shape == (48, 8, 8, 1)
  assert task.train["x"].dtype == np.uint8
  assert task.train["y"].dtype == np.int32
  assert sorted(marks(task.train) + marks(task.test)) == list(range(N))
  assert np.bincount(task.test["y"]).tolist() == [4, 4, 4]
  # The seed of the runs does not matter, the fraction does.
  assert marks(load(file, "--seed=5").test) == marks(task.test)
  assert len(load(file, "--test_fraction=0.5").test["y"]) == 30


def test_a_test_part_of_the_file(write):
  task = load(write(**arrays("x", "y", "x_test", "y_test")))
  assert marks(task.train) == list(range(N))
  assert task.test["x"].shape == (12, 8, 8, 1)
  assert task.num_classes == 4  # Of both parts.
  found = arrays("x", "y", "x_test", "y_test")
  other = load(
    write(x_train=found["x"], y_train=found["y"], x_test=found["x_test"],
          y_test=found["y_test"])
  )  # fmt: skip
  assert marks(other.train) == marks(task.train)


def test_clients_of_the_file_each_give_their_share(write):
  task = load(write(**arrays("x", "y", "client_ids")))
  assert task.clients.num_clients == 6
  assert task.clients.sizes.tolist() == [8] * 6
  trained = []
  for m in range(6):
    rows = task.clients.indices[m, : task.clients.sizes[m]]
    mine = task.clients.examples["x"][rows][:, 0, 0, 0]
    assert (mine // 10 == m).all()
    trained += mine.tolist()
  assert sorted(trained + marks(task.test)) == list(range(N))


def test_words_as_client_ids_and_a_file_of_to_npz(write, tmp_path):
  found = arrays("x", "y", "x_test", "y_test")
  ids = np.array(["b", "a", "c"])[np.arange(N) % 3]
  task = load(write(**found, client_ids=ids))
  assert task.clients.sizes.tolist() == [20] * 3
  assert marks(task.test) == (found["x_test"][:, 0, 0]).tolist()
  ClientData.from_client_ids(arrays("x", "y"), ids).to_npz(tmp_path / "c.npz")
  again = load(tmp_path / "c.npz", "--test_fraction=0.1")
  assert again.clients.sizes.tolist() == [18] * 3
  assert len(again.test["y"]) == 6


@pytest.mark.parametrize(
  "kind", [np.uint8, np.float64, np.float16, np.int64, bool]
)
def test_only_bytes_are_scaled(write, kind):
  logistic, y = "--task=npz_logistic", np.arange(6) % 3
  task = load(write(x=np.full((6, 4, 4), 1, kind), y=y), logistic)
  batch = {n: v[:1] for n, v in task.train.items()}
  params = task.init(jax.random.key(0))
  scaled = {"x": batch["x"] / 255.0 if kind is np.uint8 else batch["x"]}
  floats = load(write(x=np.ones((6, 4, 4)), y=y), logistic)
  expected = floats.loss_fn(params, batch | scaled, None)
  np.testing.assert_allclose(task.loss_fn(params, batch, None), expected)
  assert batch["x"].dtype == (np.uint8 if kind is np.uint8 else np.float32)


@pytest.mark.parametrize(
  ("shape", "models"),
  [
    ((7,), ["logistic", "mlp", "relu_mlp"]),
    ((8, 6), ["logistic", "mlp", "cnn", "small_cnn"]),
    ((28, 30, 3), ["mlp", "cnn"]),
    ((8, 8, 1), ["resnet20"]),
  ],
)
def test_shapes_and_the_models_that_take_them(write, shape, models):
  x = np.random.default_rng(0).normal(size=(N, *shape))
  file = write(x=x, y=np.arange(N) % 3)
  for model in models:
    task = load(file, f"--task=npz_{model}")
    batch = {name: values[:5] for name, values in task.train.items()}
    loss = jax.eval_shape(
      lambda key, task=task, batch=batch: task.loss_fn(
        task.init(key), batch, key
      ),
      jax.random.key(0),
    )
    assert loss.shape == (5,)


def test_a_run_says_what_was_held_out(write, tmp_path, capsys):
  file = write(**arrays("x", "y"))
  flags = ("--task=npz_logistic", f"--data_file={file}", "--num_clients=3",
           "--cohort_size=2", "--batch_size=5", "--rounds=2", "--noprogress",
           "--examples_per_client=10")  # fmt: skip
  assert call(*flags, f"--output_dir={tmp_path / 'run'}") == 0
  out = capsys.readouterr().out
  assert f"test part: 12 examples, 0.2 of {file}, held out at random\n" in out
  assert "note:" not in out
  config = json.loads((tmp_path / "run" / "config.json").read_text())
  assert config["test_fraction"] == 0.2
  assert config["data_file"] == file


def test_dark_bytes_are_noted(write):
  found = arrays("x", "y")
  file = write(x=found["x"] % 17, y=found["y"])
  assert load(file).notes[1:] == (
    f"note: x of {file} is uint8, so divided by 255, but is at most 16; for "
    "values up to 1 save x / 16",
  )


def test_flags_that_depend_on_the_file(write):
  """With client_ids there is no partition, and batches are small."""
  flags = ("--task=npz_mlp", f"--data_file={write(**arrays('x', 'y'))}")
  resolved = spec_of(*flags, "--alpha=0.5").values()
  assert (resolved["alpha"], resolved["batch_size"]) == (0.5, 64)
  write(**arrays("x", "y", "client_ids"))
  resolved = spec_of(*flags)
  assert (resolved.partition, resolved.batch_size) == (None, 10)
  message = (
    "alpha=0.5: the clients of task npz_mlp come with its data; leave alpha out"
  )
  with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
    spec_of(*flags, "--alpha=0.5")


def test_convert(write, tmp_path, capsys):
  file = write(**arrays("x", "y", "client_ids"))
  flags = ("--task=npz_mlp", f"--data_file={file}")
  on_disk = (*flags, f"--population_dir={tmp_path / 'clients'}")
  assert call(*on_disk, "--test_fraction=0.3", program=convert) == 0
  written = Population.open(tmp_path / "clients")
  own = prepare(
    *flags, "--test_fraction=0.3", "--cohort_size=2", "--batch_size=2",
    f"--output_dir={tmp_path / 'a'}",
  )  # fmt: skip
  np.testing.assert_array_equal(written.sizes, own.data[0].sizes)
  assert (
    call(*on_disk, "--cohort_size=2", f"--output_dir={tmp_path / 'b'}") == 1
  )
  assert capsys.readouterr().err == (
    "error: test_fraction=0.2: the clients of population_dir were written with "
    "0.3, so they may have test examples; give that\n"
  )


# Bad files: one line, which names the file. What no examples may be is tested
# in tests/data.


def changed(**changes):
  """The arrays x and y, some of them changed or added."""
  return arrays("x", "y") | changes


OWN = arrays("x", "y", "client_ids", "x_test", "y_test")
X, Y = OWN["x"], OWN["y"]
BAD_FILES = {
  "no x": ({"X": X, "y": Y}, "has no array x; it holds X, y"),
  "no y": ({"x": X}, "has no array y; it holds x"),
  "nothing": ({}, "has no array x; it holds nothing"),
  "unknown": (
    changed(writer=Y),
    "has an array 'writer', which means nothing here; must be among x, y, "
    "client_ids, x_test, y_test, num_classes",
  ),
  "one-hot": (
    changed(y=np.eye(3, dtype=int)[Y]),
    "labels y must be integers of shape [N], got int64 (60, 3); give "
    "y.argmax(1)",
  ),
  "objects": (
    changed(x=np.array([1, None], dtype=object)),
    "cannot be read (Object arrays cannot be loaded when allow_pickle=False); "
    "a NumPy .npz file of plain arrays is needed",
  ),
  "negative": (
    changed(y=Y - 1),
    "labels y must be in [0, 2147483647), but row 0 has -1 (20 such rows)",
  ),
  "far labels": (
    changed(y=Y * 1000),
    "labels y go to 2000, more than there are examples; must be from 0, or "
    "give the array num_classes",
  ),
  "few classes": (
    changed(num_classes=2),
    "num_classes must be one whole number of at least 3, as the labels are, "
    "got 2",
  ),
  "scalars": (
    changed(x=X[:, 0, 0]),
    "x must be numbers of shape [N, d], [N, H, W] or [N, H, W, channels], got "
    "uint8 [60]",
  ),
  "test shape": (
    changed(x_test=OWN["x_test"][:, :4], y_test=OWN["y_test"]),
    "x_test has examples of shape [4, 8]; must be [8, 8] as in x",
  ),
  "test alone": (
    changed(x_test=OWN["x_test"]),
    "has x_test without y_test; give both or none",
  ),
  "test labels": (
    changed(x_test=OWN["x_test"], y_test=OWN["y_test"] - 1),
    "in the test part, labels y must be in [0, 2147483647), but row 0 has -1 "
    "(3 such rows)",
  ),
  "test type": (
    changed(x_test=OWN["x_test"] / 255, y_test=OWN["y_test"]),
    "x_test is float64 and x is uint8; must be alike, because only uint8 is "
    "divided by 255",
  ),
  "two kinds of ids": (
    changed(client_ids=Y, sizes=Y),
    "has client_ids, sizes; must be client_ids alone, or indices and sizes",
  ),
}


VECTORS = {"x": X.reshape(N, -1), "y": Y}
# Names of arrays of OWN, or the arrays; flags; the message.
BAD_FLAGS = [
  (VECTORS, "--task=npz_cnn", "data_file='{file}': x has shape [N, 64], but "
   "model cnn needs images [N, H, W] or [N, H, W, channels]; give "
   "--task=npz_mlp or npz_logistic"),
  (VECTORS, "--augmentation=crop_flip", "data_file='{file}': x has shape [N, "
   "64], no images that could be cropped; leave augmentation out"),
  (changed(), "--task=npz_vgg16", "data_file='{file}': x has images of shape "
   "[8, 8, 1], too small for model vgg16; give --task=npz_mlp or another, or "
   "larger images"),
  (changed(x=X[:, :2, :2]), "--task=npz_cnn", "data_file='{file}': x has "
   "images of shape [2, 2, 1], too small for model cnn; give --task=npz_mlp or "
   "another, or larger images"),
  (OWN, "--test_fraction=0.1", "test_fraction=0.1: {file} has a test part of "
   "its own; leave test_fraction out"),
  (changed(), "--test_fraction=0", "test_fraction=0: {file} has no x_test and "
   "y_test; must be above 0"),
  (changed(), "--test_fraction=1", "test_fraction=1: must be in [0, 1)"),
  (changed(), "--data_dir=/", "data_dir='/': belongs to task mnist_logistic, "
   "mnist_mlp, mnist_relu_mlp, ..., not to task npz_mlp; give "
   "--task=mnist_logistic, or leave data_dir out"),
  (changed(), "--data_file=", "data_file: task npz_mlp needs it; must be a "
   ".npz file with the arrays x [N, ...] and y [N]"),
  (changed(), "--task=digits", "data_file='{file}': belongs to task "
   "npz_logistic, npz_mlp, npz_relu_mlp, ..., not to task digits; give "
   "--task=npz_logistic, or leave data_file out"),
  (changed(), "--task=digits --test_fraction=0.1", "test_fraction=0.1: belongs "
   "to task npz_logistic, npz_mlp, npz_relu_mlp, ..., not to task digits; give "
   "--task=npz_logistic, or leave test_fraction out"),
]  # fmt: skip
REFUSED = BAD_FLAGS + [
  (held, "", f"data_file='{{file}}': {message}")
  for held, message in BAD_FILES.values()
]


@pytest.mark.parametrize(("held", "arguments", "message"), REFUSED)
def test_is_refused(write, held, arguments, message):
  file = write(**held)
  message = re.escape(message.format(file=file))
  with pytest.raises(ValueError, match=f"^{message}$"):
    load(file, *arguments.split())


@pytest.mark.parametrize("content", [None, b"", b"text", b"PK\x03\x04"])
def test_no_npz_file(tmp_path, content):
  path = tmp_path / "own.npz"
  if content is not None:
    path.write_bytes(content)
  message = f"data_file={str(path)!r}: cannot be read"
  with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
    load(path)
