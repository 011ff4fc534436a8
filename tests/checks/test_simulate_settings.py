"""Bad settings given to `simulate`."""

import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_opt import (
  samplers,
)
from tests.checks import given
from tests.checks.given import (
  SGD,
  run,
)

# id: (call, type of the error, the whole line). A line that ends in "..." is
# compared up to there: what follows is quoted from a library.
BAD = {
  "rounds=None": (
    run(rounds=None),
    TypeError,
    "rounds=None: must be a whole number",
  ),
  "rounds='2'": (
    run(rounds="2"),
    TypeError,
    "rounds='2': must be a whole number",
  ),
  "rounds=2.0": (
    run(rounds=2.0),
    TypeError,
    "rounds=2.0: must be a whole number",
  ),
  "rounds=-1": (run(rounds=-1), ValueError, "rounds=-1: must not be negative"),
  "rounds=True": (
    run(rounds=True),
    TypeError,
    "rounds=True: must be a whole number",
  ),
  "rounds=10 ** 12": (
    run(rounds=10**12),
    ValueError,
    "rounds=1000000000000: must be at most 2147483647",
  ),
  "rounds=[2]": (
    run(rounds=[2]),
    TypeError,
    "rounds=[2]: must be a whole number",
  ),
  "seed=None": (run(seed=None), TypeError, "seed=None: must be a whole number"),
  "seed='0'": (run(seed="0"), TypeError, "seed='0': must be a whole number"),
  "seed=0.5": (run(seed=0.5), TypeError, "seed=0.5: must be a whole number"),
  "seed=-1": (
    run(seed=-1),
    ValueError,
    "seed=-1: must be from 0 to 4294967295",
  ),
  "seed=2 ** 32": (
    run(seed=2**32),
    ValueError,
    "seed=4294967296: must be from 0 to 4294967295",
  ),
  "seed=[0, 1]": (
    run(seed=[0, 1]),
    TypeError,
    (
      "seed=[0, 1]: must be a whole number; several seeds are for "
      "sweep(..., seeds=[0, 1])"
    ),
  ),
  "seed=float('nan')": (
    run(seed=float("nan")),
    TypeError,
    "seed=nan: must be a whole number",
  ),
  "seed=True": (run(seed=True), TypeError, "seed=True: must be a whole number"),
  "cohort_size=0": (
    run(cohort_size=0),
    ValueError,
    "cohort_size=0: must be from 1 to the number of clients, 4",
  ),
  "cohort_size=5": (
    run(cohort_size=5),
    ValueError,
    "cohort_size=5: must be from 1 to the number of clients, 4",
  ),
  "cohort_size=2.0": (
    run(cohort_size=2.0),
    TypeError,
    "cohort_size=2.0: must be a whole number",
  ),
  "cohort_size=True": (
    run(cohort_size=True),
    TypeError,
    "cohort_size=True: must be a whole number",
  ),
  "cohort_size='all'": (
    run(cohort_size="all"),
    TypeError,
    "cohort_size='all': must be a whole number",
  ),
  "cohort_size=[2]": (
    run(cohort_size=[2]),
    TypeError,
    "cohort_size=[2]: must be a whole number",
  ),
  "batch_size=None": (
    run(batch_size=None),
    TypeError,
    "batch_size=None: must be a whole number",
  ),
  "batch_size=0": (
    run(batch_size=0),
    ValueError,
    "batch_size=0: must be at least 1",
  ),
  "batch_size=2.5": (
    run(batch_size=2.5),
    TypeError,
    "batch_size=2.5: must be a whole number",
  ),
  "batch_size='8'": (
    run(batch_size="8"),
    TypeError,
    "batch_size='8': must be a whole number",
  ),
  "batch_size=99": (
    run(batch_size=99),
    ValueError,
    "batch_size=99: larger than every client; the largest has 3 examples",
  ),
  "batch_size=True": (
    run(batch_size=True),
    TypeError,
    "batch_size=True: must be a whole number",
  ),
  "local_steps=1.5": (
    run(local_steps=1.5),
    TypeError,
    "local_steps=1.5: must be a whole number",
  ),
  "local_steps=0": (
    run(local_steps=0),
    ValueError,
    "local_steps=0: must be at least 1",
  ),
  "local_steps='3'": (
    run(local_steps="3"),
    TypeError,
    "local_steps='3': must be a whole number",
  ),
  "local_steps=10 ** 10": (
    run(local_steps=10**10),
    ValueError,
    "local_steps=10000000000: must be at most 2147483647",
  ),
  "local_steps=-2": (
    run(local_steps=-2),
    ValueError,
    "local_steps=-2: must be at least 1",
  ),
  "local_epochs='1'": (
    run(local_epochs="1"),
    TypeError,
    "local_epochs='1': must be a number",
  ),
  "local_epochs=-1": (
    run(local_epochs=-1),
    ValueError,
    "local_epochs=-1: must be above 0",
  ),
  "local_epochs=0": (
    run(local_epochs=0),
    ValueError,
    "local_epochs=0: must be above 0",
  ),
  "local_epochs=float('nan')": (
    run(local_epochs=float("nan")),
    ValueError,
    "local_epochs=nan: must be above 0",
  ),
  "local_epochs=float('inf')": (
    run(local_epochs=float("inf")),
    ValueError,
    "local_epochs=inf: must be above 0",
  ),
  "local_epochs=1000000000000.0": (
    run(local_epochs=1000000000000.0),
    ValueError,
    (
      "local_epochs=1e+12: gives a client more than 2147483647 examples in "
      "a round"
    ),
  ),
  "local_epochs=[1]": (
    run(local_epochs=[1]),
    TypeError,
    "local_epochs=[1]: must be a number",
  ),
  "local_epochs=True": (
    run(local_epochs=True),
    TypeError,
    "local_epochs=True: must be a number",
  ),
  "replacement='yes'": (
    run(replacement="yes"),
    TypeError,
    "replacement='yes': must be True or False",
  ),
  "replacement=1": (
    run(replacement=1),
    TypeError,
    "replacement=1: must be True or False",
  ),
  "drop_remainder=None": (
    run(drop_remainder=None),
    TypeError,
    "drop_remainder=None: must be True or False",
  ),
  "weighting='size'": (
    run(weighting="size"),
    ValueError,
    "weighting='size': must be one of examples, uniform",
  ),
  "weighting=None": (
    run(weighting=None),
    TypeError,
    "weighting=None: must be one of examples, uniform",
  ),
  "weighting=np.ones(4)": (
    run(weighting=np.ones(4)),
    TypeError,
    "weighting=an array float64[4]: must be one of examples, uniform",
  ),
  "client_dropout=1.0": (
    run(client_dropout=1.0),
    ValueError,
    "client_dropout=1: must be in [0, 1)",
  ),
  "client_dropout=-0.5": (
    run(client_dropout=-0.5),
    ValueError,
    "client_dropout=-0.5: must be in [0, 1)",
  ),
  "client_dropout='0.1'": (
    run(client_dropout="0.1"),
    TypeError,
    "client_dropout='0.1': must be a number",
  ),
  "client_dropout=None": (
    run(client_dropout=None),
    TypeError,
    "client_dropout=None: must be a number",
  ),
  "client_dropout=float('nan')": (
    run(client_dropout=float("nan")),
    ValueError,
    "client_dropout=nan: must be in [0, 1)",
  ),
  "client_dropout=1": (
    run(client_dropout=1),
    ValueError,
    "client_dropout=1: must be in [0, 1)",
  ),
  "max_update_norm=0": (
    run(max_update_norm=0),
    ValueError,
    "max_update_norm=0: must be in (0, inf)",
  ),
  "max_update_norm=float('inf')": (
    run(max_update_norm=float("inf")),
    ValueError,
    "max_update_norm=inf: must be in (0, inf)",
  ),
  "max_update_norm='10'": (
    run(max_update_norm="10"),
    TypeError,
    "max_update_norm='10': must be a number",
  ),
  "max_update_norm=[1, 2]": (
    run(max_update_norm=[1, 2]),
    TypeError,
    "max_update_norm=[1, 2]: must be a number",
  ),
  "max_update_action='cut'": (
    run(max_update_norm=1, max_update_action="cut"),
    ValueError,
    "max_update_action='cut': must be one of reject, clip",
  ),
  "max_update_action='clip'": (
    run(max_update_action="clip"),
    ValueError,
    "max_update_action='clip': needs max_update_norm, the largest norm",
  ),
  "evaluate='accuracy'": (
    run(evaluate="accuracy"),
    TypeError,
    (
      "evaluate='accuracy': must be a function (params, data, test) -> "
      "{name: scalar}"
    ),
  ),
  "evaluate={'loss': 1}": (
    run(evaluate={"loss": 1}),
    TypeError,
    (
      "evaluate={'loss': 1}: must be a function (params, data, test) -> "
      "{name: scalar}"
    ),
  ),
  "evaluate=3": (
    run(evaluate=3),
    TypeError,
    ("evaluate=3: must be a function (params, data, test) -> {name: scalar}"),
  ),
  "eval_every=0": (
    run(eval_every=0),
    ValueError,
    "eval_every=0: must be at least 1",
  ),
  "eval_every=None": (
    run(eval_every=None),
    TypeError,
    "eval_every=None: must be a whole number",
  ),
  "eval_every=1.5": (
    run(eval_every=1.5),
    TypeError,
    "eval_every=1.5: must be a whole number",
  ),
  "eval_every='10'": (
    run(eval_every="10"),
    TypeError,
    "eval_every='10': must be a whole number",
  ),
  "trace='step_size'": (
    run(trace="step_size"),
    TypeError,
    (
      "trace='step_size': must be a list or tuple of names; write "
      'trace=("step_size",)'
    ),
  ),
  "trace=None": (
    run(trace=None),
    TypeError,
    "trace=None: must be a list or tuple of names",
  ),
  "trace=[1]": (
    run(trace=[1]),
    TypeError,
    "trace=[1]: must be a list or tuple of names",
  ),
  "trace=('momentum',)": (
    run(trace=("momentum",)),
    ValueError,
    "trace='momentum': the client rule's state has no such field",
  ),
  "client_map='pmap'": (
    run(client_map="pmap"),
    ValueError,
    ("client_map='pmap': must be one of auto, vmap, scan; did you mean vmap?"),
  ),
  "client_map=None": (
    run(client_map=None),
    TypeError,
    "client_map=None: must be one of auto, vmap, scan",
  ),
  "client_map=True": (
    run(client_map=True),
    TypeError,
    "client_map=True: must be one of auto, vmap, scan",
  ),
  "client_chunk=0": (
    run(client_chunk=0),
    ValueError,
    "client_chunk=0: must be at least 1",
  ),
  "client_chunk=1.5": (
    run(client_chunk=1.5),
    TypeError,
    "client_chunk=1.5: must be a whole number",
  ),
  "client_chunk='2'": (
    run(client_chunk="2"),
    TypeError,
    "client_chunk='2': must be a whole number",
  ),
  "client_memory='disk'": (
    run(client_memory="disk"),
    ValueError,
    "client_memory='disk': must be one of auto, device, host",
  ),
  "client_memory=None": (
    run(client_memory=None),
    TypeError,
    "client_memory=None: must be one of auto, device, host",
  ),
  "client_memory='host'": (
    run(client_memory="host"),
    ValueError,
    (
      "client_memory='host': this algorithm keeps nothing for its clients "
      "(it has no `Algorithm.init_client`); leave client_memory out"
    ),
  ),
  "client_devices=0": (
    run(client_devices=0),
    ValueError,
    "client_devices=0: must be at least 1",
  ),
  "client_devices=2.5": (
    run(client_devices=2.5),
    TypeError,
    "client_devices=2.5: must be a whole number",
  ),
  "client_devices='all'": (
    run(client_devices="all"),
    TypeError,
    "client_devices='all': must be a whole number",
  ),
  "client_devices=3": (
    run(client_devices=3),
    ValueError,
    "client_devices=3: must divide the number of devices, 1",
  ),
  "precision='half'": (
    run(precision="half"),
    ValueError,
    "precision='half': must be one of float32, mixed, bfloat16",
  ),
  "precision=jnp.bfloat16": (
    run(precision=jnp.bfloat16),
    TypeError,
    ("precision=the class bfloat16: must be one of float32, mixed, bfloat16"),
  ),
  "precision=16": (
    run(precision=16),
    TypeError,
    "precision=16: must be one of float32, mixed, bfloat16",
  ),
  "sampler='random'": (
    run(sampler="random"),
    ValueError,
    (
      "sampler='random': must be a sampler of fedjax_opt.samplers, such as "
      "samplers.cyclic(4), one of uniform, weighted, fixed, or a function "
      "(key, round) -> [C] int32"
    ),
  ),
  "sampler=3": (
    run(sampler=3),
    TypeError,
    (
      "sampler=3: must be a sampler of fedjax_opt.samplers, such as "
      "samplers.cyclic(4), one of uniform, weighted, fixed, or a function "
      "(key, round) -> [C] int32"
    ),
  ),
  "sampler=None": (
    run(sampler=None),
    TypeError,
    (
      "sampler=None: must be a sampler of fedjax_opt.samplers, such as "
      "samplers.cyclic(4), one of uniform, weighted, fixed, or a function "
      "(key, round) -> [C] int32"
    ),
  ),
  "sampler=samplers.cyclic": (
    run(sampler=samplers.cyclic),
    TypeError,
    (
      "sampler=the function fedjax_opt.cyclic: was not called; write "
      "samplers.cyclic(...)"
    ),
  ),
  "sampler=SGD": (
    run(sampler=SGD),
    TypeError,
    (
      "sampler=an optimizer: must be a sampler of fedjax_opt.samplers, such"
      " as samplers.cyclic(4), one of uniform, weighted, fixed, or a "
      "function (key, round) -> [C] int32"
    ),
  ),
  "sampler=samplers.fixed([[0, 9, 1, 2]])": (
    run(sampler=samplers.fixed([[0, 9, 1, 2]])),
    ValueError,
    "sampler: fixed has a client outside [0, 4)",
  ),
  "sampler=lambda key: jnp.arange(4)": (
    run(sampler=lambda key: jnp.arange(4)),
    TypeError,
    (
      "sampler=the function <lambda>: takes (key); must be a function (key,"
      " round) -> [C] int32"
    ),
  ),
  "sampler=lambda key, r: jnp.arange(3)": (
    run(sampler=lambda key, r: jnp.arange(3)),
    ValueError,
    (
      "sampler: the function returns int32[3]; must return [C] = [4] whole "
      "numbers"
    ),
  ),
  "sampler=lambda key, r: jnp.ones(4)": (
    run(sampler=lambda key, r: jnp.ones(4)),
    ValueError,
    (
      "sampler: the function returns float32[4]; must return [C] = [4] "
      "whole numbers"
    ),
  ),
  "sampler=lambda key, r: (jnp.arange(4), jnp.ones(": (
    run(sampler=lambda key, r: (jnp.arange(4), jnp.ones(3))),
    ValueError,
    (
      "sampler: its factors of weights are float32[3]; must be [C] = [4] "
      "numbers, or None"
    ),
  ),
  "sampler=lambda key, r: None": (
    run(sampler=lambda key, r: None),
    ValueError,
    ("sampler: the function returns None; must return [C] = [4] whole numbers"),
  ),
  "sampler=samplers.Sampler(lambda *a: jnp.arange(4": (
    run(sampler=samplers.Sampler(lambda *a: jnp.arange(4))),
    ValueError,
    "sampler: draw returns int32[4]; must return (clients, scale)",
  ),
  "cohort=3": (
    run(cohort=3),
    TypeError,
    "cohort: is no setting; did you mean cohort_size?",
  ),
  "batchsize=3": (
    run(batchsize=3),
    TypeError,
    "batchsize: is no setting; did you mean batch_size?",
  ),
  "lr=0.1": (
    run(lr=0.1),
    TypeError,
    "lr: is no setting; see fedjax_opt.Settings",
  ),
  "learning_rate=0.1": (
    run(learning_rate=0.1),
    TypeError,
    "learning_rate: is no setting; see fedjax_opt.Settings",
  ),
  "epochs=3": (
    run(epochs=3),
    TypeError,
    "epochs: is no setting; did you mean local_epochs?",
  ),
  "seeds=[0, 1]": (
    run(seeds=[0, 1]),
    TypeError,
    "seeds: is no setting of simulate; belongs to sweep(make, grid, ...)",
  ),
  "grid={'lr': [1]}": (
    run(grid={"lr": [1]}),
    TypeError,
    "grid: is no setting of simulate; belongs to sweep(make, grid, ...)",
  ),
  "grid_map='vmap'": (
    run(grid_map="vmap"),
    TypeError,
    ("grid_map: is no setting of simulate; belongs to sweep(make, grid, ...)"),
  ),
  "num_rounds=3": (
    run(num_rounds=3),
    TypeError,
    "num_rounds: is no setting; did you mean rounds?",
  ),
  "on_evaluation=3": (
    run(on_evaluation=3),
    TypeError,
    "on_evaluation=3: must be a function (report)",
  ),
  "on_evaluation=lambda: None": (
    run(on_evaluation=lambda: None),
    TypeError,
    (
      "on_evaluation=the function <lambda>: takes (); must be a function "
      "(report)"
    ),
  ),
  "on_evaluation='print'": (
    run(on_evaluation="print"),
    TypeError,
    "on_evaluation='print': must be a function (report)",
  ),
  "checkpoints='folder'": (
    run(checkpoints="folder"),
    TypeError,
    (
      "checkpoints='folder': must be a Checkpoints, such as "
      'Checkpoints("folder", every=50)'
    ),
  ),
  "checkpoints=True": (
    run(checkpoints=True),
    TypeError,
    (
      "checkpoints=True: must be a Checkpoints, such as "
      'Checkpoints("folder", every=50)'
    ),
  ),
  "checkpoints=10": (
    run(checkpoints=10),
    TypeError,
    (
      'checkpoints=10: must be a Checkpoints, such as Checkpoints("folder",'
      " every=50)"
    ),
  ),
  "progress='yes'": (
    run(progress="yes"),
    TypeError,
    "progress='yes': must be True or False",
  ),
  "progress=1": (
    run(progress=1),
    TypeError,
    "progress=1: must be True or False",
  ),
  "progress=None": (
    run(progress=None),
    TypeError,
    "progress=None: must be True or False",
  ),
  "epochs and steps": (
    run(local_epochs=1, local_steps=2),
    ValueError,
    "local_epochs=1 and local_steps=2: give only one",
  ),
  "chunk and scan": (
    run(client_chunk=2, client_map="scan"),
    ValueError,
    (
      "client_chunk=2 with client_map='scan': scan takes one client after "
      "the other; use 'vmap' or 'auto'"
    ),
  ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_clear_line(case):
  given.check(*BAD[case])
