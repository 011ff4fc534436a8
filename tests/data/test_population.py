"""Population: its folder, what is read of it, and what is refused."""

import os
import pickle
import shutil
import weakref
from concurrent import futures

import chex
import jax
import numpy as np
import pytest

from fedjax_opt.data import population as population_module
from fedjax_opt.data.clients import ClientData
from fedjax_opt.data.population import Population
from fedjax_opt.data.population_files import File
from tests.helpers.file_limits import limited
from tests.helpers.refusals import refusal
from tests.helpers.tables_of_calls import read_cases

SIZES = (3, 0, 5, 1, 0, 4, 2)
BIN = ("x.bin", "y.bin", "mask.bin")
FILES = ("population.npz", *BIN)


def clients_of(sizes=SIZES, seed=0):
  """Clients of these sizes, three fields of three kinds."""
  rng = np.random.default_rng(seed)
  return [
    {
      "x": rng.normal(size=(size, 2, 3)).astype(np.float32),
      "y": rng.integers(0, 9, size),
      "mask": rng.integers(0, 2, (size, 4)).astype(bool),
    }
    for size in sizes
  ]


@pytest.fixture
def folder(tmp_path):
  Population.write(tmp_path / "clients", clients_of())
  return tmp_path / "clients"


@pytest.fixture
def population(folder):
  return Population.open(folder)


# What is read.


def test_attributes_and_files(population, folder):
  assert population.folder == folder
  assert population.num_clients == len(SIZES)
  assert population.num_examples == sum(SIZES)
  assert population.max_size == max(SIZES)
  assert population.sizes.tolist() == list(SIZES)
  assert population.sizes.dtype == np.int32
  assert population.fields == {
    "x": (np.float32, (2, 3)),
    "y": (np.int32, ()),  # labels
    "mask": (np.bool_, (4,)),
  }
  assert sorted(os.listdir(folder)) == sorted(FILES)
  # Bare numbers.
  x = np.concatenate([client["x"] for client in clients_of()])
  assert (folder / "x.bin").read_bytes() == x.tobytes()


def test_each_client(population):
  for m, client in enumerate(clients_of()):
    chex.assert_trees_all_equal(population.client(m), client)
  for m in (-1, len(SIZES)):
    assert refusal(population.client, m) == f"client={m}: must be in [0, 7)"


def loop(clients, cohort, capacity):
  """What `gather` gives, one client after the other."""
  no_client = {name: values[:0] for name, values in clients[0].items()}
  own_clients = [clients[m] if m < len(clients) else no_client for m in cohort]
  stops = np.cumsum([0, *(len(client["y"]) for client in own_clients)])
  arrays = {}
  for name, empty in no_client.items():
    dtype = np.int32 if name == "y" else empty.dtype
    arrays[name] = np.zeros((capacity, *empty.shape[1:]), dtype)
    rows = np.concatenate([empty, *(client[name] for client in own_clients)])
    arrays[name][: stops[-1]] = rows
  return arrays, stops[:-1].tolist()


COHORTS = [
  [2, 0],
  [5, 5, 0, 5],  # one client several times
  [7, 3, 7, 99, 2],  # no client, at any place
  [1, 4],  # nothing
  [2, 3, 5, 6],  # neighbours but for an empty client
  [0, 1, 2, 3, 4, 5, 6],
  [],
]


@pytest.mark.parametrize("cohort", COHORTS)
def test_gather(population, cohort):
  capacity = 16
  rows, starts = population.gather(np.array(cohort), capacity)
  expected, expected_starts = loop(clients_of(), cohort, capacity)
  chex.assert_trees_all_equal(rows, expected)
  for name, (dtype, _) in population.fields.items():
    assert rows[name].dtype == dtype
  assert starts.dtype == np.int32
  assert starts.tolist() == expected_starts


def test_gather_into_what_is_there(population):
  out, _ = population.gather(np.array([2, 0, 5]), 12)
  arrays = dict(out)
  rows, starts = population.gather(np.array([3, 6], np.uint8), 12, out=out)
  assert all(rows[name] is arrays[name] for name in arrays)
  chex.assert_trees_all_equal(rows, loop(clients_of(), [3, 6], 12)[0])
  assert starts.tolist() == [0, 1]

  of_x = lambda x: population.gather([0], 12, out=out | {"x": x})
  requirement = "must be float32 (12, 2, 3), writable and in C order, got"
  read_only = np.zeros((12, 2, 3), np.float32)
  read_only.flags.writeable = False
  for x in (
    np.zeros((11, 2, 3), np.float32),
    np.zeros((12, 2, 3)),
    np.zeros((2, 3, 12), np.float32).T.swapaxes(1, 2),
    read_only,
  ):
    assert refusal(of_x, x) == f"out['x']: {requirement} {x.dtype} {x.shape}"
  message = refusal(lambda: population.gather([0], 12, out={}))
  assert message == f"out['x']: {requirement} object ()"


