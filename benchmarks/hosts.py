"""A run on 1, 2 and 4 local processes, with 100,000 clients on disk.

  python benchmarks/hosts.py --folder=NEW_FOLDER

Makes a population of made-up digits in a new folder (130 MB by default) and
keeps it: give the folder again to measure again. Then one command of
`experiments.run` runs on so many processes, each with one device of the
processor. It prints milliseconds a round, and by how much the last metrics
differ from those of one process. More processes than cores cannot be faster.
"""

import argparse
import csv
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile

import numpy as np
from round_time import print_table

ROOT = pathlib.Path(__file__).parents[1]
SHAPE, EXAMPLES = (8, 8, 1), 20
FLAGS = (
  "--task=digits_mlp", "--client=sgd", "--client_lr=0.1", "--batch_size=10",
  "--cohort_size=200", "--local_epochs=5", "--eval_every=10",
  "--select_on=test",
)  # fmt: skip


def make(folder: pathlib.Path, num_clients: int) -> None:
  """Writes the clients, one after the other."""
  import fedjax_opt as fo

  rng = np.random.default_rng(0)

  def clients():
    for _ in range(num_clients):
      x = rng.integers(0, 17, (EXAMPLES, *SHAPE), np.uint8)
      yield {"x": x, "y": rng.integers(0, 10, EXAMPLES, np.int32)}

  fo.Population.write(folder, clients())


def free_port() -> int:
  with socket.socket() as opened:
    opened.bind(("127.0.0.1", 0))
    return opened.getsockname()[1]


def run(
  folder: pathlib.Path, number: int, rounds: int
) -> tuple[float, dict[str, float]]:
  """Milliseconds a round on so many processes, and the last metrics."""
  output = pathlib.Path(tempfile.mkdtemp(dir=folder)) / "run"
  command = [
    sys.executable, "-m", "experiments.run", *FLAGS, f"--rounds={rounds}",
    f"--population_dir={folder / 'clients'}", f"--output_dir={output}",
  ]  # fmt: skip
  joined = [[]]
  if number > 1:
    address = f"127.0.0.1:{free_port()}"
    joined = [
      [f"--coordinator={address}", f"--num_processes={number}",
       f"--process_id={i}"]
      for i in range(number)
    ]  # fmt: skip
  environment = os.environ | {"JAX_PLATFORMS": "cpu"}
  started = [
    subprocess.Popen(
      [*command, *flags], cwd=ROOT, env=environment,
      stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )
    for flags in joined
  ]  # fmt: skip
  for process in started:
    _, said = process.communicate()
    if process.returncode:
      raise SystemExit(f"{number} processes: {said.strip()}")
  timing = json.loads((output / "summary.json").read_text())["timing"]
  with (output / "metrics.csv").open() as file:
    last = list(csv.DictReader(file))[-1]
  metrics = {n: float(x) for n, x in last.items() if "seconds" not in n}
  return 1e3 * timing["run_seconds"] / rounds, metrics


def main() -> None:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument("--folder", required=True)
  parser.add_argument("--clients", type=int, default=100_000)
  parser.add_argument("--rounds", type=int, default=50)
  options = parser.parse_args()
  folder = pathlib.Path(options.folder).expanduser().resolve()
  if not (folder / "clients").exists():
    make(folder / "clients", options.clients)
  rows, first = [], None
  for number in (1, 2, 4):
    milliseconds, metrics = run(folder, number, options.rounds)
    first = first or metrics
    differs = max(
      abs(metrics[n] - x) / max(abs(x), 1e-12) for n, x in first.items()
    )
    rows.append([str(number), f"{milliseconds:.4g}", f"{differs:.1e}"])
  print_table(("processes", "ms / round", "largest difference"), rows)


if __name__ == "__main__":
  main()
