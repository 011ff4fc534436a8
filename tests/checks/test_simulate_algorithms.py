"""Bad algorithms of one's own given to `simulate`."""

import jax
import jax.numpy as jnp
import optax
import optax.contrib
import pytest

from fedjax_opt import (
  Algorithm,
  ClientOutput,
)
from tests.checks import given
from tests.checks.given import (
  SGD,
  algorithm,
  evaluate,
  late,
  loss_fn,
)


def mean_loss(params, batch, rng):
  return loss_fn(params, batch, rng).mean()


def send_all(worker, params):
  return params


def own(**fields):
  """An algorithm of one's own, of which these functions are bad."""
  good = {
    "init": lambda params, num_clients: params,
    "round": lambda state, cohort: (state, cohort.mean(send_all, state)),
    "params": lambda state: state,
  }
  return algorithm(lambda: Algorithm(**good | fields))


def sends(one_client):
  """One whose clients send this."""
  round = lambda state, cohort: (state, cohort.mean(one_client, state))
  return own(round=round)


def becomes(new):
  """One whose state becomes this."""

  def round(state, cohort):
    sent = cohort.mean(send_all, state)
    return new(state, sent), sent

  return own(round=round)


# id: (call, type of the error, the whole line). A line that ends in "..." is
# compared up to there: what follows is quoted from a library.
BAD = {
  "own init None": (
    own(init=None),
    TypeError,
    ("Algorithm.init=None: must be a function (params, num_clients) -> state"),
  ),
  "own init args": (
    own(init=lambda params: params),
    TypeError,
    (
      "Algorithm.init=the function <lambda>: takes (params); must be a "
      "function (params, num_clients) -> state"
    ),
  ),
  "own init fails": (
    own(init=lambda p, n: p["v"]),
    ValueError,
    "Algorithm.init: failed: KeyError: 'v'",
  ),
  "own init str": (
    own(init=lambda p, n: {"w": p["w"], "name": "a"}),
    TypeError,
    "Algorithm.init: state['name']: is 'a'; must be an array of numbers",
  ),
  "own params fails": (
    own(params=lambda s: s["v"]),
    ValueError,
    "Algorithm.params: failed: KeyError: 'v'",
  ),
  "own params args": (
    own(params=lambda s, t: s),
    TypeError,
    (
      "Algorithm.params=the function <lambda>: takes (s, t); must be a "
      "function (state) -> params"
    ),
  ),
  "own params str": (
    own(params=lambda s: "w"),
    TypeError,
    "Algorithm.params: is 'w'; must be an array of numbers",
  ),
  "own round None": (
    own(round=None),
    TypeError,
    (
      "Algorithm.round=None: must be a function (state, cohort) -> (state, "
      "reply)"
    ),
  ),
  "own round args": (
    own(round=lambda s: s),
    TypeError,
    (
      "Algorithm.round=the function <lambda>: takes (s); must be a function"
      " (state, cohort) -> (state, reply)"
    ),
  ),
  "own init_client str": (
    own(init_client=lambda p: "a"),
    TypeError,
    "Algorithm.init_client: is 'a'; must be an array of numbers",
  ),
  "own init_client fails": (
    own(init_client=lambda p: p["v"]),
    ValueError,
    "Algorithm.init_client: failed: KeyError: 'v'",
  ),
  "own init_client key": (
    own(init_client=lambda p: jax.random.key(0)),
    TypeError,
    "Algorithm.init_client: is key<fry>[]; must be an array of numbers",
  ),
  "own init_client args": (
    own(init_client=lambda: 0),
    TypeError,
    (
      "Algorithm.init_client=the function <lambda>: takes (); must be a "
      "function (params) -> tree"
    ),
  ),
  "worker.state without init_client": (
    own(round=lambda s, c: (s, c.mean(lambda w, p: w.state, s))),
    ValueError,
    (
      "worker.state: the algorithm has no init_client; declare what one client "
      "keeps: Algorithm(..., init_client=...)"
    ),
  ),
  "own init_client tree": (
    own(init_client={"w": 0}),
    TypeError,
    "Algorithm.init_client={'w': 0}: must be a function (params) -> tree",
  ),
  "own penalty": (
    own(penalty=3),
    TypeError,
    "Algorithm.penalty=3: must be a function (params) -> scalar",
  ),
  "own penalty vector": (
    late(
      algorithm=lambda: Algorithm(
        lambda p, n: p,
        lambda s, c: (s, c.mean(lambda w, p: p, s)),
        lambda s: s,
        penalty=lambda p: p["w"],
      ),
      evaluate=lambda: evaluate,
    ),
    ValueError,
    (
      "Algorithm.penalty: 'penalty' is float32[3, 2]; must be a scalar, "
      "such as its .mean()"
    ),
  ),
  "state leaf missing": (
    becomes(lambda s, t: {}),
    ValueError,
    "Algorithm.round: state: lacks the leaf ['w'] that Algorithm.init has",
  ),
  "state leaf new": (
    becomes(lambda s, t: s | {"t": 0}),
    ValueError,
    (
      "Algorithm.round: state: has the leaf ['t'] that Algorithm.init does "
      "not have"
    ),
  ),
  "state shape": (
    becomes(lambda s, t: {"w": s["w"][0]}),
    ValueError,
    (
      "Algorithm.round: state['w']: is float32[2]; must be float32[3, 2], "
      "as Algorithm.init has it"
    ),
  ),
  "state dtype": (
    own(
      init=lambda p, n: {"w": p["w"], "t": jnp.int32(0)},
      round=lambda s, c: (
        {"w": s["w"], "t": s["t"] + 0.5},
        c.mean(send_all, s),
      ),
    ),
    ValueError,
    (
      "Algorithm.round: state['t']: is float32[]; must be int32[], as "
      "Algorithm.init has it"
    ),
  ),
  "state list": (
    becomes(lambda s, t: [s["w"]]),
    ValueError,
    "Algorithm.round: state: lacks the leaf ['w'] that Algorithm.init has",
  ),
  "state None": (
    becomes(lambda s, t: None),
    ValueError,
    "Algorithm.round: state: lacks the leaf ['w'] that Algorithm.init has",
  ),
  "state str": (
    becomes(lambda s, t: {"w": "a"}),
    TypeError,
    "Algorithm.round: state['w']: is 'a'; must be an array of numbers",
  ),
  "state reply": (
    becomes(lambda s, t: t),
    ValueError,
    "Algorithm.round: state: lacks the leaf ['w'] that Algorithm.init has",
  ),
  "state tuple list": (
    own(
      init=lambda p, n: (p["w"],),
      round=lambda s, c: ([s[0]], c.mean(send_all, s)),
    ),
    ValueError,
    (
      "Algorithm.round: state: is a list of another structure than the "
      "tuple of Algorithm.init"
    ),
  ),
  "round fails": (
    becomes(lambda s, t: s["v"]),
    ValueError,
    "Algorithm.round: failed: KeyError: 'v'",
  ),
  "round value": (
    own(round=lambda s, c: c.mean(send_all, s).value),
    ValueError,
    (
      "round: must return (state, reply), or (state, (reply, ...)) after "
      "several verbs; a reply is what a verb of the cohort returns, and its"
      " message is reply.value. Got a dict"
    ),
  ),
  "round no reply": (
    own(round=lambda s, c: (c.mean(send_all, s).value,)),
    ValueError,
    (
      "round: must return (state, reply), or (state, (reply, ...)) after "
      "several verbs; a reply is what a verb of the cohort returns, and its"
      " message is reply.value. Got (dict)"
    ),
  ),
  "one None": (
    sends(lambda w, p: None),
    TypeError,
    ("one_client: returned None; must return its message, or a ClientOutput"),
  ),
  "one str": (
    sends(lambda w, p: "a"),
    TypeError,
    "ClientOutput.message: is 'a'; must be an array of numbers",
  ),
  "one args": (
    sends(lambda w: 0),
    TypeError,
    (
      "one_client=the function <lambda>: takes (w); must be a function "
      "(worker, broadcast) -> message"
    ),
  ),
  "one fails": (
    sends(lambda w, p: p["v"]),
    ValueError,
    "one_client: failed: KeyError: 'v'",
  ),
  "one weight": (
    sends(lambda w, p: ClientOutput(p, weight="a")),
    TypeError,
    "ClientOutput.weight: is 'a'; must be a scalar number",
  ),
  "one weight vector": (
    sends(lambda w, p: ClientOutput(p, weight=jnp.ones(3))),
    TypeError,
    "ClientOutput.weight: is float32[3]; must be a scalar number",
  ),
  "one bytes": (
    sends(lambda w, p: ClientOutput(p, bytes_up="a")),
    TypeError,
    "ClientOutput.bytes_up: is 'a'; must be a scalar number",
  ),
  "one metrics": (
    sends(lambda w, p: ClientOutput(p, metrics=3)),
    TypeError,
    "ClientOutput.metrics: returned 3; must return a dict {name: scalar}",
  ),
  "one metrics vector": (
    sends(lambda w, p: ClientOutput(p, metrics={"a": jnp.ones(3)})),
    ValueError,
    (
      "ClientOutput.metrics: 'a' is float32[3]; must be a scalar, such as "
      "its .mean()"
    ),
  ),
  "one state": (
    sends(lambda w, p: ClientOutput(p, state=p)),
    ValueError,
    (
      "ClientOutput.state: was given, but the algorithm has no init_client;"
      " declare what one client keeps: Algorithm(..., init_client=...)"
    ),
  ),
  "one descend": (
    sends(lambda w, p: w.descend(loss_fn, optax.sgd, p)),
    TypeError,
    "client=the function optax.sgd: was not called; write optax.sgd(...)",
  ),
  "one descend loss": (
    sends(lambda w, p: w.descend(lambda p: 0, SGD, p)),
    TypeError,
    (
      "loss_fn=the function <lambda>: takes (p); must be a function "
      "(params, batch, rng) -> [B]"
    ),
  ),
  "one descend params": (
    sends(lambda w, p: w.descend(loss_fn, SGD, 3)),
    TypeError,
    "one_client: failed:...",
  ),
  "one descend order": (
    sends(lambda w, p: w.descend(SGD, loss_fn, p)),
    TypeError,
    (
      "client=the function loss_fn: takes (params, batch, rng); must be a "
      "function (round) -> optimizer, or an optimizer, such as "
      "optax.sgd(0.1)"
    ),
  ),
  "one phase": (
    own(round=lambda s, c: (s, c.mean(send_all, s, phase=9))),
    ValueError,
    "phase=9: must be in [0, 8)",
  ),
  "one gradient": (
    sends(lambda w, p: w.gradient(lambda p, b, r: loss_fn(p, b, r).sum(), p)),
    ValueError,
    (
      "loss_fn: returned a scalar; must be one number per example, [B] = "
      "[3]; drop the .mean()"
    ),
  ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_clear_line(case):
  given.check(*BAD[case])
