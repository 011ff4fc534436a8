"""Partition schemes for labels, each with its parameters for a small pool."""

# Schemes that promise to use every example exactly once.
COMPLETE = {
  "iid": {},
  "dirichlet_disjoint": {"alpha": 0.1},
  "similarity": {"similarity": 0.3},
  "shards": {"shards_per_client": 2},
  "size_skew": {"size_sigma": 2.0},
}
LABELLED = {
  **COMPLETE,
  "dirichlet": {"alpha": 0.1, "examples_per_client": (5, 9), "tail_cut": 0.1},
  "class_q": {"class_fraction": 0.5},
}
