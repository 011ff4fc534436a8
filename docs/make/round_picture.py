"""Draws round.svg, the picture of a round, and round_phone.svg, for phones.

python docs/make/round_picture.py
"""

import pathlib

import matplotlib
from matplotlib import figure, patches

FILE = pathlib.Path(__file__).parents[1] / "round.svg"
_DATA, _CLIENT, _SERVER = "#dce9f5", "#fbe6cf", "#dff0dd"
_EDGE = "#444444"


def draw() -> figure.Figure:
  """The figure: from the population to the server's next state."""
  fig = figure.Figure(figsize=(8.3, 4.316))
  ax = fig.add_axes((0, 0, 1, 1))
  ax.set(xlim=(0, 100), ylim=(0, 52))
  ax.axis("off")
  _program(ax)
  _population(ax)
  _clients(ax)
  _server(ax)
  _arrows(ax)
  return fig


def draw_for_phones() -> figure.Figure:
  """The same from top to bottom."""
  fig = figure.Figure(figsize=(3.6, 5.4))
  ax = fig.add_axes((0, 0, 1, 1))
  ax.set(xlim=(0, 36), ylim=(0, 54))
  ax.axis("off")
  ax.text(0.5, 52.2, "on the device", fontsize=9, weight="bold")
  parts = "pool of\nexamples\n[N, ...]", "rows of M\nclients\n[M, n]"
  for i, text in enumerate((*parts, "what each\nclient keeps\n[M, ...]")):
    _box(ax, 0.5 + 12 * i, 44.5, 10.8, 6.8, text, _DATA, 8)
  ax.text(1.5, 39, "one compiled program", fontsize=9, weight="bold", zorder=5)
  ax.text(
    1.5, 37.2, "S points of a grid, each for R rounds", fontsize=8, zorder=5
  )
  for shift in (0.8, 0.4, 0):
    _box(ax, 0.5 + shift, 0.6 + shift, 34.2, 40, color="#fafafa", zorder=1)
  for x in (5.9, 17.9, 29.9):
    _arrow(ax, (x, 44.5), (x, 41.4), "<|-|>" if x > 20 else "-|>")
  _box(ax, 6, 31.6, 24, 3.6, "sampler draws a cohort of C", _DATA, 8)
  for shift in (1.2, 0.6, 0):  # The clients, the first in front.
    _box(ax, 2 + shift, 15.5 + shift, 30.2, 12.6, color=_CLIENT)
  ax.text(3, 26, "clients 1 to C", fontsize=8, va="center", zorder=5)
  for x, text in zip(
    (3, 10.2, 24.4), ("step 1", "step 2", "step K"), strict=True
  ):
    _box(ax, x, 20.6, 5.8, 3.4, text, size=8)
  ax.text(20.2, 22.3, "…", fontsize=9, ha="center", va="center", zorder=5)
  for start, end in ((8.8, 10.2), (16, 18.6), (21.8, 24.4)):
    _arrow(ax, (start, 22.3), (end, 22.3))
  note = "each step: batch [B] → loss [B]\n→ gradient → client rule (optax)"
  ax.text(17, 18, note, fontsize=8, ha="center", va="center", zorder=5)
  _box(ax, 6, 9.2, 24, 3.6, "mean of messages (weights)", _SERVER, 8)
  _box(ax, 6, 3.4, 24, 3.6, "server rule (optax)", _SERVER, 8)
  for start, end in ((31.6, 29.3), (15.5, 12.8), (9.2, 7)):
    _arrow(ax, (18, start), (18, end))
  text = "→ state of the next round"
  ax.text(18, 2, text, fontsize=8, ha="center", va="center", zorder=5)
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
  narrow_file = FILE.with_stem("round_phone")
  draw_for_phones().savefig(narrow_file, metadata={"Date": None})
