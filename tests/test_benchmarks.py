"""The benchmarks: they can be imported, and divide time as they say."""

import importlib
import json
import pathlib

import numpy as np
import pytest

from experiments import run
from fedjax_opt.results.checkpoint import Checkpoints

FOLDER = pathlib.Path(__file__).parent.parent / "benchmarks"
# Those that need another framework.
ELSEWHERE = {"fedjax_worker", "flower_worker", "pfl_worker", "torch_worker"}
PYTHONS = [f"{n}_python" for n in ("fedjax", "torch", "pfl", "flower")]
NAMES = sorted({path.stem for path in FOLDER.glob("*.py")} - ELSEWHERE)


@pytest.fixture
def load(monkeypatch):
  monkeypatch.syspath_prepend(str(FOLDER))
  return importlib.import_module


@pytest.mark.parametrize("name", NAMES)
def test_benchmark_can_be_imported(load, name):
  assert load(name).__doc__


def test_rounds_of_a_turn_and_the_memory_planned_for_them(load):
  worker = load("fedjax_opt_worker")
  workload = load("workloads").WORKLOADS["least_squares"]
  run_rounds = worker.build_fed_avg(workload._replace(num_steps=1))
  found = run_rounds(2)
  assert found["seconds"] > 0
  assert found["planned"] > 0


def test_every_moment_counts_for_one_stage(load):
  first_result = load("first_result")
  interval = first_result.Interval
  stages = [interval("init", 1, 4), interval("other compilation", 5, 9)]
  events = [
    interval("tracing", 2, 3),  # Within another stage.
    interval("tracing", 5, 7),
    interval("compiling", 6, 8),  # In a thread, while tracing goes on.
  ]
  seconds = first_result.split(stages, events, 0, 10)
  some = {name: value for name, value in seconds.items() if value}
  assert some == {
    "init": 3,
    "tracing": 1,
    "compiling": 2,
    "other compilation": 1,
    "other": 3,
  }


def test_a_soak_compares_the_last_third_with_the_first(load):
  soak = load("soak")
  megabytes = [500, 100, 100, 104, 105, 106, 110]  # The first is left out.
  speeds = [1, 50, 50, 9, 9, 45, 45]
  minutes = [soak.Minute(*m) for m in zip(megabytes, speeds, strict=True)]
  assert soak.change(minutes) == pytest.approx((8, -10))


def test_a_soak_reads_whole_rows_alone(load, tmp_path):
  soak, path = load("soak"), tmp_path / "metrics.csv"
  assert soak.last_round(path) == 0
  path.write_text("point,round,loss\n")
  assert soak.last_round(path) == 0
  path.write_text("point,round,loss\n0,50,0.5\n0,100,0.4\n0,15")
  assert soak.last_round(path) == 100
  path.write_text("point,round,loss\n" + "0,50,0.5\n" * 5000 + "0,7,0.5\n")
  assert soak.last_round(path) == 7


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
  assert compiled.loops(HLO) == [(0, 1), (1, 2)]
  assert compiled.exchanges(HLO) == {"all-reduce": 1}
  assert compiled.convolutions(HLO) == {"cudnn": 1, "other": 0}


@pytest.mark.parametrize(
  ("loops", "expected"),
  [
    ([(0, 40), (1, 12)], (12, 40)),
    ([(0, 40), (1, 12), (2, 4)], (12, 40)),  # Within a step.
    ([(0, 40), (1, 5), (1, 30), (2, 4)], (30, 40)),
    ([(0, 3), (1, 40), (2, 9)], (40, 3)),  # Settings one after the other.
    ([(0, 7)], (7, 0)),
    ([], (0, 0)),
  ],
)
def test_kernels_of_a_step_and_of_the_rest(load, loops, expected):
  kernels = load("accelerator_compile").kernels
  named = [{"depth": d, "kernels": k} for d, k in loops]
  assert kernels(named) == expected


class Clock:
  """Time that passes as a job says."""

  def __init__(self):
    self.now = 0.0

  def monotonic(self):
    return self.now


