"""Small AG News and DBpedia, in the files that they come in."""

import csv

from tests.helpers import prepared_data

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


def prepare_ag_news(root) -> None:
  """AG News as TFDS prepares it."""
  records = {
    split: [
      {"title": title, "description": description, "label": number - 1}
      for number, title, description in rows("ag_news", split)
    ]
    for split in ("train", "test")
  }
  prepared_data.write(root, "ag_news_subset", "1.0.0", records)
