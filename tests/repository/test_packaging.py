"""The wheel and the source archive: what is in them, and that pip takes them.

All of this runs with one version of Python; that the others can is not tried.
"""

import ast
import email
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
import yaml

from tests.helpers import prepared_data
from tests.helpers.commands import REPOSITORY, new_python

# Of the repository nothing else is needed to build it.
SOURCES = (
  "README.md", "experiments", "fedjax_opt", "fedjax_opt_command.py", "setup.py",
)  # fmt: skip
COMMANDS = "fedjax_opt/_commands/experiments"
FOREIGN = "raise ImportError('not the experiments of fedjax_opt')\n"
# As the console script that pip writes, then what its processes would find.
SCRIPT = """
import concurrent.futures
import contextlib
import inspect
import multiprocessing
import sys

from fedjax_opt_command import script

if __name__ == "__main__":
  with contextlib.suppress(SystemExit):
    script()
  from experiments import cli
  from experiments.command_line import parser
  from experiments.processes import command

  spawn = multiprocessing.get_context("spawn")
  with concurrent.futures.ProcessPoolExecutor(1, spawn) as pool:
    print(pool.submit(inspect.getfile, cli.main).result())
  print(command.as_called_here("python -m experiments.run --seed=1"))
  print(*parser.expanded(["--flagfile=experiments/fco/low_rank.flags"]))
"""


def run(*arguments, cwd, path, **variables):
  """What a new Python prints that finds packages at a path, by lines."""
  variables |= {"PYTHONPATH": str(path), "JAX_PLATFORMS": "cpu"}
  return new_python(*arguments, cwd=cwd, **variables).stdout.splitlines()


@pytest.fixture(scope="module")
def built(tmp_path_factory):
  """Wheel and source archive, of a copy: a build leaves folders beside it."""
  folder = tmp_path_factory.mktemp("built")
  source = folder / "source"
  for name in SOURCES:
    path = REPOSITORY / name
    copy = shutil.copytree if path.is_dir() else shutil.copy
    (source / name).parent.mkdir(parents=True, exist_ok=True)
    copy(path, source / name)
  command = (sys.executable, "setup.py", "-q", "bdist_wheel", "sdist")
  to = [f"--dist-dir={folder}"]
  subprocess.run([*command[:4], *to, *command[4:], *to], cwd=source, check=True)
  (wheel,), (archive,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
  return wheel, archive


@pytest.fixture(scope="module")
def installed(built):
  """The folder of an installation of the wheel."""
  return by_pip(built[0])


def by_pip(file):
  """A folder into which pip has installed a file, without what it needs."""
  folder = file.parent / f"installed-{file.suffix[1:]}"
  options = (
    "--no-deps", "--no-index", "--no-build-isolation", "--no-compile",
    "--use-pep517",  # As newer versions of pip do always.
  )  # fmt: skip
  command = (sys.executable, "-m", "pip", "install", "-q", *options)
  subprocess.run([*command, f"--target={folder}", str(file)], check=True)
  return folder


def files_of(folder, *patterns):
  """The files below a folder, relative to it."""
  paths = (path for pattern in patterns for path in folder.rglob(pattern))
  return {path.relative_to(folder).as_posix() for path in paths}


def test_all_files_and_nothing_called_experiments_on_top(installed):
  top = {path.name for path in installed.iterdir()}
  (about,) = installed.glob("*.dist-info")
  assert top == {"bin", "fedjax_opt", "fedjax_opt_command.py", about.name}
  assert files_of(installed / "bin", "*") == {"fedjax-opt"}
  kinds = (
    "*.py", "*.flags", "*.sh", "artefacts.toml", "field.toml", "page.html",
  )  # fmt: skip
  names = files_of(installed / COMMANDS, *kinds)
  assert names == files_of(REPOSITORY / "experiments", *kinds)
  kinds = ("*.py", "py.typed", "templates/*", "*.mplstyle")
  package = files_of(installed / "fedjax_opt", *kinds)
  package -= {name for name in package if name.startswith("_commands/")}
  assert package == files_of(REPOSITORY / "fedjax_opt", *kinds)
  assert {"py.typed", "study/report/templates/report.html"} <= package


def test_the_source_archive_installs_the_same_files(built, installed):
  folder = by_pip(built[1])
  names = files_of(folder, "*")
  # What says whence it was installed is not the same.
  assert len(names) > 300
  assert names == files_of(installed, "*")


def test_metadata(installed):
  (folder,) = installed.glob("*.dist-info")
  entry_points = (folder / "entry_points.txt").read_text()
  assert entry_points.split("\n")[:2] == [
    "[console_scripts]",
    "fedjax-opt = fedjax_opt_command:script",
  ]
  about = email.message_from_string((folder / "METADATA").read_text("utf-8"))
  assert about["Author"] == "fedjax_opt authors"
  assert about.get_payload().strip().startswith("# fedjax_opt")
  extras = set(about.get_all("Provides-Extra"))
  assert {"run", "tfds", "tensorboard", "fmri", "notebooks", "test"} <= extras
  # What is cited is what is installed.
  citation = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text("utf-8"))
  assert citation["cff-version"] == "1.2.0"
  assert (citation["version"], citation["repository-code"]) == (
    about["Version"],
    about["Home-page"],
  )


