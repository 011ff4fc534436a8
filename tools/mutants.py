"""Changes the package in one place at a time, and counts what tests notice.

  pip install pytest-cov
  python -m pytest -m "" --cov=fedjax_opt --cov-context=test --cov-report= \\
      --junitxml=tests.xml
  python -m tools.mutants --number=200 --seed=1 --output=mutants.tsv
  python -m tools.mutants --number=20 --files fedjax_opt/prox/*.py \\
      --tests tests/prox/test_prox.py

A mutant is a copy of the package with one operator, constant, condition or
statement changed. The tests that run its line, the shortest ones first, are run
until one fails: then it is killed. A mutant that no test kills is a line that
could be wrong without being noticed, or one that changes nothing that anybody
can see; mutants_equivalent.toml has these, each with the reason. What was tried
already stands in the output, and is not tried again. With --tests these are
run, whatever line it is, and no coverage is needed.
"""

import argparse
import ast
import collections
import concurrent.futures
import dataclasses
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import tomllib
import xml.etree.ElementTree
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).parents[1]
PLACES = (
  *(
    f"fedjax_opt/{name}/*.py"
    for name in ("engine", "engine/traced", "rules", "algorithms")
  ),
  *(f"fedjax_opt/arrays/{name}.py" for name in ("counters", "draws")),
  *(f"fedjax_opt/{name}.py" for name in ("contract", "multi_process")),
)
# A mutant's tests take so many seconds at most, as measured without it; then
# others are left out.
MOST = 90
# (file, old line, new line) of mutants that do the same -> why they do.
EQUIVALENT = {
  (mutant["file"], mutant["old"], mutant["new"]): mutant["why"]
  for mutant in tomllib.loads(
    pathlib.Path(__file__).with_name("mutants_equivalent.toml").read_text()
  )["mutant"]
}
# Tests of lines that no test runs in its own process: they run as the package
# is imported, or in a process of several.
_OTHERS = (
  "tests/rules/test_rules_registry.py", "tests/test_registry.py",
  "tests/checks/test_settings.py", "tests/engine/test_batch_plan.py",
  "tests/arrays/test_sharding.py",
  "tests/engine/test_collectives.py", "tests/experiments/test_run.py",
  "tests/experiments/specification/test_methods.py",
  "tests/experiments/command_line/test_help.py",
  "tests/experiments/processes/test_hosts.py",
  "tests/experiments/processes/test_lost_processes.py",
)  # fmt: skip

