"""The site: its code runs, its links lead somewhere, its reference is whole."""

import contextlib
import doctest
import importlib.util
import inspect
import pathlib
import pkgutil
import re
import types
from typing import Any

import comparison_tables
import flags_tables
import jax
import jax.numpy as jnp
import methods_tables
import numpy as np
import optax
import pytest
from flax import linen

import fedjax_opt as fo
from experiments import cli, compare, convert, reproduce, run
from experiments.specification import spec as specs
from experiments.studies import planned_cells, request
from fedjax_opt.algorithms import ALGORITHMS
from tests.helpers import public_names
from tests.helpers.commands import REPOSITORY, call, rows_of

DOCS = REPOSITORY / "docs"
PAGES = sorted(
  page
  for page in DOCS.rglob("*.md")
  if not {"_build", "jupyter_execute", "artefacts"} & set(page.parts)
)
OUTSIDE = [
  *(REPOSITORY / f"{n}.md" for n in ("README", "CHANGELOG", "CONTRIBUTING")),
  *sorted(REPOSITORY.glob("experiments/*/README.md")),
  *sorted(REPOSITORY.glob("experiments/*/artefacts/*.md")),
]


def name_of(page):
  return page.relative_to(REPOSITORY).as_posix()


def blocks(page: pathlib.Path, language: str) -> list[str]:
  fence = rf"^```{language}\n(.*?)^```$"
  return re.findall(fence, page.read_text(), re.DOTALL | re.MULTILINE)


def test_no_line_is_read_as_a_comment():
  """MyST leaves out a line that begins with a percent sign."""
  for page in PAGES + OUTSIDE:
    lines = page.read_text().splitlines()
    assert not [line for line in lines if line.startswith("%")], name_of(page)


def test_no_words_are_said_twice():
  for page in PAGES + OUTSIDE:
    twice = re.findall(r"\b((?:[a-zA-Z]+,? ){3,6})\1", page.read_text())
    assert not twice, name_of(page)


def test_texts_are_shown_as_they_are_meant():
  """Docutils needs braces after frac; MyST takes a line "1. So" for a list."""
  programs = REPOSITORY.glob("fedjax_opt/**/*.py")
  notebooks = REPOSITORY.glob("notebooks/*.ipynb")
  for file in (*PAGES, *OUTSIDE, *programs, *notebooks):
    assert not re.search(r"frac\d", file.read_text("utf-8")), file
  item = r"(?m)^(?!```|[-#|\s]|\d+\.).+\n\d+\. "
  for page in PAGES + OUTSIDE:
    assert not re.search(item, page.read_text()), name_of(page)


# The code of the pages.

# Shows how a run is read that is not there.
NOT_RUN = {"docs/results.md"}
WITH_CODE = [
  page
  for page in [REPOSITORY / "README.md", *PAGES]
  if blocks(page, "python") and name_of(page) not in NOT_RUN
]


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_CODE, ids=name_of)
def test_the_code_of_a_page_runs_top_to_bottom(page, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)  # Some write files.
  names = {}
  for block in blocks(page, "python"):
    # Each is of an optional package, with which nothing else begins.
    packages = re.findall(r"^import (equinox|haiku)", block, re.M)
    if packages and importlib.util.find_spec(packages[0]) is None:
      continue
    exec(compile(block, name_of(page), "exec"), names)


@pytest.mark.quick
def test_the_readme_is_short():
  assert len((REPOSITORY / "README.md").read_text().splitlines()) < 200


def test_the_readme_has_the_command_of_the_tests():
  command = "pip install -e '.[test]' && python -m pytest"
  for file in ("README.md", ".ci/run"):
    assert command in (REPOSITORY / file).read_text()


@pytest.mark.parametrize("page", WITH_CODE, ids=name_of)
def test_the_code_of_a_page_is_python(page):
  assert all(compile(b, "page", "exec") for b in blocks(page, "python"))


def test_the_readme_has_the_numbers_of_its_study():
  lines = (REPOSITORY / "README.md").read_text().splitlines()
  marks = {"best": "**{}**", "worse": "{}", "not told apart": "{}†"}
  of_method: dict[str, list[str]] = {}
  for row in rows_of(DOCS / "_sample" / "study" / "table.csv"):
    cell = marks[row["verdict"]].format(f"{100 * float(row['mean']):.1f}")
    of_method.setdefault(row["method"], []).append(cell)
  for method, cells in of_method.items():
    assert f"| {method} | {' | '.join(cells)} |" in lines