def test_the_command_finds_its_own_experiments(installed, tmp_path):
  foreign = tmp_path / "experiments"
  foreign.mkdir()
  (foreign / "__init__.py").write_text(FOREIGN)
  script = tmp_path / "fedjax-opt.py"
  script.write_text(SCRIPT)
  # The current folder comes first, as with `export PYTHONPATH=.`.
  paths = os.pathsep.join([str(tmp_path), str(installed)])
  printed = run(script, "convert", "--help", cwd=tmp_path, path=paths)
  *usage, file, command, preset = printed
  assert usage[0].startswith("Writes a task's clients into a folder")
  assert any("fedjax-opt convert --task=digits" in line for line in usage)
  assert pathlib.Path(file) == installed / COMMANDS / "cli.py"
  assert command == "fedjax-opt run --seed=1"
  assert "--task=low_rank" in preset.split()


# Distribution -> the package that is imported, where the names differ.
IMPORTED = {
  "absl-py": "absl",
  "dm-pix": "dm_pix",
  "pillow": "pil",
}
# What is not imported: what starts it or names it, and how.
STARTED = {
  "ipykernel": (".ci/run", "ipykernel"),
  "jax": (".ci/run", "jax"),  # With the compilers of accelerators.
  "myst-nb": ("docs/conf.py", "myst_nb"),
  "pyarrow": ("fedjax_opt/datasets/tables.py", "read_parquet"),  # By pandas.
  "pytest-xdist": ("pytest.ini", "-n auto"),
  "ruff": (".ci/run", "ruff"),
  # For its file of digits.
  "scikit-learn": ("fedjax_opt/datasets/embedded.py", 'find_spec("sklearn")'),
  "setuptools": ("setup.py", "setuptools"),
  "sphinx": (".ci/run", "sphinx"),
  "sphinx-book-theme": ("docs/conf.py", "sphinx_book_theme"),
  "sphinx-copybutton": ("docs/conf.py", "sphinx_copybutton"),
}


@pytest.fixture(scope="module")
def requirements(installed):
  """{extra, or '' for all: names of the distributions}."""
  (folder,) = installed.glob("*.dist-info")
  about = email.message_from_string((folder / "METADATA").read_text("utf-8"))
  names_of_extra = {"": set()}
  for line in about.get_all("Requires-Dist"):
    extra = re.search(r"extra == ['\"]([\w-]+)", line)
    name = re.match(r"[\w.-]+", line).group().lower()
    names_of_extra.setdefault(extra.group(1) if extra else "", set()).add(name)
  return names_of_extra


def imported(nodes):
  """The packages that the import statements among some nodes name."""
  for node in nodes:
    if isinstance(node, ast.Import):
      yield from (alias.name.split(".")[0] for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and not node.level:
      yield node.module.split(".")[0]


def imported_by(*folders):
  """Names, in small letters, of the packages that these folders import."""
  names = set()
  for path in (p for f in folders for p in (REPOSITORY / f).rglob("*.py")):
    nodes = [*ast.walk(ast.parse(path.read_text("utf-8")))]
    # Also by a function that is given the name.
    texts = (str(n.value) for n in nodes if isinstance(n, ast.Constant))
    names.update(imported(nodes), (name.split(".")[0] for name in texts))
  return set(map(str.lower, names))


def test_workflows_are_started_as_they_say():
  folder = REPOSITORY / ".github" / "workflows"
  on = {p.stem: yaml.safe_load(p.read_text())[True] for p in folder.iterdir()}
  assert set(on) == {"docs", "publish", "tests"}
  assert list(on["publish"]) == ["workflow_dispatch"]  # By a person alone.


def test_each_requirement_is_imported_or_started(requirements):
  of_runs = imported_by("fedjax_opt", "experiments")
  of_all = of_runs | imported_by("tests", "notebooks", "docs", "benchmarks")
  for extra, names in requirements.items():
    imports = of_all if extra in ("test", "notebooks", "docs") else of_runs
    for name in names:
      package = IMPORTED.get(name, name.replace("-", "_"))
      if package in imports:
        continue
      file, word = STARTED[name]
      text = (REPOSITORY / file).read_text("utf-8")
      assert word in text, f"{name} of {extra!r} is not used"


def test_an_import_on_top_needs_no_extra(requirements):
  """Other packages are imported by what needs them, when it is called."""
  base = {IMPORTED.get(name, name) for name in requirements[""]}
  base |= {"scipy"}  # Of jax.
  base |= {"fedjax_opt", *sys.stdlib_module_names}
  for folder in ("fedjax_opt", "experiments"):
    for path in (REPOSITORY / folder).rglob("*.py"):
      packages = imported(ast.parse(path.read_text("utf-8")).body)
      assert set(packages) <= base | {folder}, path


def test_a_run_imports_nothing_slow_before_it_needs_it():
  slow = {"scipy", "pandas", "matplotlib", "sklearn", "jinja2", "PIL"}
  code = f"import sys, experiments.run; print({slow} & sys.modules.keys())"
  process = new_python("-c", code)
  assert process.stdout == "set()\n"


@pytest.mark.slow
def test_each_extra_is_enough_alone(requirements, tmp_path):
  """In processes that see what it installs, and no other package."""
  prepared_data.mnist(tmp_path / "data")
  script = REPOSITORY / "tests" / "helpers" / "extras_alone.py"
  packages = {extra: sorted(names) for extra, names in requirements.items()}
  arguments = (script, json.dumps(packages), tmp_path / "data")
  cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
  *_, last_line = run(*arguments, cwd=tmp_path, path=REPOSITORY, **cache)
  outcomes = json.loads(last_line)
  assert set(outcomes.values()) <= {"works", "is not installed"}, outcomes
  for extra in ("", "run", "tfds", "text", "tensorboard", "privacy"):
    assert outcomes[extra] == "works"
