"""Small AG News and DBpedia, in the files that they come in."""

import csv

CLASSES = {"ag_news": 4, "dbpedia": 14}
TITLES = ("the team wins", "the bank", "market rises.", "the game")


def rows(name: str, split: str) -> list[tuple[int, str, str]]:
  """Class from 1, title, and description or content."""
  size = {"train": 56, "test": 28}[split]
  title = lambda i: TITLES[i % len(TITLES)]
  return [
    (i % CLASSES[name] + 1, title(i), f' the {title(i // 4)}, "game" {i}')
    for i in range(size)
  ]


def write_csv(folder, name: str) -> None:
  """train.csv and test.csv, as Zhang et al. distribute them."""
  folder.mkdir(parents=True)
  for split in ("train", "test"):
    with open(folder / f"{split}.csv", "w", newline="") as file:
      csv.writer(file, quoting=csv.QUOTE_NONNUMERIC).writerows(
        rows(name, split)
      )


def prepare_ag_news(tmp_path, monkeypatch):
  """A folder to load from; TFDS is handed small files for its download."""
  import requests
  import tensorflow_datasets

  write_csv(tmp_path / "source" / "ag_news_csv", "ag_news")
  manager = tensorflow_datasets.download.DownloadManager
  monkeypatch.setattr(
    manager,
    "download_and_extract",
    lambda *_: {"ag_news_csv": str(tmp_path / "source")},
  )
  monkeypatch.setattr(requests, "head", lambda *_, **__: None)
  folder = tmp_path / "tfds"
  folder.mkdir()
  return folder
