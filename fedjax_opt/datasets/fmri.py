"""Haxby's fMRI data: brain scans of people who look at a horse or a face."""

import itertools
import os
import pathlib
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from fedjax_opt.checks import errors
from fedjax_opt.checks.fields import checked
from fedjax_opt.data.clients import ClientData, joined
from fedjax_opt.datasets import files

__all__ = ["Session", "load"]

URL = "http://data.pymvpa.org/datasets/haxby2001/"

_TRAIN_SUBJECTS = (1, 2, 3, 4, 5)
_TEST_SUBJECT = 6
_CLASSES = ("horse", "face")
_EXTRA = "fedjax_opt[fmri]"
_AGAIN = "delete it to download it again"


class Session(NamedTuple):
  """The scans of one session in which the subject looked at horse or face.

  Attributes:
    x: [n, voxels] float32, standardized.
    y: [n] int32, 0 for horse and 1 for face.
  """

  x: np.ndarray
  y: np.ndarray


@checked()
def load(
  data_dir: str | os.PathLike | None = None,
) -> tuple[ClientData, ClientData]:
  """Loads the Haxby data; a client is one session of one subject.

  In the published files, subjects 1 to 5 have 59 sessions with labels, which
  are the clients to train on (one session of subject 5 has no labels). Subject
  6 has 12, to test on. A client has 9 scans of each class.

  The voxels are those of the whole-brain mask that comes with the data. Each
  voxel is standardized to mean 0 and variance 1 over all scans of a session,
  including those of rest and of other pictures. So a client needs no data of
  another one. Yuan et al. (2021) say only that nilearn normalizes the scans,
  and nilearn's examples standardize by session or by subject.

  Loading is slow and takes much memory, because all scans of a subject are
  masked at once. `ClientData.to_npz` saves the result.

  Args:
    data_dir: folder that holds haxby2001/ as `nilearn.datasets.fetch_haxby`
      writes it. Missing files are downloaded to it. Default: as in nilearn,
      `$NILEARN_DATA` or `~/nilearn_data`.

  Returns:
    (train, test), each with x [N, voxels] float32 and y [N] int32, 0 for horse
    and 1 for face.

  Raises:
    ValueError: if nilearn is not installed, the folder does not exist, the data
      is not there and cannot be downloaded, or a file cannot be read.

  Source: Haxby et al., "Distributed and Overlapping Representations of Faces
  and Objects in Ventral Temporal Cortex", Science 293, 2001; as a federated
  task, Yuan, Zaheer and Reddi, "Federated Composite Optimization", ICML 2021,
  appendix A.4.
  """
  for module in ("datasets", "maskers", "signal"):
    errors.imported(f"nilearn.{module}", "reading fMRI data", _EXTRA)
  import nilearn

  folder = _folder(data_dir, nilearn)
  if missing := _missing(folder):
    _download(folder, missing[0], nilearn)
  mask = folder / "mask.nii.gz"
  # Damaged files fail in many ways.
  with errors.while_reading(mask, _AGAIN, Exception):
    masker = nilearn.maskers.NiftiMasker(
      mask_img=str(mask), standardize=None, dtype="float32"
    ).fit()
  *train, test = (
    _sessions(folder / f"subj{subject}", masker, nilearn)
    for subject in (*_TRAIN_SUBJECTS, _TEST_SUBJECT)
  )
  return _clients(itertools.chain(*train)), _clients(test)


def _folder(data_dir: str | os.PathLike | None, nilearn: Any) -> pathlib.Path:
  if data_dir is not None:
    return files.existing_folder(data_dir) / "haxby2001"
  folders = [
    pathlib.Path(root) / "haxby2001"
    for root in nilearn.datasets.get_data_dirs()
  ]
  return next(filter(pathlib.Path.is_dir, folders), folders[0])


def _missing(folder: pathlib.Path) -> list[str]:
  names = ["mask.nii.gz"]
  for subject in (*_TRAIN_SUBJECTS, _TEST_SUBJECT):
    names += [f"subj{subject}/{name}" for name in ("bold.nii.gz", "labels.txt")]
  return [name for name in names if not (folder / name).is_file()]


def _download(folder: pathlib.Path, missing: str, nilearn: Any) -> None:
  import requests  # Comes with nilearn.

  try:
    # Fails within seconds, where nilearn tries again many times.
    requests.head(URL, timeout=10)
    nilearn.datasets.fetch_haxby(
      data_dir=folder.parent,
      subjects=[*_TRAIN_SUBJECTS, _TEST_SUBJECT],
      verbose=0,
    )
  except Exception as error:  # A download fails in many ways.
    raise ValueError(
      f"data_dir={str(folder.parent)!r}: does not hold haxby2001/{missing} and "
      f"its download from {URL} failed ({errors.first_line(error)}): try "
      "again, or put mask.nii.gz and, for N = 1 to 6, subjN/bold.nii.gz and "
      f"subjN/labels.txt in {folder}"
    ) from error


def _sessions(
  subject: pathlib.Path, masker: Any, nilearn: Any
) -> list[Session]:
  """A subject's sessions that have a scan of either class."""
  labels, sessions = _read_labels(subject / "labels.txt")
  bold = subject / "bold.nii.gz"
  with errors.while_reading(bold, _AGAIN, Exception):
    scans = masker.transform(str(bold))  # [scans, voxels]
  if len(scans) != len(labels):
    raise ValueError(
      f"{bold} has {len(scans)} scans, but {subject / 'labels.txt'} has "
      f"{len(labels)} lines of labels"
    )
  is_wanted = np.isin(labels, _CLASSES)
  result = []
  for session in np.unique(sessions[is_wanted]):
    in_session = sessions == session
    standardized = nilearn.signal.clean(
      scans[in_session], detrend=False, standardize="zscore_sample"
    )
    x = standardized[is_wanted[in_session]].astype(np.float32)
    y = labels[in_session & is_wanted] == _CLASSES[1]
    result.append(Session(x, y.astype(np.int32)))
  if not result:
    raise ValueError(
      f"{subject / 'labels.txt'} must label a scan {' or '.join(_CLASSES)}"
    )
  return result


def _read_labels(path: pathlib.Path) -> tuple[np.ndarray, np.ndarray]:
  """The label of each scan, and its session."""
  with errors.while_reading(path, _AGAIN, UnicodeError):
    text = path.read_text()
  try:
    header, *lines = text.splitlines()
    labels, chunks = zip(*(line.split() for line in lines), strict=True)
    if header.split() != ["labels", "chunks"]:
      raise ValueError
    return np.array(labels), np.array(chunks).astype(int)
  except ValueError:
    raise ValueError(
      f"{path} must have the header 'labels chunks', then a word and a whole "
      "number per scan"
    ) from None


def _clients(sessions: Iterable[Session]) -> ClientData:
  return joined([session._asdict() for session in sessions], num_classes=2)