def test_gather_from_several_threads(tmp_path):
  sizes = np.random.default_rng(0).integers(0, 40, 200)
  population = Population.write(tmp_path, clients_of(sizes))
  capacity = population.capacity(50)
  cohorts = [np.random.default_rng(i).permutation(200)[:50] for i in range(8)]

  def work(cohort):
    arrays = None
    for _ in range(5):
      arrays, _ = population.gather(cohort, capacity, arrays)
    return arrays

  with futures.ThreadPoolExecutor(8) as threads:
    results = list(threads.map(work, cohorts))
  clients = clients_of(sizes)
  for rows, cohort in zip(results, cohorts, strict=True):
    chex.assert_trees_all_equal(rows, loop(clients, cohort, capacity)[0])


def test_capacity(population):
  largest = sorted(SIZES, reverse=True)
  for cohort_size in range(1, 9):
    assert population.capacity(cohort_size) == sum(largest[:cohort_size])
  assert refusal(population.capacity, 0) == "cohort_size=0: must be at least 1"
  rows, _ = population.gather([2, 5], population.capacity(2))
  assert len(rows["x"]) == 9
  assert "capacity=8: must be in [9, 2147" in refusal(
    population.gather, [2, 5], 8
  )
  assert "capacity=2147483648: must" in refusal(population.gather, [2], 2**31)


@pytest.mark.parametrize(
  ("clients", "message"), read_cases("data/refused.txt", "cohorts")
)
def test_gather_of_what_is_no_client(population, clients, message):
  assert refusal(population.gather, eval(clients), 9) == message


def test_round_trip_of_client_data(tmp_path):
  rng = np.random.default_rng(0)
  examples = {"x": rng.normal(size=(30, 3)), "y": rng.integers(0, 5, 30)}
  # Shared, repeated, unequal, none.
  rows = [rng.integers(0, 30, size) for size in (4, 9, 0, 1, 20)]
  data = ClientData.from_partition(examples, rows)
  population = Population.of_client_data(tmp_path, data)
  assert population.num_examples == 34
  for clients in (range(5), [3, 1, 1, 2]):
    loaded = population.load(None if len(clients) == 5 else np.array(clients))
    assert loaded.sizes.tolist() == [len(rows[m]) for m in clients]
    assert loaded.indices.dtype == loaded.sizes.dtype == np.int32
    for i, m in enumerate(clients):
      own_rows = loaded.indices[i, : loaded.sizes[i]]
      take = lambda pool, rows: {n: values[rows] for n, values in pool.items()}
      expected = take(examples, rows[m])
      chex.assert_trees_all_equal(take(loaded.examples, own_rows), expected)
    is_padding = np.arange(loaded.max_size) >= loaded.sizes[:, None]
    assert not loaded.indices[is_padding].any()
  for clients, message in (
    ([0, 5], "clients: has 5; must be in [0, 4]"),
    ([2, 2], "clients: must have an example, but these 2 own none"),
    ([], "clients: must have an example, but these 0 own none"),
  ):
    assert refusal(population.load, clients) == message


def test_another_process_opens_the_folder(population):
  unpickled = pickle.loads(pickle.dumps(population))
  chex.assert_trees_all_equal(unpickled.client(2), population.client(2))
  assert len(pickle.dumps(population)) < 500


# What is no population.


def test_no_folder(tmp_path):
  path = tmp_path / "none"

  def says(lacking):
    message = f"population_dir={str(path)!r}: {lacking}; give the folder of a"
    assert refusal(Population.open, str(path)) == f"{message} population"

  says("does not exist")
  path.touch()
  says("is a file")
  path.unlink()
  path.mkdir()
  (path / "population.json").touch()  # As earlier versions wrote.
  says("has no population.npz")


