"""What arguments of data may be; how others are refused is tested elsewhere.

That is in checks/test_fields.py, for every public function.
"""

import pytest

from fedjax_opt import ClientData, partition, synthetic
from fedjax_opt.data import hold_out
from fedjax_opt.datasets import femnist, shakespeare, texts, tokenization

FUNCTIONS = [entry.factory for entry in partition.SCHEMES.values()]
FUNCTIONS += [synthetic.lasso, synthetic.low_rank, synthetic.heterogeneous]
FUNCTIONS += [hold_out, ClientData.split, ClientData.split_clients]
FUNCTIONS += [femnist.load, shakespeare.load, texts.load_tokens]
FUNCTIONS += [tokenization.encode]
SIZES = (
  *("dim", "num_clients", "examples_per_client", "validation_per_client"),
  *("shards_per_client", "length", "min_sequences"),
)
STRENGTHS = (
  "seed",
  "pad_id",
  "size_sigma",
  "num_nonzero",
  "rank",
  "zeta",
  "noise",
)
STRENGTHS += ("gradient_spread", "curvature_noise")
WANTED = {
  **dict.fromkeys((*SIZES, "condition"), "[1, inf)"),
  **dict.fromkeys(STRENGTHS, "[0, inf)"),
  **dict.fromkeys(("tail_cut", "test_fraction"), "[0, 1)"),
  "alpha": "(0, inf)",
  "class_fraction": "(0, 1]",
  "fraction": "(0, 1)",
  "max_length": "[3, inf)",
  "similarity": "[0, 1]",
}
OTHERS = {
  (femnist.load, "fraction"): "(0, 1]",
  (hold_out, "seed"): "[0, 4294967295]",
  (synthetic.heterogeneous, "num_clients"): "[2, inf)",
}


@pytest.mark.parametrize("function", FUNCTIONS)
def test_what_arguments_may_be(function):
  for name, field in function.checked_fields.items():
    wanted = OTHERS.get((function, name), WANTED.get(name, "(-inf, inf)"))
    assert field.interval == wanted, name


def test_all_are_there():
  assert set(WANTED) <= {n for f in FUNCTIONS for n in f.checked_fields}
