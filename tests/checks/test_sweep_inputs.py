"""Bad arguments of `sweep`."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_opt import ClientData, domo, fed_avg, scaffold, sweep
from tests.checks import given
from tests.checks.given import (
  ALGORITHM,
  DATA,
  OWNERS,
  PARAMS,
  SETTINGS,
  SGD,
  TEST,
  X,
  Y,
  loss_fn,
)


def make(lr):
  return fed_avg(loss_fn, optax.sgd(lr))


def mean_loss(params, batch, rng):
  return loss_fn(params, batch, rng).mean()


def run(**bad):
  """A sweep in which these arguments are bad."""
  good = {
    "make": make,
    "grid": {"lr": [0.1, 0.2]},
    "params": PARAMS,
    "data": DATA,
    **SETTINGS,
  }
  return lambda: sweep(**good | bad)


# id: (call, type of the error, the whole line). A line that ends in "..." is
# compared up to there: what follows is quoted from a library.
BAD = {
  "grid None": (
    run(grid=None),
    TypeError,
    (
      'grid=None: must be a dict of values, such as {"learning_rate": '
      "[0.01, 0.1]}; {} for one setting"
    ),
  ),
  "grid list": (
    run(grid=[0.1]),
    TypeError,
    (
      'grid=[0.1]: must be a dict of values, such as {"learning_rate": '
      "[0.01, 0.1]}; {} for one setting"
    ),
  ),
  "grid str": (
    run(grid="lr"),
    TypeError,
    (
      "grid='lr': must be a dict of values, such as {\"learning_rate\": "
      "[0.01, 0.1]}; {} for one setting"
    ),
  ),
  "grid number": (
    run(grid=0.1),
    TypeError,
    (
      'grid=0.1: must be a dict of values, such as {"learning_rate": [0.01,'
      " 0.1]}; {} for one setting"
    ),
  ),
  "grid value": (
    run(grid={"lr": 0.1}),
    TypeError,
    "grid['lr']=0.1: must be a list of numbers, such as [0.01, 0.1]",
  ),
  "grid value str": (
    run(grid={"lr": "0.1"}),
    TypeError,
    "grid['lr']='0.1': must be a list of numbers, such as [0.01, 0.1]",
  ),
  "grid strs": (
    run(grid={"lr": ["0.1"]}),
    TypeError,
    "grid['lr']: lr='0.1': must be a number",
  ),
  "grid None value": (
    run(grid={"lr": [None]}),
    TypeError,
    "grid['lr']: lr=None: must be a number",
  ),
  "grid bool": (
    run(grid={"lr": [True]}),
    TypeError,
    "grid['lr']: lr=True: must be a number",
  ),
  "grid nan": (
    run(grid={"lr": [float("nan")]}),
    ValueError,
    "grid['lr']: nan is no value; must be numbers",
  ),
  "grid empty": (
    run(grid={"lr": []}),
    ValueError,
    "lr: give at least one value",
  ),
  "grid twice": (
    run(grid={"lr": [0.1, 0.2, 0.1]}),
    ValueError,
    "grid['lr']: 0.1 is repeated; give it once",
  ),
  "grid equal": (
    run(grid={"lr": [1, 1.0]}),
    ValueError,
    "grid['lr']: 1 is repeated; give it once",
  ),
  "grid seed": (
    run(grid={"seed": [1, 2]}),
    ValueError,
    "grid['seed']: seeds are not hyperparameters; give seeds=[...]",
  ),
  "grid seeds": (
    run(grid={"seeds": [1, 2]}),
    ValueError,
    "grid['seeds']: seeds are not hyperparameters; give seeds=[...]",
  ),
  "grid set": (
    run(grid={"lr": {0.1}}),
    TypeError,
    "grid['lr']={0.1}: must be a list of numbers, such as [0.01, 0.1]",
  ),
  "grid 2d": (
    run(grid={"lr": np.ones((2, 2))}),
    TypeError,
    (
      "grid['lr']=an array float64[2, 2]: must be a list of numbers, such "
      "as [0.01, 0.1]"
    ),
  ),
  "grid key": (
    run(grid={3: [0.1]}),
    TypeError,
    "grid: the name 3 must be a string",
  ),
  "grid huge": (
    run(grid={"lr": [10**12]}),
    ValueError,
    "grid['lr']: 1000000000000 does not fit into 32 bits; write 1e+12",
  ),
  "grid vast": (
    run(grid={"lr": [10**50]}),
    ValueError,
    (
      "grid['lr']: 100000000000000000000000000000000000000000000000000 is "
      "too large"
    ),
  ),
  "grid name": (
    run(grid={"rate": [0.1]}),
    TypeError,
    (
      "make: failed with the hyperparameters of the grid (rate): TypeError:"
      " make() got an unexpected keyword argument 'rate'"
    ),
  ),
  "grid complex": (
    run(grid={"lr": [1j]}),
    TypeError,
    "grid['lr']: lr=1j: must be a number",
  ),
  "grid extra": (
    run(grid={"lr": [0.1], "b": [1]}),
    TypeError,
    (
      "make: failed with the hyperparameters of the grid (lr, b): "
      "TypeError: make() got an unexpected keyword argument 'b'"
    ),
  ),
  "grid missing": (
    run(grid={}),
    TypeError,
    (
      "make: failed with the hyperparameters of the grid (none): TypeError:"
      " make() missing 1 required positional argument: 'lr'"
    ),
  ),
  "make algorithm": (
    run(make=ALGORITHM),
    TypeError,
    (
      "make=an Algorithm: must be a function of the hyperparameters that "
      "returns an Algorithm, such as lambda lr: fed_avg(loss_fn, "
      "optax.sgd(lr))"
    ),
  ),
  "make None": (
    run(make=None),
    TypeError,
    (
      "make=None: must be a function of the hyperparameters that returns an"
      " Algorithm, such as lambda lr: fed_avg(loss_fn, optax.sgd(lr))"
    ),
  ),
  "make str": (
    run(make="fed_avg"),
    TypeError,
    (
      "make='fed_avg': must be a function of the hyperparameters that "
      "returns an Algorithm, such as lambda lr: fed_avg(loss_fn, "
      "optax.sgd(lr))"
    ),
  ),
  "make rule": (
    run(make=lambda lr: optax.sgd(lr)),
    TypeError,
    (
      "make(...): is an optimizer; must be an Algorithm, such as "
      "fed_avg(loss_fn, client=optimizer)"
    ),
  ),
  "make returns None": (
    run(make=lambda lr: None),
    TypeError,
    (
      "make(...)=None: must be an Algorithm, such as fed_avg(loss_fn, "
      "optax.sgd(0.1))"
    ),
  ),
  "make returns factory": (
    run(make=lambda lr: fed_avg),
    TypeError,
    (
      "make(...)=the function fedjax_opt.fed_avg: must be an Algorithm (it "
      "was not called), such as fed_avg(loss_fn, optax.sgd(0.1))"
    ),
  ),
  "make if": (
    run(make=lambda lr: fed_avg(loss_fn, optax.sgd(lr if lr > 0 else 0.1))),
    TypeError,
    (
      "make: failed with traced numbers (lr): it needs the value of a "
      "traced array; write jnp.where instead of if, and jax.numpy instead "
      "of float(), int() and NumPy"
    ),
  ),
  "make float": (
    run(make=lambda lr: fed_avg(loss_fn, optax.sgd(float(lr)))),
    TypeError,
    (
      "make: failed with traced numbers (lr): it needs the value of a "
      "traced array; write jnp.where instead of if, and jax.numpy instead "
      "of float(), int() and NumPy"
    ),
  ),
  "make fails": (
    run(make=lambda lr: {}[lr]),
    ValueError,
    ("make: failed with the hyperparameters of the grid (lr): KeyError: 0.1"),
  ),
  "make optimizer": (
    run(make=SGD),
    TypeError,
    (
      "make=an optimizer: must be a function of the hyperparameters that "
      "returns an Algorithm, such as lambda lr: fed_avg(loss_fn, "
      "optax.sgd(lr))"
    ),
  ),
  "negative rate": (
    run(make=lambda lr: scaffold(loss_fn, lr), grid={"lr": [0.1, -0.1]}),
    ValueError,
    "learning_rate=-0.1: must be in [0, inf)",
  ),
  "momentum": (
    run(make=lambda mu: domo(loss_fn, 0.1, mu_s=mu), grid={"mu": [0.9, 1.0]}),
    ValueError,
    "mu_s=1: must be in [0, 1)",
  ),
  "seeds=3": (
    run(seeds=3),
    TypeError,
    "seeds=3: must be a list of whole numbers, such as [0, 1]",
  ),
  "seeds empty": (run(seeds=[]), ValueError, "seed: give at least one value"),
  "seeds str": (
    run(seeds="01"),
    TypeError,
    "seeds='01': must be a list of whole numbers, such as [0, 1]",
  ),
  "seeds float": (
    run(seeds=[0.5]),
    TypeError,
    "seed=0.5: must be a whole number",
  ),
  "seeds negative": (
    run(seeds=[-1]),
    ValueError,
    "seed=-1: must be from 0 to 4294967295",
  ),
  "seeds large": (
    run(seeds=[2**32]),
    ValueError,
    "seed=4294967296: must be from 0 to 4294967295",
  ),
  "seeds twice": (
    run(seeds=[0, 1, 0]),
    ValueError,
    "seeds=[0, 1, 0]: a seed is repeated; give it once",
  ),
  "seeds set": (
    run(seeds={0, 1}),
    TypeError,
    "seeds={0, 1}: must be a list of whole numbers, such as [0, 1]",
  ),
  "seeds bool": (
    run(seeds=[True]),
    TypeError,
    "seed=True: must be a whole number",
  ),
  "seeds strs": (
    run(seeds=["0"]),
    TypeError,
    "seed='0': must be a whole number",
  ),
  "seeds 2d": (
    run(seeds=np.zeros((2, 2), int)),
    TypeError,
    (
      "seeds=an array int64[2, 2]: must be a list of whole numbers, such as"
      " [0, 1]"
    ),
  ),
  "seeds floats": (
    run(seeds=np.zeros(2)),
    TypeError,
    "seed=np.float64(0.0): must be a whole number",
  ),
  "seeds nested": (
    run(seeds=[[0]]),
    TypeError,
    (
      "seed=[0]: must be a whole number; several seeds are for sweep(..., "
      "seeds=[0, 1])"
    ),
  ),
  "seed=3": (
    run(seed=3),
    TypeError,
    "seed: is no setting of sweep; give a list, seeds=[0]",
  ),
  "grid_map='pmap'": (
    run(grid_map="pmap"),
    ValueError,
    "grid_map='pmap': must be one of auto, vmap, scan; did you mean vmap?",
  ),
  "grid_map=None": (
    run(grid_map=None),
    TypeError,
    "grid_map=None: must be one of auto, vmap, scan",
  ),
  "grid_chunk=0": (
    run(grid_chunk=0),
    ValueError,
    "grid_chunk=0: must be at least 1",
  ),
  "grid_chunk=1.5": (
    run(grid_chunk=1.5),
    TypeError,
    "grid_chunk=1.5: must be a whole number",
  ),
  "grid_chunk='2'": (
    run(grid_chunk="2"),
    TypeError,
    "grid_chunk='2': must be a whole number",
  ),
  "grid_devices=0": (
    run(grid_devices=0),
    ValueError,
    "grid_devices=0: must be at least 1",
  ),
  "grid_devices='2'": (
    run(grid_devices="2"),
    TypeError,
    "grid_devices='2': must be a whole number",
  ),
  "grid_devices=3": (
    run(grid_devices=3),
    ValueError,
    "grid_devices=3: must divide the number of devices, 1",
  ),
  "grid_devices=1.0": (
    run(grid_devices=1.0),
    TypeError,
    "grid_devices=1.0: must be a whole number",
  ),
  "cohort_size=9": (
    run(cohort_size=9),
    ValueError,
    "cohort_size=9: must be from 1 to the number of clients, 4",
  ),
  "lr=[0.1]": (
    run(lr=[0.1]),
    TypeError,
    "lr: is no setting; see fedjax_opt.Settings",
  ),
  "learning_rates=[0.1]": (
    run(learning_rates=[0.1]),
    TypeError,
    "learning_rates: is no setting; see fedjax_opt.Settings",
  ),
  "rounds=-1": (run(rounds=-1), ValueError, "rounds=-1: must not be negative"),
  "rounds=None": (
    run(rounds=None),
    TypeError,
    "rounds=None: must be a whole number",
  ),
  "on_evaluation=3": (
    run(on_evaluation=3),
    TypeError,
    "on_evaluation=3: must be a function (report)",
  ),
  "checkpoints='folder'": (
    run(checkpoints="folder"),
    TypeError,
    (
      "checkpoints='folder': must be a Checkpoints, such as "
      'Checkpoints("folder", every=50)'
    ),
  ),
  "progress=1": (
    run(progress=1),
    TypeError,
    "progress=1: must be True or False",
  ),
  "test=TEST": (
    run(test=TEST),
    ValueError,
    (
      "test: nothing is measured on it; give evaluate=, such as "
      "evaluation.federated(per_example)"
    ),
  ),
  "params=None": (
    run(params=None),
    TypeError,
    "params=None: must be a pytree of arrays",
  ),
  "params=lambda: PARAMS": (
    run(params=lambda: PARAMS),
    TypeError,
    (
      "params=the function <lambda>: takes (); must be a function (key) -> "
      "params, or a pytree of arrays"
    ),
  ),
  "params=lambda key: {'w': 'a'}": (
    run(params=lambda key: {"w": "a"}),
    TypeError,
    "params(key)['w']: is 'a'; must be an array of numbers",
  ),
  "params=lambda key: {'w': jnp.zeros(3, int)}": (
    run(params=lambda key: {"w": jnp.zeros(3, int)}),
    TypeError,
    "params(key)['w']: is int32; must be floating-point numbers",
  ),
  "params=lambda key: key['a']": (
    run(params=lambda key: key["a"]),
    TypeError,
    "params: failed with a random key:...",
  ),
  "params=dict": (
    run(params=dict),
    TypeError,
    "params=the class dict: must be a pytree of arrays",
  ),
  "params=lambda key, x: PARAMS": (
    run(params=lambda key, x: PARAMS),
    TypeError,
    (
      "params=the function <lambda>: takes (key, x); must be a function "
      "(key) -> params, or a pytree of arrays"
    ),
  ),
  "params={'w': 3}": (
    run(params={"w": 3}),
    TypeError,
    "params['w']=3: must be an array of floating-point numbers",
  ),
  "params=lambda key: key": (
    run(params=lambda key: key),
    TypeError,
    "params(key): is key<fry>; must be floating-point numbers",
  ),
  "data=None": (
    run(data=None),
    TypeError,
    (
      "data=None: must be clients, such as ClientData.from_client_ids({'x':"
      " x, 'y': y}, client_ids), or a Population"
    ),
  ),
  "data=lambda: DATA": (
    run(data=lambda: DATA),
    TypeError,
    (
      "data=the function <lambda>: takes (); must be a function (seed) -> "
      "ClientData"
    ),
  ),
  "data=lambda seed: None": (
    run(data=lambda seed: None),
    TypeError,
    "data(0)=None: must be ClientData or a Population",
  ),
  "data=lambda seed: TEST": (
    run(data=lambda seed: TEST),
    TypeError,
    "data(0)=a dict: must be ClientData or a Population",
  ),
  "data=lambda seed: {}[seed]": (
    run(data=lambda seed: {}[seed]),
    ValueError,
    "data: failed: KeyError: 0",
  ),
  "data=[DATA, DATA]": (
    run(data=[DATA, DATA]),
    TypeError,
    (
      "data=a list: must be clients, such as "
      "ClientData.from_client_ids({'x': x, 'y': y}, client_ids), or a "
      "Population"
    ),
  ),
  "chunk scan": (
    run(grid_chunk=2, grid_map="scan"),
    ValueError,
    (
      "grid_chunk=2 with grid_map='scan': scan takes one point after the "
      "other; use 'vmap' or 'auto'"
    ),
  ),
  "data examples": (
    run(
      data=lambda seed: ClientData.from_client_ids(
        {"x": X + seed, "y": Y}, OWNERS
      ),
      seeds=[0, 1],
    ),
    ValueError,
    "data: the clients of all seeds must share the examples; give them as "
    "ClientData.from_partition(examples, rows, keep_pool=True) makes them",
  ),
  "data clients": (
    run(
      data=lambda seed: ClientData(
        TEST, np.zeros((4 - seed, 3), int), np.ones(4 - seed, int)
      ),
      seeds=[0, 1],
    ),
    ValueError,
    (
      "data: has 3 clients for one seed and 4 for another; must be as many "
      "for all"
    ),
  ),
  "loss scalar": (
    run(make=lambda lr: fed_avg(mean_loss, optax.sgd(lr))),
    ValueError,
    (
      "loss_fn: returned a scalar; must be one number per example, [B] = "
      "[2]; drop the .mean()"
    ),
  ),
  "client uncalled": (
    run(make=lambda lr: fed_avg(loss_fn, optax.sgd)),
    TypeError,
    "client=the function optax.sgd: was not called; write optax.sgd(...)",
  ),
  "evaluate=lambda p, d, t: {'loss': p['w']}": (
    run(evaluate=lambda p, d, t: {"loss": p["w"]}),
    ValueError,
    (
      "evaluate: 'loss' is float32[3, 2]; must be a scalar, such as its .mean()"
    ),
  ),
  "trace=['momentum']": (
    run(trace=["momentum"]),
    ValueError,
    "trace='momentum': the client rule's state has no such field",
  ),
  "shape params fn": (
    run(params=lambda key: {"w": jax.random.normal(key, (2, 2))}),
    TypeError,
    "loss_fn: failed on a batch {x: float32[2, 3], y: int32[2]}:...",
  ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_clear_line(case):
  given.check(*BAD[case])


def test_orthogonal_models_of_several_seeds_do_not_wait_forever():
  """A batch of QR decompositions can stop jaxlib on CPU for good."""
  program = """
import jax
from fedjax_opt.checks import inputs

orthogonal = jax.nn.initializers.orthogonal()
draw = lambda key: [orthogonal(k, (256, 256)) for k in jax.random.split(key, 8)]
for _ in range(5):
  models = inputs.models_of_seeds(draw, [0, 1, 2], has_points=True)
  jax.block_until_ready(models)
one = inputs.models_of_seeds(draw, [1], has_points=False)
assert all((a[1] == b).all() for a, b in zip(models, one))
"""
  subprocess.run([sys.executable, "-c", program], check=True, timeout=100)