def change(path, delta):
  """Removes a file, or makes it this many bytes longer or shorter."""
  if delta is None:
    path.unlink()
  else:
    os.truncate(path, max(0, path.stat().st_size + delta))


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("delta", [None, -(10**9), -1, 8])
def test_a_file_is_missing_cut_or_too_long(folder, name, delta):
  if (name, delta) == ("population.npz", 8):
    pytest.skip("a .npz file may have more at its end")
  path = folder / name
  change(path, delta)
  message = refusal(Population.open, folder)
  assert name in message
  assert str(folder) in message
  if name == "x.bin":
    texts = {None: "is missing", -1: "has 359 bytes", 8: "has 368 bytes"}
    assert message == (
      f"{str(path)!r} {texts.get(delta, 'has 0 bytes')}; must have 360 bytes, "
      "15 examples of 24"
    )


@pytest.mark.parametrize(
  ("change", "message"), read_cases("data/refused.txt", "index")
)
def test_an_index_that_cannot_be(folder, change, message):
  path, change = folder / "population.npz", eval(change)
  with np.load(path) as file:
    arrays = dict(file) | change
  arrays = {name: v for name, v in arrays.items() if v is not None}
  if not change.keys() & {"fields/x", "sizes", "digests"}:
    arrays["digests"] = np.zeros((7, 4), np.uint32)
  np.savez(path, **arrays)
  refused_with = refusal(Population.open, folder)
  assert message in refused_with
  assert str(folder) in refused_with


def test_a_read_that_returns_less_goes_on(population, monkeypatch):
  whole, _ = population.gather([2, 0], 8)
  read = os.preadv
  some = lambda file, parts, pos: read(file, [parts[0][:7]], pos)
  monkeypatch.setattr(os, "preadv", some)
  chex.assert_trees_all_equal(population.gather([2, 0], 8)[0], whole)


def test_a_file_that_is_cut_while_it_is_open(population, folder):
  os.truncate(folder / "x.bin", 100)
  assert population.gather([0], 3)[0]["x"].shape == (3, 2, 3)
  message = refusal(population.gather, [0, 2], 8, kind=OSError)
  path = str(folder / "x.bin")
  assert message == (
    f"{path!r} cannot be read (it ends at byte 100: cut since it was opened)"
  )
  # An access to the map of the file would end this process.
  assert refusal(population.client, 2, kind=OSError) == message


@pytest.mark.parametrize(
  ("values", "kind", "text"),
  [
    ([1.0, 1e300], "float32", "1e+300"),
    ([0, 1 << 40], "int32", "1099511627776"),
  ],
)
def test_numbers_that_are_narrowed(tmp_path, values, kind, text):
  values = np.array(values)
  with jax.enable_x64(True):
    population = Population.write(tmp_path, [{"x": values}])
    np.testing.assert_array_equal(population.client(0)["x"], values)
  for call in (population.load, lambda: population.gather([0], 2)):
    message = refusal(call)
    path = str(tmp_path / "x.bin")
    assert message.startswith(f"{path!r}: what was read must be from -")
    assert message.endswith(
      f"because they become {kind}; row 1 has {text} (1 such rows)"
    )


# Damage.


