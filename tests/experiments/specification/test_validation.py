"""On which examples settings are chosen."""

import pytest

import fedjax_opt as fo
from experiments import convert, tasks
from tests.helpers.commands import call, prepare, spec_of, table

TINY = (
  *("--task=digits_logistic", "--num_clients=10", "--cohort_size=3"),
  *("--client=sgd", "--rounds=4", "--eval_every=2", "--noprogress"),
)


def prepared(*arguments):
  return prepare(*TINY, *arguments)


def rows_of(examples):
  """Each example as bytes."""
  return {
    x.tobytes() + y.tobytes() for x, y in zip(*examples.values(), strict=True)
  }


def test_no_client_has_a_validation_example(tmp_path):
  job = prepared(f"--output_dir={tmp_path / 'a'}", "--seed=0,1")
  assert job.spec.values()["select_on"] == "validation"
  assert job.spec.values()["validation_fraction"] == 0.1
  assert len(job.task.validation["y"]) == 144
  held_out = rows_of(job.task.validation)
  for clients in job.clients.values():
    assert not held_out & rows_of(clients.examples)
  assert not held_out & rows_of(job.task.test)
  other_job = prepared(
    f"--output_dir={tmp_path / 'b'}",
    "--validation_seed=1",
    "--validation_fraction=0.3",
  )
  assert len(other_job.task.validation["y"]) == 431
  assert rows_of(other_job.task.validation) != held_out


def test_nothing_is_held_out_for_other_choices():
  job = prepared("--select_on=test")
  assert job.task.validation is None
  assert len(job.task.train["y"]) == 1437


@pytest.mark.parametrize(("arguments", "criterion"), table("criteria"))
def test_by_what_settings_are_chosen(tmp_path, arguments, criterion):
  arguments = arguments.split()
  if not arguments[0].startswith("--task"):
    arguments = [*TINY, *arguments]
  job = prepare(*arguments, f"--output_dir={tmp_path}")
  assert str(job.criterion) == criterion
  if job.task.validation is not None:
    assert not rows_of(job.task.validation) & rows_of(job.task.test)


def test_clients_on_disk(tmp_path, capsys):
  """The validation part is what the conversion left out."""
  clients = tmp_path / "clients"
  flags = ("--task=digits_logistic", "--num_clients=10")
  assert call(*flags, f"--population_dir={clients}", program=convert) == 0
  on_disk = (
    *("--task=digits_logistic", "--cohort_size=3", "--noprogress"),
    f"--population_dir={clients}",
  )
  job = prepare(*on_disk, f"--output_dir={tmp_path / 'a'}")
  assert job.criterion.metric == "validation_accuracy"
  population = fo.Population.open(clients)
  assert not rows_of(job.task.validation) & rows_of(population.examples)
  other = ("--validation_seed=4", f"--output_dir={tmp_path / 'b'}")
  with pytest.raises(ValueError, match="its clients may have the validation"):
    prepare(*on_disk, "--select_on=validation", *other)
  (clients / "validation.json").rename(tmp_path / "elsewhere")
  with pytest.raises(ValueError, match=r"validation.json' is missing; write"):
    prepare(*on_disk, f"--output_dir={tmp_path / 'c'}")
  fo.Population.of_client_data(tmp_path / "own", population.load())
  own_flags = (*on_disk[:-1], f"--population_dir={tmp_path / 'own'}")
  job = prepare(*own_flags, f"--output_dir={tmp_path / 'c'}")
  assert job.criterion.metric == "train_loss"
  assert job.spec.values()["select_on"] == "train"


def test_every_task_has_the_criteria_of_its_splits():
  for name in ("digits", "lasso", "low_rank", "nonconvex"):
    task = tasks.load_task(spec_of(f"--task={name}"))
    assert set(task.criteria) == set(tasks.TASKS[name].splits)
