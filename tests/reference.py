"""Plain NumPy loops of the algorithm boxes: the referee of the test suite.

Each box is a loop in `tests/loops/`, and `reference.NAME` here. The docstring
of `tests/loops/__init__.py` says in which file each name is. Nothing in them is
vectorised over clients or steps, and nothing comes from the package or from
JAX, so that a test which compares with these loops compares two independent
readings of the papers.

Conventions of all loops:
  problem: has `x0`, all parameters raveled to a float64 vector [d], and
    `gradient(x, rows) -> (loss, grad)`: mean loss and gradient [d] over the
    pool rows `rows` (int array [b]; the batch with its padding removed).
  rounds: a list of `Round`.
  rate: a function `r -> eta`, the rate of a round; `lr` is a number.
  make_rule(r, client): the client rule of round r; a fresh one where clients
    forget their optimizer state when a round ends.
  server: a rule too; it takes x_t - mean_i x_{t,K}^i for a gradient and its
    state lives through all rounds. Sgd(1.0) is plain averaging.
  population: the weights of all M clients.

Each loop yields after every round what its docstring names, of the server and
of all clients [M, ...]; a client that has not taken part has the initial
values.
"""

from tests.loops.asynchronous import *  # noqa: F403
from tests.loops.composite import *  # noqa: F403
from tests.loops.drift import *  # noqa: F403
from tests.loops.fed_avg import *  # noqa: F403
from tests.loops.momenta import *  # noqa: F403
from tests.loops.personal import *  # noqa: F403
from tests.loops.rounds import *  # noqa: F403
from tests.loops.rules import *  # noqa: F403
from tests.loops.uphill import *  # noqa: F403
from tests.loops.uploads import *  # noqa: F403
from tests.loops.variance_reduction import *  # noqa: F403