def test_the_start_pages_count_the_claims_of_the_papers():
  readme = (REPOSITORY / "README.md").read_text()
  start = (REPOSITORY / "experiments" / "README.md").read_text()
  papers = (DOCS / "papers" / "index.md").read_text()
  for paper in ("delta_sgd", "fco", "bvr", "domo"):
    page = (REPOSITORY / "experiments" / paper / "README.md").read_text()
    (verdicts,) = re.findall(r"Claims of the paper: (.*)\.", page)
    number = {v: n for n, v in re.findall(r"(\d+) ([a-z ]+)", verdicts)}
    order = ("held", "in part", "not held", "undecided")
    counts = " | ".join(number.get(verdict, "0") for verdict in order)
    assert f"](experiments/{paper}) | {counts} |" in readme
    assert f"]({paper}/README.md) | {counts} | " in start
    assert f".md) | {counts} |" in papers
    (states,) = re.findall(r"figures of the paper: \d+ \((.*)\)", page)
    number = dict(part.split()[::-1] for part in states.split(", "))
    order = ("whole", "reduced", "replaced", "missing")
    row = " | ".join(number.get(state, "0") for state in order)
    assert f" | {row} |" in papers


@pytest.mark.slow
def test_the_study_file_runs(tmp_path):
  (content,) = blocks(DOCS / "how_to" / "compare.md", "toml")
  file = tmp_path / "digits.toml"
  file.write_text(content)
  small = ("--rounds=2", "--num_clients=10", "--cohort_size=2", "--seed=0,1")
  small += ("--alpha=1", "--client_lr=0.1,1", "--report_seeds=2")
  arguments = (f"--study={file}", *small)
  folder = tmp_path / "study"
  assert call(*arguments, f"--output_dir={folder}", program=compare) == 0
  table = (folder / "table.md").read_text()
  for label in ("SGD", "scaffold", "Δ-SGD"):
    assert label.casefold() in table.casefold()


def test_the_study_of_which_method_can_be_run_and_has_its_table():
  study = request.read_request(["", f"--study={DOCS}/which_method.toml"], "")
  labels = [method["label"] for method in study.methods]
  assert len(planned_cells.plan(study)) == 4 * len(labels)
  table = (DOCS / "which_method_table.md").read_text()
  page = (DOCS / "which_method_study.md").read_text()
  for label in labels:
    assert f"| {label} |" in table
    assert label in page


@pytest.mark.slow
def test_the_comparison_is_made_from_its_records(tmp_path):
  """If it fails: `PYTHONPATH=. python docs/make/comparison_tables.py`."""
  texts = [page.read_text() for page in comparison_tables.PAGES]
  assert list(map(comparison_tables.filled, texts)) == texts
  assert "42 methods. The table has the 6 with the best means." in texts[0]
  assert "<!-- advice -->\n\n| Your case | Conditions |" in texts[1]
  comparison_tables.write_browser_page(tmp_path / "field")
  page = (tmp_path / "field" / "reference.html").read_text()
  for records in re.findall(r'"record": "([^"]+)"', page):
    assert (tmp_path / "field" / records).is_file()


def test_the_tables_of_methods_are_those_of_the_registries():
  """If it fails: `PYTHONPATH=. python docs/make/methods_tables.py`."""
  texts = [page.read_text() for page in methods_tables.PAGES]
  assert list(map(methods_tables.filled, texts)) == texts
  for title in methods_tables.TABLES:
    assert "".join(texts).count(f"<!-- {title} -->\n\n") == 1
  for name in ALGORITHMS:  # Those of no group are others.
    assert f"\n| `{name}`" in texts[0]
  assert "### Others" not in texts[0]


def test_the_page_of_flags_has_each_flag_once():
  text = flags_tables.filled((DOCS / "flags.md").read_text())
  rows = re.findall(r"(?m)^\| `--(?:\[no\])?(\w+)` \| [*\w]", text)
  assert sorted(rows) == sorted(specs.all_flags())


# Flags of other programs: benchmarks, tools, pip, hf, Slurm, gcloud, XLA.
OTHERS = {
  "budget_s", "command", "fedjax_python", "flower_python", "folder", "gpus",
  "help", "kind", "local", "minutes", "nodes", "ntasks", "nthreads", "number",
  "clock", "tiny", "torch_python", "worker",
  "xla_cpu_prefer_vector_width", "xla_force_host_platform_device_count",
  "xla_gpu_enable_while_loop_unrolling", "zone",
}  # fmt: skip