def flip(path, bit):
  """One bit of a file becomes the other."""
  content = bytearray(path.read_bytes())
  content[bit // 8] ^= 1 << (bit % 8)
  path.write_bytes(content)


@pytest.mark.parametrize(("name", "row"), [("x", 24), ("y", 4), ("mask", 4)])
def test_a_damaged_client_is_refused_and_no_other(folder, name, row):
  path = folder / f"{name}.bin"
  flip(path, 8 * row * 8 + 3)  # The first row of client 3.
  population = Population.open(folder)
  for call in (
    lambda: population.gather([5, 3, 9, 0], 12),
    lambda: population.client(3),
    population.load,
    population.verify,
  ):
    assert refusal(call, kind=OSError) == (
      f"{str(path)!r} is damaged: it does not hold what was written of client "
      "3; write the population again"
    )
  clients = [0, 1, 2, 4, 5, 6, 7]
  chex.assert_trees_all_equal(
    population.gather(clients, 16)[0], loop(clients_of(), clients, 16)[0]
  )


def test_a_damaged_index(folder):
  path = folder / "population.npz"
  flip(path, 8 * path.read_bytes().index(np.int32(SIZES).tobytes()) + 1)
  message = refusal(Population.open, folder)
  assert message.startswith(f"{path}: cannot be read (")


def test_many_clients_are_written_and_verified_in_parts(tmp_path, monkeypatch):
  """As one by one, with few of them in memory at once."""
  monkeypatch.setattr(population_module, "_BYTES_AT_ONCE", 240)
  sizes, longest = np.random.default_rng(0).integers(0, 9, 150), []
  original = Population.write(tmp_path / "one", clients_of(sizes))
  copy = Population.of_client_data(tmp_path / "many", original.load())
  for name in BIN:
    written = (tmp_path / "one" / name).read_bytes()
    assert (tmp_path / "many" / name).read_bytes() == written
  for name, digests in original.digests.items():
    np.testing.assert_array_equal(copy.digests[name], digests)
  read_rows = File.read

  def watched(self, runs, rows):
    longest.append(rows.nbytes)
    return read_rows(self, runs, rows)

  monkeypatch.setattr(File, "read", watched)
  copy.verify()
  assert max(longest) < 2 * 240 < 24 * sizes.sum()
  flip(tmp_path / "many" / "y.bin", 32 * (int(sizes.sum()) - 1))
  client = np.flatnonzero(sizes)[-1]
  assert f"client {client};" in refusal(copy.verify, kind=OSError)


# What is written.


def test_one_client_is_held_at_a_time(tmp_path):
  references, alive = [], []

  def stream():
    for size in SIZES:
      client = {"x": np.ones((size, 50_000), np.float32)}
      references.append(weakref.ref(client["x"]))
      yield client
      del client
      alive.append(sum(array() is not None for array in references))

  Population.write(tmp_path, stream())
  assert max(alive) == 1


def test_killed_while_writing(tmp_path):
  folder, copies = tmp_path / "clients", []

  def stream():
    for m, client in enumerate(clients_of([20_000] * 5)):
      shutil.copytree(folder, tmp_path / f"killed{m}")
      copies.append(tmp_path / f"killed{m}")
      yield client

  Population.write(folder, stream())
  for copy in copies:
    message = refusal(Population.open, copy)
    assert "has no population.npz" in message
    if copy != copies[0]:
      assert "it was not written to its end" in message
      assert "is not empty" in refusal(Population.write, copy, clients_of())
  assert os.path.getsize(copies[-1] / "x.bin") > 0


def test_folders_that_are_taken(folder, tmp_path):
  advice = "give a folder that is new or empty"
  not_empty = tmp_path / "other"
  not_empty.mkdir()
  (not_empty / "x.bin").touch()
  for place, name in ((folder, "mask.bin"), (not_empty, "x.bin")):
    before = {path: path.read_bytes() for path in place.iterdir()}
    assert refusal(Population.write, place, clients_of()) == (
      f"population_dir={str(place)!r}: is not empty (it has {name!r}); {advice}"
    )
    assert {path: path.read_bytes() for path in place.iterdir()} == before
  message = refusal(Population.write, not_empty / "x.bin", clients_of())
  assert f"{str(not_empty / 'x.bin')!r} is a file; {advice}" in message


def with_third(**change):
  """Clients of whom the third differs so; None leaves a field out."""
  clients = clients_of()
  clients[2] = {
    name: values
    for name, values in (clients[2] | change).items()
    if values is not None
  }
  return clients


BAD = np.ones((5, 2, 3), np.float32)
BAD[3, 1] = np.nan


@pytest.mark.parametrize(
  ("clients", "message"), read_cases("data/refused.txt", "clients")
)
def test_clients_that_cannot_be(tmp_path, clients, message):
  folder = tmp_path / "clients"
  text = refusal(Population.write, folder, eval(clients))
  assert text.startswith(message)
  assert not folder.exists()
  folder.mkdir()  # One that was there stays, as empty as it was.
  refusal(Population.write, folder, eval(clients))
  assert os.listdir(folder) == []


def test_any_order_of_bytes_and_rows(tmp_path):
  x = np.arange(24, dtype=">f8").reshape(4, 3, 2).transpose(2, 0, 1)
  population = Population.write(tmp_path, [{"x": x}, {"x": x[:1]}])
  assert population.fields == {"x": (np.dtype("<f8"), (4, 3))}
  np.testing.assert_array_equal(population.client(0)["x"], x)


def test_what_the_clients_raise_is_passed_on(tmp_path):
  def stream():
    yield clients_of()[0]
    raise OSError("the source is gone")

  folder = tmp_path / "clients"
  message = refusal(Population.write, folder, stream(), kind=OSError)
  assert message == "the source is gone"
  assert not folder.exists()


@pytest.mark.parametrize("limit", [100, 20_000])
def test_a_full_disk(tmp_path, limit):
  # Told at the end of few examples, or while many are written.
  clients = clients_of([7] if limit == 100 else [100_000] * 3)
  folder = tmp_path / "one"
  with limited(limit):
    message = refusal(Population.write, folder, clients, kind=OSError)
  path = str(folder / "x.bin")
  assert message == f"{path!r} cannot be written (File too large)"
  assert not folder.exists()
