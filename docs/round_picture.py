"""Draws round.svg, the picture of a round: `python docs/round_picture.py`."""

import pathlib

import matplotlib
from matplotlib import figure, patches

FILE = pathlib.Path(__file__).parent / "round.svg"
_DATA, _CLIENT, _SERVER = "#dce9f5", "#fbe6cf", "#dff0dd"
_EDGE = "#444444"


def draw() -> figure.Figure:
  """The figure: from the population to the server's next state."""
  fig = figure.Figure(figsize=(10, 5.2))
  ax = fig.add_axes((0, 0, 1, 1))
  ax.set(xlim=(0, 100), ylim=(0, 52))
  ax.axis("off")
  _program(ax)
  _population(ax)
  _clients(ax)
  _server(ax)
  _arrows(ax)
  return fig


def _box(ax, x, y, width, height, text="", color="white", size=10, **style):
  style = dict(edgecolor=_EDGE, linewidth=1, zorder=3) | style
  ax.add_patch(
    patches.FancyBboxPatch(
      (x, y),
      width,
      height,
      boxstyle="round,pad=0,rounding_size=0.8",
      facecolor=color,
      **style,
    )
  )
  middle = (x + width / 2, y + height / 2)
  ax.text(*middle, text, ha="center", va="center", fontsize=size, zorder=5)


def _arrow(ax, start, end, arrowstyle="-|>"):
  ax.add_patch(
    patches.FancyArrowPatch(
      start,
      end,
      arrowstyle=arrowstyle,
      mutation_scale=13,
      color=_EDGE,
      linewidth=1.2,
      shrinkA=0,
      shrinkB=0,
      zorder=4,
    )
  )


def _program(ax):
  """The frame: what is compiled once, for all points of a grid."""
  for shift in (1.6, 0.8, 0):
    _box(ax, 17.5 + shift, 2 + shift, 79.5, 44.5, color="#fafafa", zorder=1)
  ax.text(18.5, 49.6, "one compiled program", fontsize=11, weight="bold")
  style = dict(ha="right", fontsize=10)
  ax.text(98, 49.6, "S points of a grid, each for R rounds", **style)


def _population(ax):
  ax.text(8, 49.6, "on the device", ha="center", fontsize=11, weight="bold")
  _box(ax, 1.5, 33, 13, 12, "pool of\nexamples\n[N, ...]", _DATA)
  _box(ax, 1.5, 18, 13, 12, "rows of each\nof M clients\n[M, n]", _DATA)
  _box(ax, 1.5, 3, 13, 12, "what each\nclient keeps\n[M, ...]", _DATA)


def _clients(ax):
  _box(ax, 20.5, 18, 11, 12, "sampler\ndraws a\ncohort of C", _DATA)
  for y, name in ((34, "client 1"), (20.5, "client 2"), (7, "client C")):
    _box(ax, 36, y, 35.5, 10.5, color=_CLIENT)
    ax.text(37, y + 8, name, fontsize=9.5, va="center", zorder=5)
    for k, text in enumerate(("step 1", "step 2", "…", "step K")):
      x = 37.2 + 8.7 * k
      if text == "…":
        ax.text(x + 2.9, y + 3.6, text, fontsize=12, ha="center", zorder=5)
      else:
        _box(ax, x, y + 1.6, 7, 4.2, text, size=9)
      if k < 3:
        before = 5.3 if text == "…" else 7
        after = 8.7 + (1.5 if k == 1 else 0)
        _arrow(ax, (x + before, y + 3.7), (x + after, y + 3.7))
  ax.text(53.7, 19, "⋮", fontsize=14, ha="center", va="center", zorder=5)
  note = "each step: batch [B] → loss [B] → gradient → client rule (optax)"
  ax.text(53.7, 4.2, note, fontsize=9, ha="center", va="center", zorder=5)


def _server(ax):
  _box(ax, 76.5, 27.5, 17.5, 9, "mean of messages\n(weights)", _SERVER)
  _box(ax, 76.5, 13.5, 17.5, 9, "server rule\n(optax)", _SERVER)


def _arrows(ax):
  _arrow(ax, (14.5, 24), (20.5, 24))
  _arrow(ax, (14.5, 39), (20, 39))  # Batches are gathered inside.
  _arrow(ax, (14.5, 9), (20, 9), "<|-|>")
  ax.text(20.6, 39, "batches", fontsize=9.5, va="center", zorder=5)
  ax.text(20.6, 9, "rows of C", fontsize=9.5, va="center", zorder=5)
  for y in (39.2, 25.7, 12.2):
    _arrow(ax, (31.5, 24), (36, y))
    _arrow(ax, (71.5, y), (76.5, 32))
  _arrow(ax, (85.2, 27.5), (85.2, 22.5))
  _arrow(ax, (85.2, 13.5), (85.2, 9))
  text = "state of the\nnext round"
  ax.text(85.2, 6.5, text, fontsize=10, ha="center", va="center", zorder=5)


if __name__ == "__main__":
  matplotlib.rcParams["svg.hashsalt"] = "round"
  draw().savefig(FILE, metadata={"Date": None})
