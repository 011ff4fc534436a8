"""What arguments of data may be; how others are refused is tested elsewhere.

That is in checks/test_fields.py, for every public function.
"""

import pytest

from fedjax_opt import ClientData, partition, synthetic
from fedjax_opt.data import hold_out
from fedjax_opt.datasets import femnist, shakespeare, texts, tokenization

POSITIVE, NATURAL = "[1, inf)", "[0, inf)"
SCHEME = {"num_clients": POSITIVE, "seed": NATURAL, "labels": "(-inf, inf)"}
DIVISION = {"fraction": "(0, 1)", "seed": NATURAL}
SIZES = ("dim", "num_clients", "examples_per_client", "validation_per_client")
REGRESSION = {
  **dict.fromkeys(SIZES, POSITIVE),
  "seed": NATURAL,
  "variant": "(-inf, inf)",
}
INTERVALS = [
  (partition.iid, SCHEME),
  (
    partition.dirichlet,
    SCHEME
    | {"alpha": "(0, inf)", "examples_per_client": POSITIVE}
    | {"tail_cut": "[0, 1)"},
  ),
  (partition.dirichlet_disjoint, SCHEME | {"alpha": "(0, inf)"}),
  (partition.similarity, SCHEME | {"similarity": "[0, 1]"}),
  (partition.class_q, SCHEME | {"class_fraction": "(0, 1]"}),
  (partition.shards, SCHEME | {"shards_per_client": POSITIVE}),
  (partition.size_skew, SCHEME | {"size_sigma": NATURAL}),
  (synthetic.lasso, REGRESSION | {"num_nonzero": NATURAL}),
  (synthetic.low_rank, REGRESSION | {"rank": NATURAL}),
  (
    synthetic.heterogeneous,
    {
      **dict.fromkeys(("zeta", "gradient_spread", "noise"), NATURAL),
      **dict.fromkeys(("curvature_noise", "seed"), NATURAL),
      **dict.fromkeys(("dim", "examples_per_client", "condition"), POSITIVE),
      "num_clients": "[2, inf)",
    },
  ),
  (hold_out, DIVISION),
  (ClientData.split, DIVISION),
  (ClientData.split_clients, DIVISION),
  (femnist.load, {"fraction": "(0, 1]"}),
  (
    shakespeare.load,
    {"length": POSITIVE, "min_sequences": POSITIVE, "test_fraction": "[0, 1)"},
  ),
  (texts.load_tokens, {"max_length": "[3, inf)"}),
  (tokenization.encode, {"max_length": "[3, inf)"}),
]


@pytest.mark.parametrize(("function", "wanted"), INTERVALS)
def test_what_arguments_may_be(function, wanted):
  found = {name: field.interval for name, field in function.fields.items()}
  assert found.items() >= wanted.items()
