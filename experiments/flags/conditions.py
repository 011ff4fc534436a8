"""The flags of which a study takes several values: each is a condition."""

CONDITIONS = (
  "task", "variant", "zeta", "l2", "augmentation", "pixels", "norm",
  "partition", "num_clients", "alpha", "examples_per_client", "tail_cut",
  "similarity", "class_fraction", "shards_per_client", "size_sigma",
  "cohort_size", "sampler", "batch_size", "local_epochs", "local_steps",
  "sampling", "weighting", "client_dropout", "precision",
)  # fmt: skip
