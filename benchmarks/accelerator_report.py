"""The report of accelerator.py, from the results that there are."""

import json
import pathlib
from collections.abc import Sequence
from typing import Any

_PEERS = {
  "cnn": "CNN, 10 clients x 8 steps x 64 MNIST-size images",
  "mlp": "MLP 3072-100-10, 10 x 64 x 16",
}

# Seconds a round in FL-Simulator's README, of PyTorch on an NVIDIA V100.
_PUBLISHED = {
  "FL-Simulator, fed_avg": 15.86,
  "FL-Simulator, fed_prox": 19.78,
  "FL-Simulator, scaffold": 20.09,
  "FL-Simulator, fed_dyn": 20.82,
  "FL-Simulator, fed_cm": 20.74,
}
# Test accuracies there after 1,000 rounds; clients by a Dirichlet(0.6) mixture.
_ACCURACIES = {
  "fed_avg": 80.65, "fed_prox": 81.05, "scaffold": 83.53, "fed_dyn": 84.22,
  "fed_cm": 83.81,
}  # fmt: skip


def trained(method: str) -> str:
  """The name of FL-Simulator's run of a method to its end."""
  return f"FL-Simulator, {method}, 1,000 rounds"


def write(folder: pathlib.Path, names: Sequence[str]) -> None:
  """Writes report.md and the pictures.

  Args:
    folder: of accelerator.py.
    names: of the jobs, in their order.
  """
  found = {}
  for file in (folder / "results").glob("*.json"):
    record = json.loads(file.read_text())
    found[record["name"]] = record
  records = [found[name] for name in names if name in found]
  measured = [r for r in records if not {"left_out", "error"} & set(r)]
  text = [_device(found.get("device", {}))]
  text += _rounds(measured, found.get("device", {}))
  text += _others(measured)
  text += _missing(records, names)
  (folder / "report.md").write_text("\n\n".join(text) + "\n")
  _picture(folder, measured)


def _device(record: dict[str, Any]) -> str:
  """What was measured of the device itself."""
  if "kind" not in record:
    return "The device was not measured."
  versions = ", ".join(
    f"{name} {record[name]}" for name in ("jax", "jaxlib", "flax", "optax")
  )
  return (
    f"{record['count']} x {record['kind']}; {versions}. Matrix products of "
    f"{record['float32_tflops']:.3g} TFLOP/s in float32, "
    f"{record['tf32_tflops']:.3g} in TF32 and {record['bfloat16_tflops']:.3g} "
    f"in bfloat16; memory at {record['gb_per_s']:.4g} GB/s; a step of a loop "
    f"with two small kernels takes "
    f"{record['microseconds_a_step_of_two_kernels']:.3g} µs."
  )


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
  """A table in Markdown."""
  lines = [header, ["---"] * len(header), *rows]
  return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _peak(record: dict[str, Any], device: dict[str, Any]) -> float | None:
  """TFLOP/s of matrix products in the types that a round computes in."""
  precision = (record.get("settings") or {}).get("precision", "float32")
  if precision != "float32":
    return device.get("bfloat16_tflops")
  is_full = record.get("matmul") == "highest"
  return device.get("float32_tflops" if is_full else "tf32_tflops")


def _rounds(measured, device):
  """Rounds of FedAvg, ours and others'."""
  rows = []
  for record in measured:
    if "ms_per_round" not in record:
      continue
    peak = _peak(record, device)
    tflops, memory = record.get("tflops"), record.get("peak_gb")
    share = f"{100 * tflops / peak:.3g}" if tflops and peak else "–"
    first = record.get("compile_seconds", record.get("first_turn_seconds"))
    low, high = min(record["range_ms"]), max(record["range_ms"])
    rows.append(
      [
        record["name"],
        f"{record['ms_per_round']:.4g}",
        f"{low:.4g} to {high:.4g}",
        f"{tflops:.3g}" if tflops else "–",
        share,
        f"{memory:.3g}" if memory else "–",
        f"{first:.3g}",
      ]
    )
  if not rows:
    return []
  header = (
    "round", "ms", "range", "TFLOP/s", "% of the product's", "peak GB",
    "compile s",
  )  # fmt: skip
  return ["## Rounds", table(header, rows), *_ratios(measured)]


def _ratios(measured):
  """How many times as fast as others, and what more settings cost."""
  times = {r["name"]: r.get("ms_per_round") for r in measured}
  lines = []
  for model, title in _PEERS.items():
    ours = times.get(f"{model}, auto")
    for name, other in times.items():
      of_model, _, framework = name.partition(", ")
      is_peer = any(r["name"] == name and r["case"] == "peer" for r in measured)
      if ours and is_peer and of_model == model:
        lines.append(f"- {title}: {framework} takes {other / ours:.3g} times")
  one = times.get("mlp, grid of 1")
  lines += [
    f"- MLP: {n} settings cost {times[f'mlp, grid of {n}'] / one:.3g} times one"
    for n in (8, 64)
    if one and times.get(f"mlp, grid of {n}")
  ]
  return ["\n".join(lines)] if lines else []


def _others(measured):
  """Seconds a round in published protocols, and what the papers' runs said."""
  rows = [
    [
      r["name"],
      f"{r['seconds_per_round']:.3g}",
      f"{r['compile_seconds']:.3g}",
      f"{_PUBLISHED[r['name']]:g} on a V100",
    ]
    for r in measured
    if "seconds_per_round" in r
  ]
  found = []
  if rows:
    header = ("protocol", "seconds a round", "compile s", "published")
    found += ["## Published protocols", table(header, rows)]
  published = {trained(name): value for name, value in _ACCURACIES.items()}
  for record in measured:
    if "said" in record:
      said = record["said"].rstrip()
      found.append(f"### {record['name']}\n\n```\n{said}\n```")
      if record["name"] in published:
        found.append(f"Published: {published[record['name']]:.2f} %.")
  return found


def _missing(records, names):
  """What was left out or failed."""
  known = {r["name"] for r in records}
  lines = [
    f"- {r['name']}: {r.get('left_out') or r.get('error')}"
    for r in records
    if {"left_out", "error"} & set(r)
  ]
  lines += [f"- {name}: not begun" for name in names if name not in known]
  return ["## Left out", "\n".join(lines)] if lines else []


def _picture(folder, measured):
  """Milliseconds a round, all rounds below each other."""
  import matplotlib as mpl

  mpl.use("agg")
  import matplotlib.pyplot as plt

  rounds = [r for r in measured if "ms_per_round" in r][::-1]
  if not rounds:
    return
  figure, axes = plt.subplots(
    figsize=(7, 0.8 + 0.22 * len(rounds)), layout="constrained"
  )
  axes.barh([r["name"] for r in rounds], [r["ms_per_round"] for r in rounds])
  axes.set_xscale("log")
  axes.set_xlabel("milliseconds a round")
  axes.margins(y=0.01)
  figure.savefig(folder / "rounds.png", dpi=120)
  plt.close(figure)
