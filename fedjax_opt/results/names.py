"""Names for people: of choices, hyperparameters and metrics.

Files and flags have identifiers, such as `fed_avg`, `client_lr` and
`test_accuracy`. Pictures, tables and reports say 'FedAvg', 'client learning
rate' and 'Test accuracy (%)'. An identifier that is in no table becomes plain
words.
"""

from typing import Any

import numpy as np

from fedjax_opt.results.history import is_fraction

_ALGORITHMS = {
  "fed_avg": "FedAvg",
  "fed_prox": "FedProx",
  "moon": "MOON",
  "fed_avg_m": "FedAvgM",
  "fed_adam": "FedAdam",
  "fed_yogi": "FedYogi",
  "fed_adagrad": "FedAdagrad",
  "fed_mid": "FedMiD",
  "fed_mid_osp": "FedMiD-OSP",
  "fed_dual_avg": "FedDualAvg",
  "fed_dual_avg_osp": "FedDualAvg-OSP",
  "fed_avg_subgradient": "FedAvg (subgradient)",
  "centralized": "Centralized",
  "local": "Local",
  "scaffold": "SCAFFOLD",
  "local_sgd": "Local SGD",
  "minibatch_sgd": "Minibatch SGD",
  "minibatch_sarah": "Minibatch SARAH",
  "bvr_l_sgd": "BVR-L-SGD",
  "fed_avg_sm": "FedAvgSM",
  "fed_avg_lm": "FedAvgLM",
  "fed_avg_lm_z": "FedAvgLM-Z",
  "fed_avg_slm": "FedAvgSLM",
  "fed_avg_slm_z": "FedAvgSLM-Z",
  "domo": "DOMO",
  "domo_s": "DOMO-S",
  "fed_dyn": "FedDyn",
  "fed_nova": "FedNova",
  "fed_cm": "FedCM",
  "fed_exp": "FedExP",
  "mime_lite": "MimeLite",
  "prox_skip": "ProxSkip",
  "fed_sam": "FedSAM",
  "mo_fed_sam": "MoFedSAM",
  "fed_speed": "FedSpeed",
  "diloco": "DiLoCo",
  "ditto": "Ditto",
  "fed_per": "FedPer",
  "fed_rep": "FedRep",
  "fed_bn": "FedBN",
}
_RULES = {
  "sgd": "SGD",
  "sgdm": "SGDM",
  "nesterov": "Nesterov",
  "adam": "Adam",
  "adamw": "AdamW",
  "adagrad": "Adagrad",
  "yogi": "Yogi",
  "sps": "SPS",
  "delta_sgd": "Δ-SGD",
  "fedopt_adam": "Adam (FedOpt)",
  "fedopt_yogi": "Yogi (FedOpt)",
  "fedopt_adagrad": "Adagrad (FedOpt)",
}
_PARTITIONS = {
  "iid": "IID",
  "dirichlet": "Dirichlet",
  "dirichlet_disjoint": "disjoint Dirichlet",
  "similarity": "similarity",
  "class_q": "class fractions",
  "shards": "shards",
  "size_skew": "size skew",
  "natural": "natural clients",
}
_REGULARIZERS = {
  "l1": "L1 norm",
  "squared_l2": "squared L2 norm",
  "nuclear": "nuclear norm",
  "group_lasso": "group lasso",
  "l1_ball": "L1 ball",
  "l2_ball": "L2 ball",
  "non_negative": "non-negative",
}
_HYPERPARAMETERS = {
  "all_duals": "all duals",
  "alpha": "α",
  "b1": "β₁",
  "b2": "β₂",
  "beta": "β",
  "c": "c",
  "class_fraction": "class fraction",
  "client_decay": "decay of the clients' rate",
  "client_dropout": "client dropout",
  "max_update_norm": "largest update",
  "client_milestones": "client milestones",
  "cohort_size": "clients per round",
  "delta": "δ",
  "dp_max_norm": "clipping norm",
  "dp_noise_multiplier": "noise multiplier",
  "eps": "ε",
  "eta_0": "η₀",
  "exact_control": "exact control variates",
  "examples_per_client": "examples per client",
  "f_min": "lower bound of the loss",
  "gamma": "γ",
  "initial_accumulator": "initial accumulator",
  "l2": "L2 strength",
  "lam": "λ",
  "large_batch": "large batch",
  "learning_rate": "learning rate",
  "lr": "learning rate",
  "max_step": "largest step size",
  "momentum": "momentum",
  "mu": "μ",
  "mu_l": "μₗ",
  "mu_s": "μₛ",
  "normalized": "normalized ascent",
  "num_clients": "number of clients",
  "p": "p",
  "personal": "personal leaves",
  "practical": "practical form",
  "radius": "radius",
  "reuse_gradients": "reused gradients",
  "independent_dropout": "independent dropout",
  "rho": "ρ",
  "shards_per_client": "shards per client",
  "shared_steps": "share of steps of shared leaves",
  "size_sigma": "σ of log sizes",
  "strength": "regularization strength",
  "tail_cut": "tail cut",
  "temperature": "temperature",
  "theta_0": "θ₀",
  "weight_decay": "weight decay",
  "zeta": "ζ",
}
# Parts of tasks' names, beside the words of the tables above.
_WORDS = {
  "agnews": "AG News",
  "cifar10": "CIFAR-10",
  "cifar100": "CIFAR-100",
  "cnn": "CNN",
  "dbpedia": "DBpedia",
  "distilbert": "DistilBERT",
  "femnist10": "FEMNIST (10 classes)",
  "femnist62": "FEMNIST (62 classes)",
  "fmnist": "Fashion-MNIST",
  "fmri": "fMRI",
  "lasso": "LASSO",
  "lstm": "LSTM",
  "mlp": "MLP",
  "mnist": "MNIST",
  "nonconvex": "non-convex",
  "npz": "NPZ",
  "relu": "ReLU",
  "resnet18": "ResNet-18",
  "resnet20": "ResNet-20",
  "resnet50": "ResNet-50",
  "resnet56": "ResNet-56",
  "shakespeare": "Shakespeare",
  "svhn": "SVHN",
  "vgg16": "VGG-16",
}
_NAMES = (
  _WORDS | _HYPERPARAMETERS | _PARTITIONS | _REGULARIZERS | _RULES | _ALGORITHMS
)
# Metrics with the unit, where it is another than their own name suggests.
_METRICS = {
  "train_loss": "Training loss",
  "train_accuracy": "Training accuracy (%)",
  "regularized_train_loss": "Regularized training loss",
  "regularized_test_loss": "Regularized test loss",
  "regularized_validation_loss": "Regularized validation loss",
  "optimality_gap": "Gap to the optimum",
  "f1": "F1",
  "grad_norm_sq": "Squared gradient norm",
  "gradient_evaluations": "Gradient evaluations of a client",
}
# Beginnings of names -> whose examples a metric over clients was measured on.
_OVER_CLIENTS = {
  "train_": "Training {metric}",
  "client_test_": "Client test {metric}",
  "": "{metric}",
}


