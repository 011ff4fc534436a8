"""What each extra lets one do, where no other package is there.

  python extras_alone.py '{"": ["jax", ...], "run": [...]}' DATA_DIR

imports what all have, and then each extra in a process of its own. Packages of
other distributions than those, and what these require, cannot be imported. It
prints {extra: 'works', 'is not installed', or what went wrong}.
"""

import functools
import importlib.abc
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import sys
import traceback

from packaging.requirements import Requirement


def normal(name):
  return name.lower().replace("_", "-").replace(".", "-")


class OnlyThese(importlib.abc.MetaPathFinder):
  """Finds no package of another distribution."""

  def __init__(self):
    self.allowed = set()
    self._of = importlib.metadata.packages_distributions()

  def find_spec(self, name, path=None, target=None):
    owners = {normal(d) for d in self._of.get(name.partition(".")[0], ())}
    if owners and not owners & self.allowed | ({"fedjax-opt"} & owners):
      raise ModuleNotFoundError(f"hidden here: {name}", name=name)


def needed_by(names, extras=()):
  """These distributions, and all that they require."""
  packages, todo = set(), [(normal(name), tuple(extras)) for name in names]
  while todo:
    name, package_extras = todo.pop()
    if name in packages:
      continue
    packages.add(name)
    try:
      requires = importlib.metadata.requires(name) or ()
    except importlib.metadata.PackageNotFoundError:
      packages.add(f"no {name}")
      continue
    for requirement in map(Requirement, requires):
      for extra in (*package_extras, ""):
        if not requirement.marker or requirement.marker.evaluate(
          {"extra": extra}
        ):
          todo.append((normal(requirement.name), tuple(requirement.extras)))
          break
  return packages


def base():
  import optax

  import fedjax_opt as fo

  assert callable(fo.fed_avg(lambda *_: None, optax.sgd(0.1)).round)
  for path in pathlib.Path(fo.__file__).parent.rglob("*.py"):
    parts = path.relative_to(pathlib.Path(fo.__file__).parents[1]).parts
    if "_commands" not in parts:
      importlib.import_module(".".join(parts).removesuffix(".py"))


def run(data):
  from experiments import run as command
  from fedjax_opt import plots
  from fedjax_opt.datasets import embedded
  from fedjax_opt.results import progress

  assert callable(command.main)
  plots.check_installed()
  assert len(embedded.digits()) == 2
  with progress.bar(1, "rounds") as bar:
    bar.update()


def tfds(data):
  from fedjax_opt.datasets import tfds as reader

  assert reader.load("mnist", "test", data)["x"].shape == (10, 28, 28, 1)


def text(data):
  from fedjax_opt.datasets import tokenization

  tokenization.train(["the team wins a bank game"], 40)


def tensorboard(data):
  import tensorboardX

  assert tensorboardX.SummaryWriter


def fmri(data):
  import nilearn.image

  assert nilearn.image.load_img


def privacy(data):
  from fedjax_opt import privacy as accounting

  print(accounting.epsilon, file=sys.stderr)
  import dp_accounting
  import jax_privacy

  assert dp_accounting, jax_privacy


EXTRAS = {
  function.__name__: function
  for function in (run, tfds, text, tensorboard, fmri, privacy)
}


def in_a_fork(function):
  """What it says, 'works' if nothing; the process here stays as it is."""
  reading, writing = os.pipe()
  child = os.fork()
  if not child:
    try:
      function()
      outcome = "works"
    except BaseException:
      outcome = traceback.format_exc()
    os.write(writing, outcome.encode()[-4000:])
    os._exit(0)
  os.close(writing)
  with os.fdopen(reading) as file:
    outcome = file.read()
  os.waitpid(child, 0)
  return outcome


def main():
  required, data = json.loads(sys.argv[1]), sys.argv[2]
  finder = OnlyThese()
  finder.allowed = needed_by(required[""])
  sys.meta_path.insert(0, finder)
  base()
  outcomes = {"": "works"}
  for name, function in EXTRAS.items():
    needed = needed_by(required[name])
    if any(f"no {normal(package)}" in needed for package in required[name]):
      outcomes[name] = "is not installed"
      continue
    finder.allowed |= needed
    outcomes[name] = in_a_fork(functools.partial(function, data))
    finder.allowed = needed_by(required[""])
  print(json.dumps(outcomes))


if __name__ == "__main__":
  main()