def test_every_flag_that_is_named_exists(capsys):
  flags = set()
  for program in (cli, run, compare, convert, reproduce):
    with contextlib.suppress(SystemExit):
      call("--help", program=program)
    with contextlib.suppress(SystemExit):
      call("--helpfull", program=program)
    text = capsys.readouterr().out
    flags |= set(re.findall(r"--(?:\[no\])?(\w+)", text))
  for page in [REPOSITORY / "README.md", *PAGES]:
    names = set(re.findall(r"--(\w+)", page.read_text())) - OTHERS
    unknown = {n for n in names if n not in flags and n[2:] not in flags}
    assert not unknown, name_of(page)


# Links.

LINK = re.compile(r"\]\(([^)\s]+)\)")
INCLUDED = re.compile(r"(?m)^```\{\w*include\} (\S+)\n((?::.*\n)*)")


def anchors(page: pathlib.Path) -> set[str]:
  """The anchors of a page, as GitHub and MyST make them of its headings."""
  text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.M)
  titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
  slug = lambda title: re.sub(
    r"[^\w\- ]", "", re.sub(r"`|\*", "", title).strip().lower()
  ).replace(" ", "-")
  return {slug(t) for t in titles} | set(re.findall(r"^\((\S+)\)=", text, re.M))


def broken_links(page: pathlib.Path) -> list[str]:
  broken = []
  text = re.sub(r"^```\w*\n.*?^```", "", page.read_text(), flags=re.S | re.M)
  included = [file for file, _ in INCLUDED.findall(text)]
  for target in LINK.findall(text) + included:
    if re.match(r"[a-z]+:", target):
      continue
    file, _, anchor = target.partition("#")
    path = (page.parent / file).resolve() if file else page
    to_heading = anchor and path.suffix == ".md"
    if not path.exists() or (to_heading and anchor not in anchors(path)):
      broken.append(target)
  return broken + re.findall(r"\[[^]()\n]*\([\w/#]+\.md", text)


def test_an_index_of_modules_has_them_all():
  packages = ("fedjax_opt", "experiments", "tests")
  folders = [REPOSITORY / package for package in packages]
  for file in (f for p in folders for f in p.rglob("__init__.py")):
    index = re.findall(r"^(\w+\.py)  ", file.read_text(), re.M)
    modules = sorted(path.name for path in file.parent.glob("[!_]*.py"))
    assert not index or sorted(index) == modules, file


def test_what_pages_show_of_files_is_there():
  for page in PAGES:
    for file, options in INCLUDED.findall(page.read_text()):
      for pattern in re.findall(r'^:(?:start|end)-\w+: "(.+)"$', options, re.M):
        assert pattern in (page.parent / file).read_text(), (page, pattern)


def test_links_lead_to_files_and_headings():
  links_of = {name_of(page): broken_links(page) for page in PAGES + OUTSIDE}
  assert not {page: links for page, links in links_of.items() if links}


# The reference.

MODULES = {
  "": fo,
  **{
    f"{name}.": getattr(fo, name)
    for name in (
      "statistics", "plots", "metrics", "evaluation", "data", "partition",
      "synthetic", "models", "prox", "mirror", "objectives", "samplers",
      "transforms", "aggregators", "faults", "scores", "schedules",
      "systems",
    )
  },
  "data.augmentation.": fo.data.augmentation,
  **{
    f"datasets.{name}.": getattr(fo.datasets, name)
    for name in public_names.names_of(fo.datasets)
  },
}  # fmt: skip
PUBLIC = {
  prefix + name: getattr(module, name)
  for prefix, module in MODULES.items()
  for name in public_names.names_of(module)
  if not isinstance(getattr(module, name), types.ModuleType)
}
REFERENCE = "\n".join(
  page.read_text() for page in (DOCS / "reference").glob("*.md")
)
SHOWN = set(re.findall(r"^\.\. \S+:: fedjax_opt\.([\w.]+)", REFERENCE, re.M))
SHOWN |= {  # Those whose page shows them without the module.
  f"{module}.{name}"
  for name, module in re.findall(
    r"^\.\. \S+:: (\w+).*\n   :module: fedjax_opt\.(\w+)", REFERENCE, re.M
  )
}


def test_every_public_name_is_on_a_page_of_the_reference():
  ids = {id(fo_value(name)) for name in SHOWN}
  missing = [
    name
    for name, value in PUBLIC.items()
    if name not in SHOWN and (is_constant(value) or id(value) not in ids)
  ]
  assert missing == []


