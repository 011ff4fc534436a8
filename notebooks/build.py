"""Makes the notebooks from their text, or checks those that are there.

  python notebooks/build.py [NAMES]          executes, writes NN_name.ipynb
  python notebooks/build.py [NAMES] --check  executes, writes nothing
  python notebooks/build.py [NAMES] --quick  the same with few rounds and seeds

NN_name.py (jupytext, py:percent) is what people edit. NN_name.ipynb is made
from it: executed in a kernel of the running Python, with its outputs. The check
ends with status 1 if a cell fails, if what a notebook shows is not fit to be
read, or if an .ipynb was not made from its .py as it is. A name is the start of
a notebook's name, such as 03; without names all notebooks are meant.

Without FEDJAX_OPT_SOURCE the notebooks import the package beside this folder.
With it, their install cell installs what it names (`folder[run]`).
"""

import argparse
import hashlib
import json
import os
import pathlib
import re
import sys
import tempfile
import time

import jupytext
import nbclient
import nbformat

FOLDER = pathlib.Path(__file__).resolve().parent
SECONDS = 900  # No cell of any notebook takes longer, installing included.
BYTES = 1_500_000
# Notebook -> what a quick check executes after the cell of sizes. All code runs
# then, but too shortly to show what the text says.
QUICK = {
  "01": "rounds, seeds = 20, [0, 1]",
  "02": "rounds, eval_every, report_seeds = 12, 6, [3, 4]",
  "03": "rounds, eval_every, report_seeds = 8, 2, [3, 4]; "
  "alphas, rates = [1.0, 0.1], [0.1, 1.0]",
  "04": "rounds, recorded_rounds, plane_rounds = 20, 20, 2",
  "05": "sizes |= dict(rounds=20, zetas=[0.1, 10.0], local_steps=[1, 16], "
  "starts=2, rates=[0.01, 0.1], image_rounds=4, image_rates=[1.0, 3.0], "
  "image_seeds=3)",
  "06": "sizes |= dict(rounds=12, tuning_seeds=[0, 1])",
  "07": "sizes |= dict(seconds=12, steps=80)",
}
# Of the repository on GitHub: also in the first cells of the notebooks.
REPOSITORY = "fedjax-opt/fedjax_opt"
BADGE = (
  "[![Open In Colab](https://colab.research.google.com/assets/"
  "colab-badge.svg)](https://colab.research.google.com/github/"
  f"{REPOSITORY}/blob/main/notebooks/{{name}}.ipynb)"
)
# Colab opens the notebook with a TPU, if it has one.
METADATA = {
  "accelerator": "TPU",
  "colab": {"gpuType": "V5E1", "provenance": []},
  "kernelspec": {
    "display_name": "Python 3",
    "language": "python",
    "name": "python3",
  },
  "language_info": {"name": "python"},
}


