"""Runs with simulated time: flags, timetables, files and studies."""

import numpy as np
import pytest

from experiments import compare
from experiments.single_run import timetables
from experiments.studies import planned_cells, request
from fedjax_opt import load_run, schedules
from tests.helpers.commands import call, prepare, spec_of, summary_of

TASK = (
  "--task=digits_logistic", "--client=sgd", "--num_clients=20",
  "--weighting=uniform",
)  # fmt: skip
DEVICES = "examples/devices.csv"
SYSTEMS = {
  "constant": ("--system_value=2",),
  "lognormal": ("--system_sigma=0.5", "--system_bytes_up=1e4"),
  "fadas": (),
  "devices": (f"--system_file={DEVICES}",),
}
FED_BUFF = (
  *TASK, "--algorithm=fed_buff", "--system=lognormal", "--system_bytes_up=1e4",
  "--schedule=buffered", "--concurrency=6", "--buffer=3",
)  # fmt: skip


@pytest.mark.parametrize("name", SYSTEMS)
def test_each_seed_has_devices_of_its_own(name):
  spec = spec_of(*TASK, f"--system={name}", *SYSTEMS[name])
  first, same, other = (
    timetables.system_of(spec, 20, seed) for seed in (0, 0, 1)
  )
  is_alike = [
    np.array_equal(first.seconds_per_step, system.seconds_per_step)
    for system in (same, other)
  ]
  assert is_alike == [True, name == "constant"]
  if name == "constant":
    assert (first.durations(3).steps * first.seconds_per_step == 6).all()
  if name == "fadas":
    assert (first.durations(3).steps == 1).all()


