"""Figures 7 and 8 of the Δ-SGD paper: step sizes and data of clients."""

import functools

import numpy as np

from experiments.artefacts import client_labels
from experiments.artefacts.artefact import Entries, Records
from experiments.artefacts.blocks import Block, Claim, Picture, Quantity
from experiments.stored.records import RecordedParts
from fedjax_opt import Run, plots
from fedjax_opt.study.plots.step_size_trace import FIELDS

# Figure 7: the two terms of the minimum.

_TRACED, _DETAIL = 300, 12  # Rounds that are kept, and drawn step by step.


def trace_of(entries: Entries, run: Run) -> RecordedParts:
  """Step sizes of the first client of each round, [seeds, rounds, steps]."""
  del entries
  with np.load(run.folder / "traces.npz") as file:
    arrays = {n: file[n][:, :_TRACED, 0] for n in FIELDS.values()}
  return RecordedParts(("test_accuracy",), arrays=arrays)


def step_sizes(entries: Entries, records: Records) -> list[Block]:
  """Pictures of the steps, and how often each term decides."""
  del entries
  (record,) = records.values()
  traces = {name: record.arrays[key] for name, key in FIELDS.items()}
  trace = {name: values[0] for name, values in traces.items()}  # One seed's.
  first = {name: values[:_DETAIL] for name, values in trace.items()}
  smoothness, growth = traces["smoothness"], traces["growth"]
  is_step = np.isfinite(growth) & (traces["step_size"] > 0)
  share = 100 * np.mean(smoothness < growth, axis=(1, 2), where=is_step)
  shares = {"smoothness": share, "growth": 100 - share}  # [seeds] each.
  return [
    Picture(
      "first",
      functools.partial(
        plots.step_sizes, first, None, title=f"{_DETAIL} rounds"
      ),
      "Both terms of the step size at each local step of one client a round",
    ),
    Picture(
      "rounds",
      functools.partial(plots.step_sizes, trace, None),
      "Step sizes over rounds with the first seed, and each term's share",
    ),
    Claim(
      "Both terms are needed: each is the smaller one at some steps",
      [
        Quantity(f"steps with the {name} term", tuple(values.tolist()), "%")
        for name, values in shares.items()
      ],
    ),
  ]


# Figure 8: who has which labels.


def labels(entries: Entries, records: Records) -> list[Block]:
  """A picture of the labels at each α, and the clients' numbers of classes."""
  size = entries["calls"]["options"]["num_clients"]
  blocks: list[Block] = []
  for (alpha,), record in records.items():
    counts = client_labels.counts_of(record)
    counts = counts.reshape(-1, size, counts.shape[1])
    title = plots.partition_title("dirichlet", float(alpha))
    blocks.append(
      client_labels.picture(f"alpha_{alpha}", counts[0], title, f"α = {alpha}")
    )
    if alpha == "0.01":
      shares = 100 * np.mean((counts > 0).sum(axis=2) <= 2, axis=1)
      text = "Many clients have one or two classes, α = 0.01: more than half"
      above_half = Quantity("share", tuple(shares.tolist()), "%", limit=50)
      blocks.append(Claim(text, [above_half]))
  return blocks