def main(argv: list[str] | None = None) -> int:
  """Builds or checks notebooks, and prints the seconds of each."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("names", nargs="*", help="such as 03 or 03_delta_sgd")
  parser.add_argument("--check", action="store_true", help="writes nothing")
  parser.add_argument(
    "--quick", action="store_true", help="a check with few rounds and seeds"
  )
  args = parser.parse_args(argv)
  is_check, failed = args.check or args.quick, False
  for text in sources(args.names):
    problems, seconds = check(text, args.quick) if is_check else build(text)
    failed |= bool(problems)
    print(f"{text.stem}: {seconds}", flush=True)
    for problem in problems:
      print(f"  {problem}", flush=True)
  return int(failed)


def sources(names: list[str] = ()) -> list[pathlib.Path]:
  """Returns the texts of the notebooks whose names start with one of `names`.

  Raises:
    SystemExit: if a name belongs to no notebook.
  """
  texts = sorted(FOLDER.glob("[0-9][0-9]_*.py"))
  names = [pathlib.Path(name).stem for name in names]
  for name in names:
    if not any(text.stem.startswith(name) for text in texts):
      known = ", ".join(text.stem for text in texts)
      raise SystemExit(f"names: there is no notebook {name!r}, but {known}")
  if not names:
    return texts
  return [t for t in texts if any(t.stem.startswith(n) for n in names)]


def build(text: pathlib.Path) -> tuple[list[str], str]:
  """Writes the executed notebook; returns its problems and its time."""
  notebook = from_text(text)
  problems, seconds = execute(notebook)
  if not problems:  # What failed keeps the notebook of before.
    text.with_suffix(".ipynb").write_text(as_json(notebook))
    problems = faults(notebook, text.stem)
  return problems, seconds


def check(text: pathlib.Path, quick: bool) -> tuple[list[str], str]:
  """Executes the notebook in memory; returns its problems and its time."""
  notebook = from_text(text)
  if quick:
    sizes = nbformat.v4.new_code_cell(QUICK[text.stem[:2]])
    notebook.cells.insert(3, sizes)
  problems, seconds = execute(notebook)
  if not problems:
    problems = faults(notebook, text.stem)
  return [*problems, *unpaired(text)], seconds


def from_text(text: pathlib.Path) -> nbformat.NotebookNode:
  """Returns the notebook of a text, without outputs."""
  notebook = jupytext.read(text)
  notebook.metadata = nbformat.from_dict(METADATA)
  notebook.nbformat, notebook.nbformat_minor = 4, 5  # The first with ids.
  seen = {}
  for cell in notebook.cells:
    digest = hashlib.sha256(cell.source.encode()).hexdigest()[:8]
    seen[digest] = seen.get(digest, 0) + 1
    cell.id = f"{digest}-{seen[digest]}"
    cell.metadata = nbformat.from_dict({})
  return notebook


def execute(notebook: nbformat.NotebookNode) -> tuple[list[str], str]:
  """Runs all cells of `notebook` in place; returns errors and the seconds."""
  installed = []  # Seconds when the first code cell had ended.
  begin = time.perf_counter()

  def after_cell(**kwargs):
    del kwargs
    if not installed:
      installed.append(time.perf_counter() - begin)

  problems = []
  with tempfile.TemporaryDirectory() as folder:  # For what a notebook writes.
    client = nbclient.NotebookClient(
      notebook,
      timeout=SECONDS,
      kernel_name="python3",
      record_timing=False,
      coalesce_streams=True,
      store_widget_state=False,
      extra_arguments=kernel_arguments(),
      resources={"metadata": {"path": folder}},
      on_cell_executed=after_cell,
    )
    try:
      client.execute(env=environment())
    except nbclient.exceptions.CellExecutionError as error:
      problems.append(re.sub(r"\x1b\[[0-9;]*m", "", str(error)))
    except nbclient.exceptions.CellTimeoutError:
      problems.append(f"a cell took more than {SECONDS} s")
  total = time.perf_counter() - begin
  start = installed[0] if installed else total
  tidy(notebook)
  return problems, f"{total - start:.1f} s, and {start:.1f} s to start"


def kernel_arguments() -> list[str]:
  """Returns what the kernel starts with."""
  # Tracing makes many objects, few of them in cycles.
  lines = ["import gc; gc.set_threshold(50_000, 20, 100)"]
  if "FEDJAX_OPT_SOURCE" not in os.environ:  # Else nothing is installed yet.
    lines.append("import notebooks.phones")
  lines = [f"--IPKernelApp.exec_lines={line}" for line in lines]
  return ["--IPKernelApp.log_level=40", *lines]  # Errors only.


def environment() -> dict[str, str]:
  """Returns the kernel's environment, in which the package is to be found."""
  env = dict(os.environ)
  if "FEDJAX_OPT_SOURCE" not in env:
    paths = [str(FOLDER.parent), env.get("PYTHONPATH", "")]
    env["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
  return env


def tidy(notebook: nbformat.NotebookNode) -> None:
  """Leaves what a page shows: last states of bars, no metadata of a run."""
  notebook.metadata = nbformat.from_dict(METADATA)
  for cell in notebook.cells:
    cell.metadata = nbformat.from_dict({})
    if cell.source == INSTALL:
      cell.outputs = []  # What pip has to say is of the machine.
    for output in cell.get("outputs", ()):
      if output.output_type == "stream":
        lines = output.text.split("\n")
        output.text = "\n".join(line.split("\r")[-1] for line in lines)
      elif "metadata" in output:  # The size at which a picture is shown.
        kept = {n: v for n, v in output.metadata.items() if n == "image/png"}
        output.metadata = nbformat.from_dict(kept)


def as_json(notebook: nbformat.NotebookNode) -> str:
  nbformat.validate(notebook)
  text = nbformat.v4.writes(notebook)
  return json.dumps(json.loads(text), indent=1, ensure_ascii=False) + "\n"


def unpaired(text: pathlib.Path) -> list[str]:
  """Says so if the notebook beside `text` was not made from it as it is."""
  path = text.with_suffix(".ipynb")
  if not path.exists():
    return [f"{path.name} is not there; python notebooks/build.py {text.stem}"]
  made = nbformat.read(path, as_version=4).cells
  wanted = from_text(text).cells
  if [(c.id, c.cell_type, c.source) for c in made] != [
    (c.id, c.cell_type, c.source) for c in wanted
  ]:
    return [
      f"{path.name} differs from {text.name}; "
      f"python notebooks/build.py {text.stem}"
    ]
  return []


def faults(notebook: nbformat.NotebookNode, name: str) -> list[str]:
  """Returns what keeps an executed notebook from being read, one line each."""
  problems = layout_faults(notebook, name)
  outputs = [o for cell in notebook.cells for o in cell.get("outputs", ())]
  if any(o.output_type == "error" for o in outputs):
    problems.append("a cell ended with an error")
  pictures = sum("image/png" in o.get("data", {}) for o in outputs)
  if pictures < 2:
    problems.append(f"has {pictures} pictures; at least two are wanted")
  for line in "\n".join(map(shown, outputs)).splitlines():
    if re.search(r"Traceback|Warning|WARNING|Error\b", line):
      problems.append(f"shows {line[:120]!r}")
    if re.search(r"(?<![\w/:.])/(home|root|tmp|work|usr|opt|var)/", line):
      problems.append(f"shows a path of this machine: {line[:120]!r}")
  size = len(as_json(notebook).encode())
  if size > BYTES:
    problems.append(f"has {size} bytes; at most {BYTES} are wanted")
  return problems


def layout_faults(notebook: nbformat.NotebookNode, name: str) -> list[str]:
  """Returns which of the cells that every notebook has are missing."""
  first, second, third, *_ = [c.source for c in notebook.cells]
  last = notebook.cells[-1]
  problems = []
  if not first.startswith("# ") or BADGE.format(name=name) not in first:
    problems.append("the first cell needs a title and its Colab badge")
  if second != INSTALL:
    problems.append("the second cell is not the one that installs")
  if not all(part in third for part in DEVICE):
    problems.append("the third cell does not say which device was found")
  if last.cell_type != "markdown" or "Try next" not in last.source:
    problems.append("the last cell is not called Try next")
  return problems


def shown(output: nbformat.NotebookNode) -> str:
  """Returns the text of an output."""
  data = output.get("data", {})
  return output.get("text", "") + data.get("text/plain", "")


INSTALL = """\
# Installs the package on Colab, or where a wheel of it is in this folder.
import os
import pathlib
import subprocess
import sys

REPOSITORY = "https://github.com/OWNER/NAME"
source = os.environ.get("FEDJAX_OPT_SOURCE")  # Goes before both.
for wheel in sorted(pathlib.Path().glob("fedjax_opt-*.whl")):
  source = source or f"./{wheel}[run]"
if "google.colab" in sys.modules:
  source = source or f"fedjax_opt[run] @ git+{REPOSITORY}"
if source:
  command = [sys.executable, "-m", "pip", "install", "-q", source]
  if subprocess.run(command).returncode:
    raise SystemExit(
      f"{source} cannot be installed. As long as {REPOSITORY} is not public, "
      "run `pip wheel --no-deps .` in a clone of it, and upload the wheel to "
      "the folder of this notebook, /content on Colab."
    )""".replace("OWNER/NAME", REPOSITORY)
DEVICE = (
  "on_accelerator = (",
  'os.environ.get("FEDJAX_OPT_NOTEBOOK_SIZES") == "accelerator"',
  'print(f"{jax.device_count()} x {jax.devices()[0].device_kind}")',
)


if __name__ == "__main__":
  sys.exit(main())
