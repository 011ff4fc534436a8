"""One's own data: what is read, held out, and refused."""

import jax
import numpy as np
import pytest

from experiments import convert
from fedjax_opt import Population
from fedjax_opt.data.clients import ClientData
from tests.helpers.commands import call, prepare, spec_of, table, task_of
from tests.helpers.own_arrays import N, arrays
from tests.helpers.refusals import refusal


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
  data = arrays("x", "y", "x_test", "y_test")
  other = load(
    write(x_train=data["x"], y_train=data["y"], x_test=data["x_test"],
          y_test=data["y_test"])
  )  # fmt: skip
  assert marks(other.train) == marks(task.train)
  with pytest.raises(ValueError, match="has both x and x_train; give one of"):
    load(write(**data, x_train=data["x"]))


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
  data = arrays("x", "y", "x_test", "y_test")
  ids = np.array(["b", "a", "c"])[np.arange(N) % 3]
  task = load(write(**data, client_ids=ids))
  assert task.clients.sizes.tolist() == [20] * 3
  assert marks(task.test) == (data["x_test"][:, 0, 0]).tolist()
  ClientData.from_client_ids(arrays("x", "y"), ids).to_npz(tmp_path / "c.npz")
  second_task = load(tmp_path / "c.npz", "--test_fraction=0.1")
  assert second_task.clients.sizes.tolist() == [18] * 3
  assert len(second_task.test["y"]) == 6


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


def test_dark_bytes_are_noted(write):
  data = arrays("x", "y")
  file = write(x=data["x"] % 17, y=data["y"])
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
  assert refusal(spec_of, *flags, "--alpha=0.5") == (
    "alpha=0.5: the clients of task npz_mlp come with its data; leave alpha out"
  )


def test_convert(write, tmp_path, error_of):
  file = write(**arrays("x", "y", "client_ids"))
  flags = ("--task=npz_mlp", f"--data_file={file}")
  on_disk = (*flags, f"--population_dir={tmp_path / 'clients'}")
  assert call(*on_disk, "--test_fraction=0.3", program=convert) == 0
  written = Population.open(tmp_path / "clients")
  job = prepare(
    *flags, "--test_fraction=0.3", "--cohort_size=2", "--batch_size=2",
    f"--output_dir={tmp_path / 'a'}",
  )  # fmt: skip
  np.testing.assert_array_equal(written.sizes, job.clients[0].sizes)
  folder = f"--output_dir={tmp_path / 'b'}"
  assert error_of(*on_disk, "--cohort_size=2", folder) == (
    "--test_fraction=0.2: the clients of --population_dir were written with "
    "0.3, so they may have test examples; give --test_fraction=0.3"
  )
  # Of the same file a run may now hold out what a client has.
  write(**changed(client_ids=np.arange(N) % 5))
  assert error_of(*on_disk, "--test_fraction=0.3", folder) == (
    f"--population_dir={str(tmp_path / 'clients')!r}: other test examples were "
    "held out when its clients were written, so they may have some of these; "
    "write them again with these flags"
  )


# Bad files: one line, which names the file. What no examples may be is tested
# in tests/data.


def changed(**changes):
  """The arrays x and y, some of them changed or added."""
  return arrays("x", "y") | changes


OWN = arrays("x", "y", "client_ids", "x_test", "y_test")
X, Y, X_TEST, Y_TEST = (OWN[n] for n in ("x", "y", "x_test", "y_test"))
HELD = {
  "plain": changed(),
  "own": OWN,
  "vectors": changed(x=X.reshape(N, -1)),
  "small": changed(x=X[:, :2, :2]),
  "no_x": {"X": X, "y": Y},
  "no_y": {"x": X},
  "nothing": {},
  "unknown": changed(writer=Y),
  "one_hot": changed(y=np.eye(3, dtype=int)[Y]),
  "objects": changed(x=np.array([1, None], dtype=object)),
  "negative": changed(y=Y - 1),
  "far_labels": changed(y=Y * 1000),
  "one_class": changed(y=Y * 0),
  "few_classes": changed(num_classes=2),
  "scalars": changed(x=X[:, 0, 0]),
  "test_shape": changed(x_test=X_TEST[:, :4], y_test=Y_TEST),
  "test_alone": changed(x_test=X_TEST),
  "test_labels": changed(x_test=X_TEST, y_test=Y_TEST - 1),
  "test_type": changed(x_test=X_TEST / 255, y_test=Y_TEST),
  "two_kinds_of_ids": changed(client_ids=Y, sizes=Y),
}


@pytest.mark.parametrize(("arguments", "message"), table("npz"))
def test_is_refused(write, arguments, message):
  held, *flags = arguments.split()
  file = write(**HELD[held])
  assert refusal(load, file, *flags) == message.format(file=file)


@pytest.mark.parametrize("content", [None, b"", b"text", b"PK\x03\x04"])
def test_no_npz_file(tmp_path, content):
  path = tmp_path / "own.npz"
  if content is not None:
    path.write_bytes(content)
  message = f"data_file={str(path)!r}: cannot be read"
  assert refusal(load, path).startswith(message)