def fo_value(name: str) -> Any:
  value = fo
  for part in name.split("."):
    if not hasattr(value, part):
      value = importlib.import_module(f"{value.__name__}.{part}")
    else:
      value = getattr(value, part)
  return value


def is_constant(value) -> bool:
  return not callable(value) or not isinstance(value, type | types.FunctionType)


DOCUMENTED = {n: t for n, t in PUBLIC.items() if not is_constant(t)}


def test_public_names_say_what_they_are_given():
  """At all; of each argument by itself, ruff's D417 sees to it."""
  missing = []
  for name, value in DOCUMENTED.items():
    text, is_class = inspect.getdoc(value) or "", inspect.isclass(value)
    assert 0 < len(text.partition("\n")[0]) <= 80, name
    names = fields(value) if is_class else inspect.signature(value).parameters
    section = "Attributes:" if is_class else "Args:"
    if len(names) > 1 and f"\n{section}\n" not in text:
      missing.append(name)
  assert not missing


def fields(cls: type) -> list[str]:
  names = getattr(cls, "_fields", None) or inspect.get_annotations(cls)
  of_flax = {"parent", "name"} if issubclass(cls, linen.Module) else set()
  return [n for n in names if not n.startswith("_") and n not in of_flax]


# Examples in docstrings.


def all_examples() -> list[doctest.DocTest]:
  tests = []
  for info in pkgutil.walk_packages(fo.__path__, "fedjax_opt."):
    module = importlib.import_module(info.name)
    if ">>>" in inspect.getsource(module):
      tests += doctest.DocTestFinder().find(module)
  return [test for test in tests if test.examples]


class Checker(doctest.OutputChecker):
  """Compares only what an example says that it gives."""

  def check_output(self, want, got, optionflags):
    return not want or super().check_output(want, got, optionflags)


def names_of_examples() -> dict[str, Any]:
  """What the examples take as given: a small regression of 12 clients."""

  def loss_fn(params, batch, rng):
    return (batch["x"] @ params["kernel"] - batch["y"]) ** 2

  def per_example(params, batch):
    loss = loss_fn(params, batch, None)
    return {"loss": loss, "accuracy": jnp.exp(-loss)}

  def draw(seed):
    x = jax.random.normal(jax.random.key(seed), (600, 4))
    return {"x": x, "y": x @ jnp.arange(4.0)}

  def clients(alpha, seed):
    rows = fo.partition.iid(np.arange(600), num_clients=12, seed=seed)
    return fo.ClientData.from_partition(pool, rows, keep_pool=True)

  pool, params = draw(0), {"kernel": jnp.zeros(4)}
  return {
    **{"jax": jax, "jnp": jnp, "np": np, "optax": optax, "fo": fo},
    **{"simulate": fo.simulate, "statistics": fo.statistics, "prox": fo.prox},
    **{"loss_fn": loss_fn, "per_example": per_example, "clients": clients},
    **{"params": params, "data": clients(1.0, 0), "m": params},
    **{"eta": 0.1, "beta": 0.9, "mu_l": 0.6, "step": 0.1},
    "grad_fn": jax.grad(lambda w: jnp.mean(loss_fn(w, pool, None))),
    "evaluate": fo.evaluation.federated(per_example),
    "algorithm": fo.fed_avg(loss_fn, optax.sgd(0.01)),
    "fed_avg": lambda learning_rate: fo.fed_avg(
      loss_fn, optax.sgd(learning_rate)
    ),
    "scaffold": lambda learning_rate: fo.scaffold(loss_fn, learning_rate),
    "validation": draw(1),
    "test": draw(2),
    "accuracy_of_scaffold": [0.9, 0.91, 0.92],
    "accuracy_of_fed_avg": [0.8, 0.82, 0.81],
  }


EXAMPLES = all_examples()


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda test: test.name)
@pytest.mark.slow_cases(
  "fedjax_opt.privacy.with_privacy",
  "fedjax_opt.algorithms.personal.fed_per",
  "fedjax_opt.engine.client_evaluation.evaluate_clients",
  "fedjax_opt.results.checkpoint.Checkpoints",
  "fedjax_opt.rules.delta_sgd.delta_sgd",
)
def test_an_example_of_a_docstring_runs(example, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  names = names_of_examples()
  fo.Population.of_client_data("clients", names["data"])
  example.globs = example.globs | names
  runner = doctest.DocTestRunner(Checker(), optionflags=doctest.ELLIPSIS)
  output = []
  result = runner.run(example, out=output.append)
  assert result.failed == 0 < result.attempted, "".join(output)
