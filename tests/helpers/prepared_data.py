"""Small data sets in the files that TFDS prepares, without TensorFlow."""

import contextlib
import io
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest


def write(
  root: pathlib.Path,
  name: str,
  version: str,
  splits: Mapping[str, Sequence[dict[str, Any]]],
) -> None:
  """Writes root/NAME/VERSION, {split: records} in array_record format."""
  tfds = pytest.importorskip("tensorflow_datasets")
  pytest.importorskip("array_record")
  features = {
    "mnist": {
      "image": tfds.features.Image(shape=(28, 28, 1)),
      "label": tfds.features.ClassLabel(num_classes=10),
    },
    "ag_news_subset": {
      "title": tfds.features.Text(),
      "description": tfds.features.Text(),
      "label": tfds.features.ClassLabel(num_classes=4),
    },
    "tiny_shakespeare": {"text": tfds.features.Text()},
  }[name]

  with tfds.core.registered.skip_registration():

    class Small(tfds.core.GeneratorBasedBuilder):
      VERSION = tfds.core.Version(version)

      def _info(self):
        # TFDS shuffles with the help of TensorFlow.
        return tfds.core.DatasetInfo(
          builder=self,
          features=tfds.features.FeaturesDict(features),
          disable_shuffling=True,
        )

      def _split_generators(self, manager):
        return {split: enumerate(records) for split, records in splits.items()}

      def _generate_examples(self):
        """What `_split_generators` gives is enough."""

  Small.name = name
  with contextlib.redirect_stdout(io.StringIO()):
    Small(data_dir=root).download_and_prepare(file_format="array_record")


def mnist(root: pathlib.Path) -> dict[str, dict[str, np.ndarray]]:
  """Writes 30 and 10 random images; returns them, {split: {'x', 'y'}}."""
  image = pytest.importorskip("PIL.Image")
  rng, data = np.random.default_rng(0), {}
  for split, size in (("train", 30), ("test", 10)):
    x = rng.integers(256, size=(size, 28, 28, 1), dtype=np.uint8)
    data[split] = {"x": x, "y": rng.integers(10, size=size, dtype=np.int32)}
  records = {
    split: [
      {"image": image.fromarray(x[..., 0]), "label": int(y)}
      for x, y in zip(examples["x"], examples["y"], strict=True)
    ]
    for split, examples in data.items()
  }
  write(root, "mnist", "3.0.1", records)
  return data
