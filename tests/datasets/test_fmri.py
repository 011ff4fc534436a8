"""fMRI: a small data set in nilearn's layout goes through masks and labels.

Set FEDJAX_OPT_HAXBY to a folder that holds haxby2001/ to try the real data as
well.
"""

import os
import shutil
import sys

import numpy as np
import pytest

from fedjax_opt.datasets import fmri
from tests.refusals import refusal

# What is seen in one session, scan by scan; the first is rest, as in the data.
SEEN = ["rest", "face", "face", "cat", "horse", "rest", "horse"]
SESSIONS = 12


@pytest.fixture(scope="module")
def written(tmp_path_factory):
  """A folder in the layout of the data, its mask, and its scans by subject."""
  nibabel = pytest.importorskip("nibabel")
  pytest.importorskip("nilearn")
  root = tmp_path_factory.mktemp("root")
  folder = root / "haxby2001"
  rng = np.random.default_rng(0)
  affine = np.diag([-3.5, 3.75, 3.75, 1])
  save = lambda array, path: nibabel.save(
    nibabel.Nifti1Image(array, affine), path
  )

  mask = rng.random((4, 3, 3)) < 0.5
  folder.mkdir()
  save(mask.astype(np.uint8), folder / "mask.nii.gz")
  num_scans = SESSIONS * len(SEEN)
  scans = {}
  for subject in range(1, 7):
    bold = rng.integers(500, 900, size=(*mask.shape, num_scans))
    bold[mask.nonzero()[0][0], mask.nonzero()[1][0], mask.nonzero()[2][0]] = 7
    scans[subject] = bold
    lines = ["labels chunks"]
    for session in range(SESSIONS):
      unlabelled = (subject, session) == (5, 8)
      for seen in SEEN:
        lines.append(f"{'rest' if unlabelled else seen} {session}")
    subfolder = folder / f"subj{subject}"
    subfolder.mkdir()
    save(bold.astype(np.int16), subfolder / "bold.nii.gz")
    (subfolder / "labels.txt").write_text("\n".join(lines) + "\n")
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
  train, test = fmri.load(root)
  assert train.num_clients == 59
  assert test.num_clients == 12
  for data in (train, test):
    assert data.examples["x"].dtype == np.float32
    assert data.examples["x"].shape == (data.num_clients * 4, mask.sum())
    assert data.examples["y"].dtype == np.int32
    assert data.examples["y"].tolist() == [1, 1, 0, 0] * data.num_clients

  sessions = [
    (subject, session)
    for subject in range(1, 6)
    for session in range(SESSIONS)
    if (subject, session) != (5, 8)
  ]
  for data, owners in (
    (train, sessions),
    (test, [(6, session) for session in range(SESSIONS)]),
  ):
    for client, (subject, session) in enumerate(owners):
      x = data.examples["x"][data.indices[client]]
      np.testing.assert_allclose(
        x, expected(mask, scans[subject], session), atol=1e-4
      )


def test_default_folder(written, monkeypatch):
  monkeypatch.setenv("NILEARN_DATA", str(written[0]))
  _, test = fmri.load()
  assert test.num_clients == 12


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
  _, test = fmri.load(tmp_path)
  assert test.num_clients == 12


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
  labels = folder / "labels.txt"
  text = labels.read_text()
  for damaged in (
    "",
    text.replace("labels chunks", "word run"),
    text.replace("face 3", "face"),
    text.replace("face 3", "face three"),
  ):
    labels.write_text(damaged)
    assert "labels.txt must have the header 'labels chunks'" in refusal(
      fmri.load, copied
    )
  labels.write_text(text + "rest 12\n")
  assert "bold.nii.gz has 84 scans, but" in refusal(fmri.load, copied)
  labels.write_text(text.replace("face", "cat").replace("horse", "cat"))
  assert "must label a scan horse or face" in refusal(fmri.load, copied)
  labels.write_text(text)

  (folder / "bold.nii.gz").write_bytes(b"damaged")
  assert "subj2/bold.nii.gz cannot be read (" in refusal(fmri.load, copied)
  (copied / "haxby2001" / "mask.nii.gz").write_bytes(b"damaged")
  assert "mask.nii.gz cannot be read (" in refusal(fmri.load, copied)
  message = refusal(fmri.load, copied / "absent")
  assert "absent': must be an existing folder" in message


def test_missing_package(tmp_path, monkeypatch):
  monkeypatch.setitem(sys.modules, "nilearn", None)
  message = refusal(fmri.load, tmp_path)
  assert "pip install 'fedjax_opt[fmri]'" in message


@pytest.mark.skipif(
  "FEDJAX_OPT_HAXBY" not in os.environ,
  reason="set FEDJAX_OPT_HAXBY to a folder that holds haxby2001/",
)
def test_real_data():
  train, test = fmri.load(os.environ["FEDJAX_OPT_HAXBY"])
  assert (train.num_clients, test.num_clients) == (59, 12)
  assert train.examples["x"].shape == (59 * 18, 39912)
  assert test.examples["x"].shape == (12 * 18, 39912)