def test_the_flags_of_a_schedule():
  job = prepare(
    *TASK, "--system=exponential", "--deadline=1.5", "--over_selection=3",
    "--cohort_size=4", "--partial_work", "--server_seconds=0.5", "--rounds=7",
    "--seed=0,1",
  )  # fmt: skip
  assert list(job.timetables) == [0, 1]
  for seed, table in job.timetables.items():
    assert table.clients.shape == (7, 7)
    steps = np.diff(table.time, prepend=0)
    assert (steps <= 2.0 + 1e-9).all()
    assert table.taken.sum(1).max() <= 4
    system = timetables.system_of(job.spec, 20, seed)
    sizes = np.asarray(job.clients[seed].sizes)
    expected = schedules.synchronous(
      system.durations(-(-sizes // 64), 10 * 65 * 4, 10 * 65 * 4),
      7, 4, over_selection=3, deadline=1.5, partial=True, server_seconds=0.5,
    )  # fmt: skip
    np.testing.assert_array_equal(table.time, expected.time)


@pytest.mark.slow
def test_compressed_messages_and_fewer_steps_are_faster():
  time = lambda *flags: prepare(*FED_BUFF, *flags).timetables[0].time[-1]
  plain = time()
  assert time("--upload=top_k", "--upload_fraction=0.1") < plain
  assert time("--local_steps=1") < plain < time("--local_steps=9")


@pytest.mark.slow
def test_a_run_ends_with_its_time(tmp_path, capsys):
  arguments = (
    *FED_BUFF, "--seed=0,1", "--client_lr=0.1,0.3", "--rounds=40",
    "--max_time=9", "--eval_every=4", f"--output_dir={tmp_path / 'run'}",
  )  # fmt: skip
  assert call(*arguments) == 0
  run = load_run(tmp_path / "run")
  times = run.history.metrics["time"]
  assert (np.diff(times) >= 0).all()
  assert times.max() <= 9
  tables = prepare(*arguments[:-1]).timetables
  ends = [tables[seed].time[-1] for seed in (0, 1)]
  np.testing.assert_array_equal(times[:, -1], ends * 2)
  summary = summary_of(tmp_path / "run")
  assert summary["stopped_by"] == "max_time"
  assert summary["rounds_done"] == max(len(t.time) for t in tables.values())
  steps = np.array([len(tables[seed].time) for seed in (0, 1)])
  assert steps[0] != steps[1]  # Of each seed, its own rounds count.
  cost = summary["cost"]
  assert cost["time_per_round"] == pytest.approx(np.mean(ends / steps))
  spent = run.history.metrics["bytes_up"][:2, -1] / steps
  assert cost["bytes_up_per_round"] == pytest.approx(spent.mean())
  output = capsys.readouterr().out
  assert "ended by max_time after" in output
  assert "% of their time used; staleness" in output
  about = summary["clock"]
  seed = about["seed"]
  usages = [schedules.usage(tables[s], 20) for s in (0, 1)]
  assert about["used"] == [usage.used for usage in usages]
  assert sum(group["clients"] for group in about["groups"]) == 20
  updates = sum(group["updates"] * 5 for group in about["groups"])
  assert updates == pytest.approx(usages[seed].used)
  assert all(0 < group["train_accuracy"] < 1 for group in about["groups"])
  lines = (tmp_path / "run/timetable.csv").read_text().splitlines()
  assert len(lines) == 1 + usages[seed].sent
  assert (tmp_path / "run/timetable.png").exists()


def test_a_trace_is_replayed(tmp_path):
  job = prepare(*FED_BUFF, "--rounds=6")
  schedules.write_events(job.timetables[0], tmp_path / "events.csv")
  flags = (
    "--schedule=replay", f"--events_file={tmp_path / 'events.csv'}",
    "--buffer=3", "--rounds=6", "--algorithm=fed_buff",
  )  # fmt: skip
  replay = prepare(*TASK, *flags)
  # Events that are fewer than the rounds end the run, which says so.
  longer = [flag.replace("rounds=6", "rounds=9") for flag in flags]
  assert prepare(*TASK, *longer).rounds == 6
  np.testing.assert_array_equal(
    replay.timetables[0].versions, job.timetables[0].versions
  )
  with pytest.raises(ValueError, match=r"events_file='.*': .*has client"):
    prepare(*TASK, *flags, "--num_clients=3")
  before = replay.config["data_digests"]["schedule"]
  (tmp_path / "events.csv").write_text(
    (tmp_path / "events.csv").read_text() + "\n"
  )
  assert prepare(*TASK, *flags).config["data_digests"]["schedule"] != before


@pytest.mark.slow
def test_a_run_ends_with_its_timetable(tmp_path, error_of):
  """Slots follow from the whole of it, so no rounds can be added."""
  arguments = (
    *FED_BUFF, "--checkpoint_every=4", "--eval_every=4",
    f"--output_dir={tmp_path}",
  )  # fmt: skip
  assert call(*arguments, "--rounds=4") == 0
  line = error_of(*arguments, "--rounds=8", "--resume")
  assert "on a timetable that ends with them" in line


@pytest.mark.slow
def test_methods_are_compared_by_time(tmp_path):
  folder = tmp_path / "study"
  shared = (
    "--task=digits_logistic", "--num_clients=20", "--weighting=uniform",
    "--client_lr=0.1", "--system=lognormal", "--buffer=3", "--concurrency=6",
    "--rounds=30", "--max_time=15", "--eval_every=5", "--seed=0",
    "--report_seeds=3", "--target=0.3", f"--output_dir={folder}",
  )  # fmt: skip
  methods = (
    "--method=fed_avg client=sgd schedule=synchronous",
    "--method=fed_buff client=sgd schedule=buffered",
  )
  assert call(*shared, *methods, program=compare) == 0
  page = (folder / "report.html").read_text()
  assert "Simulated time" in page
  assert (folder / "pictures/learning_curves_time.png").exists()
  header, *rows = (folder / "table.csv").read_text().splitlines()
  column = header.split(",").index("time_to_target")
  assert all(0 < float(row.split(",")[column]) <= 15 for row in rows)
  runs = [load_run(path) for path in (folder / "runs").iterdir()]
  assert all(run.history.metrics["time"].max() <= 15 for run in runs)


@pytest.mark.parametrize("name", ["fed_buff", "fadas", "ca2fl"])
def test_the_settings_of_papers(name):
  spec = spec_of(f"--flagfile=experiments/asynchronous/{name}.flags")
  assert (spec.algorithm.name, spec.weighting) == (name, "uniform")
  assert spec.schedule.name == "buffered"
  assert spec.system.static["system_of"] == "round"


@pytest.mark.parametrize("name", ["fed_buff", "fadas", "fadas_mnist"])
def test_studies_whose_methods_have_schedules_of_their_own(name):
  file = f"--study=experiments/asynchronous/{name}.toml"
  cells = planned_cells.plan(request.read_request(["compare", file], ""))
  systems = {str(cell.spec.system) for cell in cells}
  assert len(systems) == 1
  assert all(cell.spec.system.static["system_redraw"] for cell in cells)
  names = {cell.spec.schedule.name for cell in cells}
  assert (
    names == {"buffered", "synchronous"} if name == "fed_buff" else {"buffered"}
  )
