"""The benchmarks: each does its smallest part, and says what it should."""

import importlib
import pathlib

import jax
import numpy as np
import pytest

import fedjax_opt as fo

FOLDER = pathlib.Path(__file__).parents[2] / "benchmarks"
# Those that need another framework.
ELSEWHERE = {path.stem for path in FOLDER.glob("*_worker.py")}
ELSEWHERE -= {"fedjax_opt_worker"}
PYTHONS = [f"{n}_python" for n in ("fedjax", "torch", "flower")]
NAMES = sorted({path.stem for path in FOLDER.glob("*.py")} - ELSEWHERE)


@pytest.fixture
def load(monkeypatch):
  monkeypatch.syspath_prepend(str(FOLDER))
  return importlib.import_module


@pytest.mark.parametrize("name", NAMES)
def test_benchmark_can_be_imported(load, name):
  assert load(name).__doc__


@pytest.mark.slow
def test_a_protocol_has_the_same_data_on_both_sides(load, tmp_path):
  protocols, peers = load("protocols"), load("protocol_peers")
  protocol = protocols.PROTOCOLS[0]._replace(
    num_clients=4, examples=8, cohort_size=2, batch_size=4, rounds=3, rate=1.0,
    seeds=2,
  )  # fmt: skip
  rng = np.random.default_rng(0)
  y = np.repeat(np.arange(2, dtype=np.int32), 16)
  x = rng.integers(0, 100, (32, 28, 28, 1)) + 100 * y[:, None, None, None]
  rows = rng.permutation(32).reshape(4, 8)
  path = tmp_path / "data.npz"
  x = x.astype(np.uint8)
  np.savez(path, x=x, y=y, rows=rows, x_test=x[::2], y_test=y[::2])
  arguments = protocol._asdict(), str(path)
  result = peers.run(protocols.ours, *arguments, begun=0.0)
  assert result["accuracy"] == [1.0, 1.0]  # Dark and bright images.
  clients, test = peers.read(str(path))
  assert test["x"].shape == (16, 1, 28, 28)
  assert test["x"].min() == -1.0
  np.testing.assert_array_equal(clients[3]["y"], y[rows[3]])


@pytest.mark.slow
def test_clients_of_fl_simulator_clip_and_decay(load):
  module = load("fl_simulator")
  image = np.ones((1, 32, 32, 3))
  shapes = jax.eval_shape(module.MODEL.init, jax.random.key(0), image)
  sizes = [leaf.size for leaf in jax.tree.leaves(shapes)]
  assert sum(sizes) == 11_181_642  # As torchvision's.
  loss = lambda params, batch, rng: 50 * ((params - batch["x"]) ** 2).sum(-1)
  x, start = np.float32([[1, 2], [3, 5]]), np.float32([0.5, -1])
  data = fo.ClientData.from_partition({"x": x}, [np.arange(2)])
  run = lambda *arguments: (
    fo.simulate(
      module.as_published(*arguments), start, data, rounds=1, batch_size=2
    ).params
  )

  def moved(pull):
    gradient = 100 * (start - x.mean(0)) - pull * start
    clipped = 10 * gradient / np.linalg.norm(gradient)
    return -0.1 * (clipped + (0.001 + pull) * start)

  result = run(fo.scaffold(loss, 0.1), 0.1)
  np.testing.assert_allclose(result, start + moved(0), rtol=1e-5)
  speed = fo.fed_speed(loss, 0.1, lam=10.0, rho=0.0, all_duals=True)
  result = run(speed, 0.1, 0.1)  # The dual variable moves the server again.
  np.testing.assert_allclose(result, start + 2 * moved(0.1), rtol=1e-5)


def test_a_table_of_rounds(load):
  shared, key = load("shared"), ("mlp", "floor", 10)

  def of(*turns):
    run = object.__new__(shared.Run)
    run.turns, run.last = turns, {"peak": 100.0}
    run.first = {"wall_seconds": run.seconds + 1.25}
    return run

  runs = {key: of(1, 2, 3), ("mlp", "fedjax_opt", 10): of(3, 4, 5)}
  frame = load("round_time").with_ratios(shared.frame_of(runs))
  row = shared.table_of(frame).splitlines()[3]
  ours = "| mlp | fedjax_opt | 10 | 4000 | 3000 to 5000 | 1.25 | 100 |"
  assert row == f"{ours} - | - | 2 | 1 |"


HLO = """
%inner (p: f32[2]) -> f32[2] {
  %a = f32[2]{0} fusion(%p), kind=kLoop
  ROOT %b = f32[2]{0} custom-call(%a), custom_call_target="__cudnn$convForward"
}
%outer (q: f32[2]) -> f32[2] {
  %c = f32[2]{0} copy(%q)
  %d = f32[2]{0} add(%c, %c)
  %e = f32[2]{0} all-reduce-start(%d), to_apply=%sum
  ROOT %f = f32[2]{0} while(%e), condition=%cond.2, body=%inner
}
ENTRY %main (r: f32[2]) -> f32[2] {
  %g = f32[2]{0} fusion(%r), kind=kLoop
  ROOT %h = f32[2]{0} while(%g), condition=%cond.1, body=%outer
}
"""


def test_kernels_and_exchanges_are_read_from_a_program(load):
  compiled = load("compiled")
  assert compiled.loops(HLO) == [1, 2]
  assert compiled.exchanges(HLO) == {"all-reduce": 1}


def test_a_rehearsal_has_each_kind_of_measurement(load):
  module = load("accelerator")
  options = module.argparse.Namespace(tiny=True, **dict.fromkeys(PYTHONS, "p"))
  jobs = module.jobs(options)
  assert tuple(jobs) == module.REHEARSED
  models = load("fedjax_opt_worker")
  for job in filter(None, jobs.values()):
    name = job.workload.name
    assert name in models.MODELS or name in models.TRANSFORMERS
    assert job.workload.num_clients == 2


def test_what_failed_or_was_late_is_made_again(load, tmp_path, capsys):
  shared, pages = load("shared"), []
  answers = {"a": {"found": 1}, "b": shared.WorkerError("no compiler")}
  answers["c"] = shared.LateError("no time")

  def make(key):
    if isinstance(answers[key], Exception):
      raise answers[key]
    return answers.pop(key)

  page = tmp_path / "new" / "page.md"
  text_of = lambda records: pages.append(dict(records)) or str(len(records))
  attempt = lambda: shared.recorded(page, "abc", make, text_of)
  assert attempt()
  assert page.read_text() == "2"
  assert pages[-1] == {
    "a": {"found": 1},
    "b": {"error": "no compiler"},
  }
  answers |= {"b": {"found": 2}, "c": {"found": 3}}
  assert not attempt()
  assert [pages[-1][key]["found"] for key in "abc"] == [1, 2, 3]


def test_runs_to_compile_are_command_lines(load):
  module = load("accelerator_compile")
  for run in module.RUNS.values():
    module.ours.parser.parse(["run", *run.flags.split()])
