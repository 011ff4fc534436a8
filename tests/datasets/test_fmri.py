"""fMRI: a small data set in nilearn's layout goes through masks and labels."""

import shutil
import sys

import numpy as np
import pytest

from fedjax_opt.datasets import fmri
from tests.helpers.refusals import refusal

# What is seen in one session, scan by scan; the first is rest, as in the data.
SEEN = ["rest", "face", "face", "cat", "horse", "rest", "horse"]
SESSIONS = 12
UNLABELLED = (5, 8)  # A subject and its session.


@pytest.fixture(scope="module")
def written(tmp_path_factory):
  """A folder in the layout of the data, its mask, and its scans by subject."""
  nibabel = pytest.importorskip("nibabel")
  pytest.importorskip("nilearn")
  root = tmp_path_factory.mktemp("root")
  rng = np.random.default_rng(0)
  mask, scans = rng.random((4, 3, 3)) < 0.5, {}

  def save(array, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    affine = np.diag([-3.5, 3.75, 3.75, 1])
    nibabel.save(nibabel.Nifti1Image(array, affine), path)

  save(mask.astype(np.uint8), root / "haxby2001" / "mask.nii.gz")
  for subject in range(1, 7):
    shape = (*mask.shape, SESSIONS * len(SEEN))
    scans[subject] = bold = rng.integers(500, 900, size=shape)
    bold[tuple(np.argwhere(mask)[0])] = 7
    folder = root / "haxby2001" / f"subj{subject}"
    save(bold.astype(np.int16), folder / "bold.nii.gz")
    lines = ["labels chunks"]
    for session in range(SESSIONS):
      has_labels = (subject, session) != UNLABELLED
      lines += [f"{name if has_labels else 'rest'} {session}" for name in SEEN]
    (folder / "labels.txt").write_text("\n".join(lines) + "\n")
  return root, mask, scans


@pytest.fixture
def copied(written, tmp_path):
  """A copy that a test may damage."""
  shutil.copytree(written[0], tmp_path / "root")
  return tmp_path / "root"


def expected(mask, bold, session):
  series = bold[mask].T[session * len(SEEN) :][: len(SEEN)]
  deviation = series.std(axis=0, ddof=1)
  deviation[deviation == 0] = 1  # A voxel that never changes becomes 0.
  standardized = (series - series.mean(axis=0)) / deviation
  return standardized[[i for i, s in enumerate(SEEN) if s in fmri._CLASSES]]


def test_load(written):
  root, mask, scans = written
  all_owners = [(m, i) for m in range(1, 7) for i in range(SESSIONS)]
  owners = [owner for owner in all_owners if owner != UNLABELLED]
  parts = owners[:59], owners[59:]
  for data, of_part in zip(fmri.load(root), parts, strict=True):
    x, y = data.examples["x"], data.examples["y"]
    assert data.num_clients == len(of_part)
    assert (x.dtype, x.shape) == (np.float32, (len(of_part) * 4, mask.sum()))
    assert y.dtype == np.int32
    assert y.tolist() == [1, 1, 0, 0] * len(of_part)
    for client, (subject, session) in enumerate(of_part):
      own_scans = expected(mask, scans[subject], session)
      np.testing.assert_allclose(x[data.indices[client]], own_scans, atol=1e-4)


def test_default_folder(written, monkeypatch):
  monkeypatch.setenv("NILEARN_DATA", str(written[0]))
  assert fmri.load()[1].num_clients == 12


@pytest.fixture
def download(written, monkeypatch):
  """Gives what nilearn's download does at its end."""
  import requests
  from nilearn import datasets

  def ends_with(end):
    def fetch(data_dir, subjects, verbose):
      assert (subjects, verbose) == ([1, 2, 3, 4, 5, 6], 0)
      shutil.copytree(written[0] / "haxby2001", data_dir / "haxby2001")
      end()

    monkeypatch.setattr(requests, "head", lambda *_, **__: None)
    monkeypatch.setattr(datasets, "fetch_haxby", fetch)

  return ends_with


def test_download(download, tmp_path):
  download(lambda: None)
  assert fmri.load(tmp_path)[1].num_clients == 12


def test_no_network(copied, monkeypatch):
  import requests

  def unreachable(*_, **__):
    raise requests.ConnectionError("no network")

  monkeypatch.setattr(requests, "head", unreachable)
  (copied / "haxby2001" / "subj3" / "labels.txt").unlink()
  message = refusal(fmri.load, copied)
  assert "does not hold haxby2001/subj3/labels.txt and its" in message
  assert "failed (no network): try again, or put mask.nii.gz and" in message


def test_a_download_that_fails_at_its_end(download, tmp_path):
  """All files are there by then."""

  def end():
    raise OSError("disk full")

  download(end)
  message = refusal(fmri.load, tmp_path)
  assert "does not hold haxby2001/mask.nii.gz and its download" in message
  assert "failed (disk full): try again" in message


def test_bad_files(copied):
  folder = copied / "haxby2001" / "subj2"
  labels, bold = folder / "labels.txt", folder / "bold.nii.gz"
  text = labels.read_text()
  header = "labels.txt must have the header 'labels chunks'"
  for content, message in (
    ("", header),
    (text.replace("labels chunks", "word run"), header),
    (text.replace("face 3", "face"), header),
    (text.replace("face 3", "face three"), header),
    (text + "rest 12\n", "bold.nii.gz has 84 scans, but"),
    (
      text.replace("face", "cat").replace("horse", "cat"),
      "must label a scan horse or face",
    ),
  ):
    labels.write_text(content)
    assert message in refusal(fmri.load, copied)
  labels.write_text(text)
  for path in (bold, copied / "haxby2001" / "mask.nii.gz"):
    path.write_bytes(b"damaged")
    assert f"{path.name} cannot be read (" in refusal(fmri.load, copied)
  message = refusal(fmri.load, copied / "absent")
  assert "absent': must be an existing folder" in message


def test_missing_package(tmp_path, monkeypatch):
  monkeypatch.setitem(sys.modules, "nilearn", None)
  message = refusal(fmri.load, tmp_path)
  assert "pip install 'fedjax_opt[fmri]'" in message
