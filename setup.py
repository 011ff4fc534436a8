"""Installs fedjax_opt; see README.md for the two commands."""

import pathlib

import setuptools

URL = "https://github.com/fedjax-opt/fedjax_opt"
PAGES = "https://fedjax-opt.github.io/fedjax_opt"

# The folder `experiments` is installed inside the package, not beside it: the
# name is too common for one more package. fedjax_opt_command.py finds it.
COMMANDS = "fedjax_opt._commands.experiments"

# The runner: pictures, reports, the progress bar and the embedded digits.
run = [
  "matplotlib>=3.9",
  "pandas>=2.2.2",
  "tqdm>=4.60",
  "scikit-learn>=1.5",
]
# TFDS' own data sets, read without TensorFlow.
tfds = [
  "tensorflow-datasets>=4.9.7",
  "array-record>=0.5",
  "pillow>=9",
  "importlib_resources>=5",
]
# Tables in Parquet, and what Hugging Face's library has saved.
tables = ["pyarrow>=15", "datasets>=2.19"]
# Tasks of texts.
text = ["tokenizers>=0.20"]
tensorboard = ["tensorboardX>=2.6"]
# Haxby's data of the composite optimization paper.
fmri = ["nilearn>=0.11.1"]
# To execute the notebooks and to make them from their text.
notebooks = [
  "jupytext>=1.16",
  "nbclient>=0.10",
  "nbformat>=5.10",
  "ipykernel>=6.29",
]
# The site: the theme and the reader of notebooks that optax's has.
docs = [
  "sphinx>=8.1",
  "sphinx-book-theme>=1.1.4",
  "sphinx-copybutton>=0.5.2",
  "myst-nb>=1.2",
  "docutils>=0.22",  # Formulas as MathML.
]
# Cells of studies on other machines.
clusters = ["distributed>=2024.5", "submitit>=1.5"]
# Noise and accounting of differential privacy.
privacy = ["dp-accounting>=0.6", "jax-privacy>=2.0"]
# Compilers for accelerators that are not there, of JAX's own version.
tpu_compile = ["jax[tpu]"]
gpu_compile = ["jax[cuda12-local]"]
test = [
  "pytest>=8",
  "pytest-xdist>=3.2",
  "hypothesis>=6.100",
  "ruff>=0.9",
  "setuptools>=70.1",  # Builds the wheel without further packages.
  "chex>=0.1.90",  # The tests compare trees and count traces; no run needs it.
]


def packages() -> list[str]:
  """The packages as they are installed."""
  # The folders of the papers have no `__init__.py`.
  found = setuptools.find_namespace_packages(
    include=["fedjax_opt", "fedjax_opt.*", "experiments", "experiments.*"]
  )
  return [
    COMMANDS + name.removeprefix("experiments")
    if name.split(".")[0] == "experiments"
    else name
    for name in found
  ]


setuptools.setup(
  name="fedjax_opt",
  version="0.1.0",
  description="Federated optimization in JAX, clients and grids vectorized",
  long_description=pathlib.Path(__file__)
  .with_name("README.md")
  .read_text(encoding="utf-8"),
  long_description_content_type="text/markdown",
  author="fedjax_opt authors",
  url=URL,
  project_urls={
    "Documentation": PAGES,
    "Source": URL,
    "Issues": f"{URL}/issues",
    "Changes": f"{URL}/blob/main/CHANGELOG.md",
  },
  keywords=[
    "federated learning",
    "federated optimization",
    "distributed optimization",
    "simulation",
    "hyperparameter tuning",
    "jax",
    "flax",
    "optax",
  ],
  classifiers=[
    "Development Status :: 4 - Beta",
    "Intended Audience :: Science/Research",
    "Operating System :: OS Independent",
    "Programming Language :: Python :: 3",
    "Programming Language :: Python :: 3 :: Only",
    "Programming Language :: Python :: 3.11",
    "Programming Language :: Python :: 3.12",
    "Programming Language :: Python :: 3.13",
    "Topic :: Scientific/Engineering :: Artificial Intelligence",
    "Topic :: Scientific/Engineering :: Mathematics",
    "Typing :: Typed",
  ],
  packages=packages(),
  package_dir={COMMANDS: "experiments"},
  py_modules=["fedjax_opt_command"],
  package_data={
    "fedjax_opt": ["py.typed"],
    "fedjax_opt.study.plots": ["*.mplstyle"],
    "fedjax_opt.study.report": ["templates/*"],
    "": [
      "*.flags",
      "artefacts.toml",
      "completion.sh",
      "field.toml",
      "page.html",
    ],
  },
  entry_points={"console_scripts": ["fedjax-opt = fedjax_opt_command:script"]},
  python_requires=">=3.11",
  install_requires=[
    "jax>=0.8",
    "flax>=0.12",
    "optax>=0.2.6",
    "numpy>=2.0",
    "dm-pix>=0.4.3",
    "safetensors>=0.4.3",
    "Jinja2>=3.1",
    "absl-py>=2.0",
  ],
  extras_require={
    "run": run,
    "tfds": tfds,
    "tables": tables,
    "text": text,
    "tensorboard": tensorboard,
    "fmri": fmri,
    "privacy": privacy,
    "clusters": clusters,
    # An older pip finds an extra by its normalized name alone: no underscore.
    "tpu-compile": tpu_compile,
    "gpu-compile": gpu_compile,
    "notebooks": notebooks + run,
    "docs": docs + run,
    "test": test
    + run
    + tfds
    + text
    + tensorboard
    + privacy
    + notebooks
    + clusters,
    "all": run + tfds + text + tensorboard + fmri + privacy + clusters,
  },
)