def name_of(identifier: str) -> str:
  """The name of a choice or a hyperparameter, for people.

  Args:
    identifier: such as 'fed_avg', 'delta_sgd', 'dirichlet', 'client_lr' or a
      task's name.

  Returns:
    'FedAvg', 'Δ-SGD', 'Dirichlet', 'client learning rate'. An identifier that
    has no entry of its own: its words, each by its own entry if it has one.
  """
  if identifier in _NAMES:
    return _NAMES[identifier]
  # Not of choices: the steps of `local_steps` are not those of 'Local'.
  words = _WORDS | _HYPERPARAMETERS
  return " ".join(words.get(word, word) for word in identifier.split("_"))


def shown_name(label: str) -> str:
  """The name of a method or condition whose label may be an identifier."""
  return name_of(label) if label.isidentifier() else label


def value_of(value: Any) -> str:
  """The value of a hyperparameter, for people: 0.1, 3e-5, ∞, Δ-SGD."""
  if value is None:
    return "–"
  if isinstance(value, bool | np.bool_):
    return "yes" if value else "no"
  if isinstance(value, float | np.floating):
    return number(float(value))
  return name_of(value) if isinstance(value, str) else str(value)


def number(value: float) -> str:
  """A short decimal number: 0.1, 0.001, 3e-5, 2e6, ∞."""
  if np.isinf(value):
    return "∞" if value > 0 else "-∞"
  size = abs(value)
  if size and (size < 1e-3 or size >= 1e6):
    mantissa, exponent = f"{value:.3e}".split("e")
    return f"{float(mantissa):g}e{int(exponent)}"
  return f"{value:.4g}" if size < 1000 else f"{value:.7g}"


def metric_name(metric: str) -> str:
  """The name of a metric with its unit, for an axis or a column."""
  if metric in _METRICS:
    return _METRICS[metric]
  unit = " (%)" if is_fraction(metric) else ""
  for kind, whom in (
    ("worst_decile_accuracy", "worst 10 % of clients"),
    ("accuracy_decile_", "decile {} of clients"),
  ):
    begin, found, rest = metric.partition(kind)
    if found and begin in _OVER_CLIENTS:
      text = _OVER_CLIENTS[begin].format(metric="accuracy")
      return f"{sentence(text)}, {whom.format(rest)}{unit}"
  return sentence(metric.replace("_", " ")) + unit


def sentence(text: str) -> str:
  """The text with a capital letter, unless it begins with a symbol."""
  is_word = text[:2].isascii() and text[:2].isalpha()
  return text[:1].upper() + text[1:] if is_word else text