_OPERATORS = {
  ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.FloorDiv: "*",
  ast.Mod: "*", ast.Pow: "*", ast.BitAnd: "|", ast.BitOr: "&",
  ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=",
  ast.NotEq: "==", ast.Is: "is not", ast.IsNot: "is", ast.In: "not in",
  ast.NotIn: "in", ast.And: "or", ast.Or: "and",
}  # fmt: skip
_FUNCTIONS = {
  "maximum": "minimum", "minimum": "maximum", "max": "min", "min": "max",
  "any": "all", "all": "any", "sum": "mean", "mean": "sum", "zeros": "ones",
  "ones": "zeros", "zeros_like": "ones_like", "argmax": "argmin",
  "logical_and": "logical_or", "logical_or": "logical_and", "ceil": "floor",
  "floor": "ceil", "sqrt": "square", "tree_add": "tree_sub",
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Mutant:
  """One change.

  Attributes:
    file: relative to the repository.
    line: number of the line, from 1.
    begin: offset in the file.
    end: the same, behind what is replaced.
    new: what takes its place.
  """

  file: str
  line: int
  begin: int
  end: int
  new: str

  def of(self, text: str) -> str:
    """The file with the change."""
    return text[: self.begin] + self.new + text[self.end :]

  def lines(self) -> tuple[str, str]:
    """The line before and after, for people."""
    text = (ROOT / self.file).read_text()
    old = text.splitlines()[self.line - 1].strip()
    new = self.of(text).splitlines()[self.line - 1].strip()
    return old, new


def mutants_of(path: pathlib.Path) -> Iterator[Mutant]:
  """All mutants of a file."""
  text = path.read_text()
  starts = [0]
  for line in text.splitlines(keepends=True):
    starts.append(starts[-1] + len(line))

  def span(node):
    # Columns are bytes; the package's code outside of strings is ASCII.
    begin = starts[node.lineno - 1] + node.col_offset
    return begin, starts[node.end_lineno - 1] + node.end_col_offset

  def mutant(node, begin, end, new):
    line = text.count("\n", 0, begin) + 1
    name = str(path.relative_to(ROOT))
    return Mutant(name, line, begin, end, new)

  for node in _walk(ast.parse(text)):
    for begin, end, new in _changes(node, span, text):
      yield mutant(node, begin, end, new)


def _walk(node: ast.AST) -> Iterator[ast.AST]:
  """What runs and is no message: no annotation, docstring, import, raise."""
  if isinstance(node, ast.Raise | ast.Import | ast.ImportFrom | ast.JoinedStr):
    return
  yield node
  for name, field in ast.iter_fields(node):
    if name in ("annotation", "returns", "type_params"):
      continue
    for child in field if isinstance(field, list) else [field]:
      if isinstance(child, ast.AST):
        yield from _walk(child)


def _changes(node, span, text):
  """(begin, end, new) of each change at a node of the syntax tree."""
  between = lambda a, b: (span(a)[1], span(b)[0])
  match node:
    case ast.BinOp(left=ast.Constant(value=str())):
      pass  # Text.
    case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
      yield _operator(op, *between(left, right), text)
    case ast.BoolOp(op=op, values=[first, second, *_]):
      yield _operator(op, *between(first, second), text)
    case ast.Compare(left=left, ops=[op, *_], comparators=[right, *_]):
      yield _operator(op, *between(left, right), text)
    case ast.UnaryOp(op=ast.USub() | ast.Not() | ast.Invert(), operand=inner):
      yield (*span(node), f"({text[slice(*span(inner))]})")
    case ast.Constant(value=bool() as value):
      yield (*span(node), str(not value))
    case ast.Constant(value=int() as value):
      yield (*span(node), str(value + 1))
    case ast.Constant(value=float() as value):
      yield (*span(node), str(value * 1.5 + 0.1))
    case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
      yield (*span(test), f"(not ({text[slice(*span(test))]}))")
    case ast.Call(func=ast.Attribute(attr="where"), args=[_, yes, no]):
      yes, no = span(yes), span(no)
      middle = text[yes[1] : no[0]]
      swapped = text[slice(*no)] + middle + text[slice(*yes)]
      yield yes[0], no[1], swapped
    case ast.Call(func=ast.Attribute(attr=name)) if name in _FUNCTIONS:
      end = span(node.func)[1]
      yield end - len(name), end, _FUNCTIONS[name]
    case ast.AugAssign() | ast.Expr(value=ast.Call()):
      yield (*span(node), "pass")


def _operator(op, begin, end, text):
  """The change of an operator between two operands."""
  old = text[begin:end]
  # Brackets and line ends around the operator stay.
  characters = "() \n"
  left = len(old) - len(old.lstrip(characters))
  right = len(old.rstrip(characters))
  return begin + left, begin + right, _OPERATORS[type(op)]


def body_of(mutant: Mutant) -> range:
  """The lines of the function whose signature has the mutant's line."""
  for node in ast.walk(ast.parse((ROOT / mutant.file).read_text())):
    if isinstance(node, ast.FunctionDef):
      first = node.body[0].lineno
      if node.lineno <= mutant.line < first:
        return range(first, node.end_lineno + 1)
  return range(0)


class Tests:
  """Which tests run a line, and how long each takes."""

  def __init__(self, coverage: pathlib.Path, durations: pathlib.Path):
    from coverage import CoverageData

    self._data = CoverageData(str(coverage))
    self._data.read()
    self._seconds = collections.defaultdict(float)
    for case in xml.etree.ElementTree.parse(durations).iter("testcase"):
      file = case.get("classname").replace(".", "/") + ".py"
      name = f"{file}::{case.get('name')}"
      self._seconds[name] = float(case.get("time"))

  def of(self, mutant: Mutant) -> list[str]:
    """Tests that run the mutant's line, the shortest first.

    Of a line that runs elsewhere they are those of the function whose signature
    it is in, and `_OTHERS`.
    """
    runs = self._data.contexts_by_lineno(str(ROOT / mutant.file))
    tests = self._shortest(runs, [mutant.line])
    return tests or [*self._shortest(runs, body_of(mutant)), *_OTHERS]

  def _shortest(self, runs, lines):
    """Tests that run any of some lines, the shortest first."""
    names = {
      name.partition("|")[0]
      for line in lines
      for name in runs.get(line, [])
      if name
    }
    chosen, total = [], 0.0
    for name in sorted(names, key=lambda name: (self._seconds[name], name)):
      total += self._seconds[name]
      if total > MOST and chosen:
        break
      chosen.append(name)
    return chosen


def outcome(mutant: Mutant, tests: list[str]) -> str:
  """`killed`, `survived` or `no test`."""
  if not tests:
    return "no test"
  with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
    folder = pathlib.Path(folder)
    package = pathlib.Path(mutant.file).parts[0]
    shutil.copytree(ROOT / package, folder / package)
    for path in ROOT.iterdir():
      if path.name not in (package, ".git"):
        os.symlink(path, folder / path.name)
    text = (ROOT / mutant.file).read_text()
    (folder / mutant.file).write_text(mutant.of(text))
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-m", ""]
    command += ["-p", "no:cacheprovider", "--rootdir", str(folder), *tests]
    try:
      process = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder)},
        capture_output=True,
        timeout=60 + 10 * MOST,
        check=False,
      )
    except subprocess.TimeoutExpired:  # A loop without an end.
      return "killed"
  return "survived" if process.returncode == 0 else "killed"