@pytest.fixture
def accelerator(load, monkeypatch, tmp_path):
  """`(budget, failing) -> (names that ran, failed)`, without a process."""
  module = load("accelerator")

  def run(budget, failing=()):
    clock, ran = Clock(), []
    monkeypatch.setattr(module, "time", clock)

    def one(job, folder, options, left):
      ran.append(job.name)
      clock.now += job.seconds
      return {"error": "why"} if job.name in failing else {"ms_per_round": 2.0,
              "range_ms": [1.0, 3.0], "compile_seconds": 4.0}  # fmt: skip

    monkeypatch.setattr(module, "run_one", one)
    jobs = [
      module.Job(name, seconds, "round", {"name": "of the case"})
      for name, seconds in (("a", 10), ("b", 50), ("c", 20))
    ]
    options = module.argparse.Namespace(budget_s=budget, tiny=False)
    return ran, module.run_all(jobs, tmp_path, options)

  return run


def test_what_does_not_fit_into_the_time_is_left_out(accelerator, tmp_path):
  assert accelerator(35) == (["a", "c"], False)
  report = (tmp_path / "report.md").read_text()
  assert "| a | 2 | 1 to 3 | – | – | – | 4 |" in report
  assert "- b: needs about 50 s, and 25 s left" in report
  assert (tmp_path / "rounds.png").stat().st_size > 0
  # The next time it goes on with that.
  assert accelerator(60) == (["b"], False)
  assert "Left out" not in (tmp_path / "report.md").read_text()
  assert accelerator(60) == ([], False)


def test_what_failed_is_named_and_tried_again(accelerator, tmp_path):
  assert accelerator(100, failing=["b"]) == (["a", "b", "c"], True)
  assert "- b: why" in (tmp_path / "report.md").read_text()
  assert accelerator(100) == (["b"], False)


def test_jobs_have_names_of_their_own_and_the_device_comes_first(load):
  module = load("accelerator")
  options = module.argparse.Namespace(
    data_dir="D", tiny=False, **dict.fromkeys(PYTHONS, "P")
  )
  jobs = module.jobs(options)
  files = [module._file_name(job.name) for job in jobs]
  assert len(set(files)) == len(files)
  assert jobs[0].name == "device"
  assert {job.case for job in jobs} == {
    "device", "round", "peer", "method", "paper", "command"
  }  # fmt: skip
  options.tiny = True
  assert {job.case for job in module.jobs(options)} == {
    "device", "round", "peer", "method"
  }  # fmt: skip


def test_published_runs_are_command_lines_that_go_on(load, tmp_path, capsys):
  module = load("accelerator")
  options = module.argparse.Namespace(
    data_dir="/nowhere", tiny=False, **dict.fromkeys(PYTHONS, "")
  )
  jobs = [job for job in module.jobs(options) if job.case == "command"]
  for job in jobs:
    _, _, _, *arguments = module._command(job, tmp_path, options, None)
    assert run.main(["run", *arguments]) == 1
    assert capsys.readouterr().err == (
      "error: data_dir='/nowhere': must be an existing folder\n"
    )
  job = next(job for job in jobs if "1,000 rounds" in job.name)
  assert "--resume" not in module._command(job, tmp_path, options, None)
  saved = tmp_path / module._file_name(job.name) / "checkpoints"
  Checkpoints(saved, 1).save(1, {"x": np.zeros(2)}, {})
  assert "--resume" in module._command(job, tmp_path, options, None)


def test_a_published_accuracy_stands_beside_ours(load, tmp_path):
  module = load("accelerator_report")
  name = module.trained("scaffold")
  (tmp_path / "results").mkdir()
  record = {"name": name, "case": "command", "said": "test 83.1 %\n"}
  (tmp_path / "results" / "one.json").write_text(json.dumps(record))
  module.write(tmp_path, [name])
  report = (tmp_path / "report.md").read_text()
  assert f"### {name}\n\n```\ntest 83.1 %\n```\n\nPublished: 83.53 %." in report
