"""Runs that are stopped and go on, and what is then compared."""

from tests.helpers.commands import SMALL, config_of, summary_of

SHARED = (
  *SMALL,
  "--rounds=20",
  "--eval_every=7",
  "--checkpoint_every=5",
  "--noprogress",
)
ARGUMENTS = (*SHARED, "--client=sgd", "--client_lr=0.1,1")


def rounds_saved(folder):
  return max((int(path.stem) for path in folder.glob("*.npz")), default=0)


def assert_same(folder, whole, *own):
  """Two runs with the same bits, whose flags differ in their own ones."""
  for name in ("metrics.csv", "params.safetensors", "flags.txt"):
    assert (folder / name).read_bytes() == (whole / name).read_bytes()
  one, other = summary_of(folder), summary_of(whole)
  names = ("points", "selected", "cost", "padding_waste", "rounds_done")
  for name in (*names, "stopped_by"):
    assert one[name] == other[name]
  checkpoints = [f / "checkpoints" for f in (folder, whole)]
  done = [rounds_saved(f) for f in checkpoints]
  assert done == [one["rounds_done"]] * 2
  configs = config_of(folder), config_of(whole)
  for config in configs:
    for name in ("resume", "output_dir", *own):
      del config[name]
  assert configs[0] == configs[1]