def main() -> None:
  parser = argparse.ArgumentParser()
  parser.add_argument("--number", type=int, default=200)
  parser.add_argument("--seed", type=int, default=1)
  parser.add_argument("--jobs", type=int, default=1)
  parser.add_argument("--files", nargs="+", default=PLACES)
  parser.add_argument("--tests", nargs="+")
  parser.add_argument("--coverage", default=".coverage")
  parser.add_argument("--durations", default="tests.xml")
  parser.add_argument("--output", default="mutants.tsv", type=pathlib.Path)
  flags = parser.parse_args()
  files = [file for place in flags.files for file in sorted(ROOT.glob(place))]
  mutants = [mutant for file in files for mutant in mutants_of(file)]
  chosen = random.Random(flags.seed).sample(mutants, flags.number)
  if flags.tests:
    tests_of = lambda mutant: flags.tests
  else:
    tests_of = Tests(flags.coverage, flags.durations).of
  old_results = {}
  if flags.output.exists():
    for line in flags.output.read_text().splitlines():
      result, *key = line.split("\t")
      old_results[tuple(key)] = result

  def result_of(mutant):
    old, new = mutant.lines()
    key = (mutant.file, str(mutant.line), old, new)
    if key in old_results:
      return old_results[key]
    if (mutant.file, old, new) in EQUIVALENT:
      return "equivalent"
    result = outcome(mutant, tests_of(mutant))
    with flags.output.open("a") as file:
      file.write("\t".join((result, *key)) + "\n")
    print(result, *key, sep="\t", flush=True)
    return result

  with concurrent.futures.ThreadPoolExecutor(flags.jobs) as pool:
    results = collections.Counter(pool.map(result_of, chosen))
  tried = sum(results.values()) - results["equivalent"]
  print(
    f"{results['killed']} of {tried} mutants killed, of {len(mutants)} that "
    f"there are; {results['equivalent']} do the same and are not counted"
  )


if __name__ == "__main__":
  main()
