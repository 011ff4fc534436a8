"""Installs fedjax_opt; see README.md for the two commands."""

import setuptools

# The runner: pictures, the progress bar and the embedded digits.
run = ["matplotlib>=3.8", "tqdm>=4.60", "scikit-learn>=1.3"]
# TFDS' own data sets, read without TensorFlow.
tfds = [
  "tensorflow-datasets>=4.9.7",
  "array-record>=0.5",
  "pillow>=9",
  "importlib_resources>=5",
]
tensorboard = ["tensorboardX>=2.6"]
# Haxby's data of the composite optimization paper.
fmri = ["nilearn>=0.11.1"]
test = ["pytest>=8", "pytest-xdist>=3", "hypothesis>=6.100", "ruff>=0.9"]
# The site: the theme and the reader of notebooks that optax's has.
docs = ["sphinx>=8.1", "sphinx-book-theme>=1.1.4", "myst-nb>=1.2"]

setuptools.setup(
  name="fedjax_opt",
  version="0.1.0",
  description="Federated optimization in JAX, clients and grids vectorized",
  # The folders of the papers have no `__init__.py`.
  packages=setuptools.find_namespace_packages(
    include=["fedjax_opt", "fedjax_opt.*", "experiments", "experiments.*"]
  ),
  package_data={"fedjax_opt": ["py.typed"], "": ["*.flags"]},
  entry_points={"console_scripts": ["fedjax-opt = experiments.cli:script"]},
  python_requires=">=3.11",
  install_requires=[
    "jax>=0.7",
    "flax>=0.11",
    "optax>=0.2.6",
    "numpy>=1.26",
    "chex>=0.1.90",
    "dm-pix>=0.4.3",
    "orbax-checkpoint>=0.11",
    "safetensors>=0.4.3",
    "absl-py>=2.0",
  ],
  extras_require={
    "run": run,
    "tfds": tfds,
    "tensorboard": tensorboard,
    "test": test + run + tfds + tensorboard,
    "fmri": fmri,
    "docs": docs + run,
    "all": run + tfds + tensorboard + fmri,
  },
)
