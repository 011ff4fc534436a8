"""Each algorithm against the plain loop of its box.

The module helpers/cases.py makes the problem and the rounds when it is
imported: `cases.TASK`, `cases.DATA`, `cases.FED_AVG`. Algorithms whose rounds
have several phases are in test_variance_reduction.py, algorithms of exact
gradients in test_centralized.py.
"""

import pathlib
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedjax_opt as fo
from fedjax_opt import prox
from fedjax_opt.algorithms import ALGORITHMS
from fedjax_opt.algorithms.fed_avg import rounded_like
from fedjax_opt.algorithms.fed_nova import effective_steps
from tests import reference
from tests.helpers import cases, jax_problems
from tests.helpers.cases import KERNEL, LR, PROBLEM, ROUNDS, M, rate
from tests.helpers.rule_referees import referee, rule

LOSS, SGD = cases.loss_fn, optax.sgd(LR)
MLP = jax_problems.mlp(sizes=cases.SIZES)
SPEED = {"lam": 5.0, "alpha": 0.7, "rho": 0.2}
ADAMW = {"eps": 1e-2, "weight_decay": 0.1}
ALPHA, SERVER_RATE = 0.8, 0.7
MU_S, MU_L, BETA = {"mu_s": 0.7}, {"mu_l": 0.6}, {"beta": 0.5}
AVERAGED = {"average_local": True}
# name -> the constants of the loop that are not those of FedAvg.
MOMENTA = {
  "fed_avg_sm": MU_S,
  "fed_avg_lm": MU_L | AVERAGED,
  "fed_avg_lm_z": MU_L,
  "fed_avg_slm": MU_S | MU_L | AVERAGED,
  "fed_avg_slm_z": MU_S | MU_L,
  "domo": MU_S | MU_L | BETA | {"option": "I"},
  "domo_s": MU_S | MU_L | BETA | {"option": "II"},
}
# name -> (the package's, the referee's).
PSI = {
  "l1": (prox.l1(0.12), reference.L1(KERNEL, 0.12)),
  "nuclear": (prox.nuclear(0.12), reference.Nuclear(KERNEL, (4, 3), 0.12)),
  "l2_ball": (prox.l2_ball(0.6), reference.L2Ball(KERNEL, 0.6)),
  "l1_ball": (prox.l1_ball(1.0), reference.L1Ball(KERNEL, 1.0)),
}


def loop_of(loop, *constants, **options):
  """A loop with these constants, as `cases.check_loop` takes it."""
  return lambda rounds, masses: loop(PROBLEM, rounds, *constants, **options)


def loop_of_population(loop, *constants, **options):
  """The same of a loop that has the weights of all clients."""
  return lambda rounds, masses: loop(
    PROBLEM, rounds, *constants, population=masses, **options
  )


def averaging(make_rule, server=None):
  """The fields and the loop of FedAvg with such rules."""
  return "params", loop_of(reference.fed_avg, make_rule, server)


def with_client_rule(name):
  """FedAvg whose clients have that rule."""
  loop = averaging(lambda r, client: referee(name))
  return fo.fed_avg(LOSS, rule(name)), *loop


def muon(average_state):
  """Alone, and with the momenta of matrices and Adam's moments averaged."""
  make = lambda r=0, client=0: reference.Muon(0.05, 0.8, 0.2, KERNEL, (4, 3))
  algorithm = fo.fed_avg(LOSS, rule("muon"), average_state=average_state)
  if not average_state:
    return algorithm, *averaging(make)

  def record(own):
    bias = slice(KERNEL.start)
    adamw = [own.t, *own.m[bias], *own.v[bias]]
    return np.array([*adamw, own.t, *own.m[KERNEL], *reference.COEFFICIENTS])

  loop = loop_of(reference.averaging_rule, make(), ("m", "v"), record)
  return algorithm, "params client", loop


def with_server_rule(name):
  """An algorithm that implies a rule of the server."""
  entry = ALGORITHMS[name]
  algorithm = entry.factory(LOSS, SGD, rule(entry.server_rule))
  sgd = lambda r, client: reference.Sgd(LR)
  return algorithm, *averaging(sgd, referee(entry.server_rule))


def fed_prox(name):
  make_rule = lambda r, client: referee(name)
  loop = loop_of(reference.fed_prox, make_rule, 0.7, reference.Sgd(0.7))
  return fo.fed_prox(LOSS, rule(name), optax.sgd(0.7), mu=0.7), "params", loop


def moon(rounds, masses):
  make_rule = lambda r, client: referee("delta_sgd")
  return reference.moon(MLP.problem, rounds, make_rule, 0.7, 0.4)


def step_decay():
  algorithm = fo.fed_avg(
    LOSS, lambda round: optax.sgd(LR * fo.step_decay(round, ROUNDS))
  )
  # Of seven rounds the fifth is the first after a half, the seventh is after
  # three quarters.
  factors = (1, 1, 1, 1, 0.1, 0.1, 0.01)
  return algorithm, *averaging(lambda r, client: reference.Sgd(LR * factors[r]))


def of_regularizer(name, psi, client_rate=rate):
  penalty, of_loop = PSI[psi]
  algorithm = ALGORITHMS[name].factory(
    LOSS, prox.kernels(penalty), client_rate, SERVER_RATE
  )
  of_step = (lambda r, k: rate(r)) if client_rate is rate else client_rate
  loop = getattr(reference, name.removesuffix("_osp"))
  osp = {"only_server_prox": name.endswith("_osp")}
  return algorithm, "model", loop_of(loop, of_loop, of_step, SERVER_RATE, **osp)


def scaffold(make=fo.scaffold, exact=False, **options):
  loop = loop_of_population(
    reference.scaffold, rate, SERVER_RATE, exact=exact, **options
  )
  options |= {"exact_control": True} if exact else {}
  return make(LOSS, rate, SERVER_RATE, **options), "params kept control", loop


def fed_adamw(whole=False, shared=False):
  constants = {"alpha": 0.6, "b1": 0.7, "b2": 0.9, "eps": 1e-3}
  slow = lambda r: 0.1 * rate(r)
  algorithm = fo.fed_adamw(
    LOSS, slow, **constants, weight_decay=0.2, whole_moments=whole,
    shared_count=shared,
  )  # fmt: skip
  blocks = slice(0, KERNEL.start), KERNEL
  loop = loop_of(
    reference.fed_adamw, slow, **constants, decay=0.2, blocks=blocks,
    by_entry=whole, shared_count=shared,
  )  # fmt: skip
  return algorithm, "params delta moment count", loop


def fed_lada(**options):
  constants = {"alpha": 0.3, "b1": 0.7, "b2": 0.9, "eps": 0.05, **options}
  algorithm = fo.fed_lada(LOSS, rate, SERVER_RATE, **constants)
  loop = loop_of(reference.fed_lada, rate, SERVER_RATE, **constants)
  return algorithm, "params delta moment", loop


def of_momenta(name):
  constants = MOMENTA[name]
  kwargs = {n: v for n, v in constants.items() if n in ("mu_s", "mu_l", "beta")}
  algorithm = ALGORITHMS[name].factory(LOSS, rate, ALPHA, **kwargs)
  loop = loop_of(reference.double_momentum, rate, ALPHA, **constants)
  return algorithm, "params momentum", loop


def fed_nova(rho=0.0, mu=0.0):
  algorithm = fo.fed_nova(LOSS, LR, momentum=rho or None, mu=mu or None)
  return algorithm, "params", loop_of(reference.fed_nova, LR, rho, mu)


def fed_speed(**options):
  loop = loop_of_population(reference.fed_speed, LR, **SPEED, **options)
  return fo.fed_speed(LOSS, LR, **SPEED, **options), "params kept", loop


def fed_exp(rounds, masses):
  steps = list(reference.fed_exp(PROBLEM, rounds, LR, 1e-3))
  assert max(rate for *_, rate in steps) > 1
  return steps


def fed_dyn(rounds, masses):
  for x, h, g in reference.fed_dyn(PROBLEM, rounds, LR, 0.1, population=masses):
    # The mean of all g_i, at any time.
    np.testing.assert_allclose(h, np.average(g, axis=0, weights=masses))
    yield x, h, g


def fed_per(share=None):
  """FedRep with that share of shared steps."""
  options, steps, make = {"personal": ["kernel"]}, None, fo.fed_per
  if share is not None:
    options["shared_steps"], make = share, fo.fed_rep
    steps = lambda num_steps: max(1, round(share * num_steps))
  kernel = np.arange(KERNEL.start, KERNEL.stop)
  loop = loop_of(reference.fed_per, LR, kernel, steps)
  return make(LOSS, SGD, **options), "shared kept", loop


def per_fed_avg(delta=None, own_batches=True):
  algorithm = fo.per_fed_avg(
    LOSS, rate, inner_learning_rate=0.4, hessian_difference=delta,
    own_batches=own_batches,
  )  # fmt: skip
  loop = loop_of(reference.per_fed_avg, rate, 0.4, delta, own_batches)
  return algorithm, "params", loop


def diloco(rounds, masses):
  rules = {}  # Clients keep their rules.
  make_rule = lambda r, client: rules.setdefault(
    client, reference.AdamW(0.05, **ADAMW)
  )
  server_rule = reference.Nesterov(0.7, 0.9)
  return reference.fed_avg(PROBLEM, rounds, make_rule, server_rule)


# name of an algorithm, and of a variant -> what `cases.check_loop` takes. Rules
# that look at the loss, or at a second gradient, are here; the others by
# themselves are in rules/test_rules_registry.py.
LOOPS = {
  "fed_avg, sps": with_client_rule("sps"),
  "fed_avg, delta_sgd": with_client_rule("delta_sgd"),
  "fed_avg, delta_sgd_reused": with_client_rule("delta_sgd_reused"),
  "fed_avg, step decay": step_decay(),
  "fed_avg, muon": muon(average_state=False),
  "fed_avg, muon averaged": muon(average_state=True),
  "fed_prox, sps": fed_prox("sps"),
  "fed_prox, delta_sgd": fed_prox("delta_sgd"),
  "moon": (
    fo.moon(
      MLP.loss_fn, MLP.features_fn, rule("delta_sgd"), mu=0.7, temperature=0.4
    ),
    "params",
    moon,
  ),
  **{
    name: with_server_rule(name)
    for name, entry in ALGORITHMS.items()
    if entry.server_rule
  },
  "fed_mid": of_regularizer("fed_mid", "l1"),
  "fed_mid_osp": of_regularizer("fed_mid_osp", "l1", LR),
  "fed_mid_osp, nuclear": of_regularizer("fed_mid_osp", "nuclear"),
  "fed_dual_avg": of_regularizer("fed_dual_avg", "l1"),
  "fed_dual_avg_osp": of_regularizer("fed_dual_avg_osp", "l1", LR),
  "fed_dual_avg, l2_ball": of_regularizer("fed_dual_avg", "l2_ball"),
  "fed_dual_avg, l1_ball": of_regularizer("fed_dual_avg", "l1_ball"),
  "fed_avg_subgradient": (
    fo.fed_avg_subgradient(LOSS, prox.kernels(PSI["l1"][0]), LR, SERVER_RATE),
    "params",
    loop_of(reference.fed_avg_subgradient, 0.12, KERNEL, LR, SERVER_RATE),
  ),
  "scaffold": scaffold(),
  "scaffold, exact": scaffold(exact=True),
  "fed_gamma": scaffold(fo.fed_gamma, rho=0.2),
  "local_sgd": (
    fo.local_sgd(LOSS, rate),
    *averaging(lambda r, client: reference.Sgd(rate(r))),
  ),
  "minibatch_sgd": (
    fo.minibatch_sgd(LOSS, rate),
    "params",
    loop_of(reference.minibatch_sgd, rate),
  ),
  **{name: of_momenta(name) for name in MOMENTA},
  "fed_dyn": (fo.fed_dyn(LOSS, SGD, alpha=0.1), "params h kept", fed_dyn),
  "fed_nova, momentum": fed_nova(rho=0.8),
  "fed_nova, proximal": fed_nova(mu=0.7),
  "fed_nova, both": fed_nova(rho=0.3, mu=1.5 / LR),
  "fed_cm": (
    fo.fed_cm(LOSS, rate, SERVER_RATE, alpha=0.2),
    "params delta",
    loop_of(reference.fed_cm, rate, SERVER_RATE, 0.2),
  ),
  "mo_fed_sam": (
    fo.mo_fed_sam(LOSS, rate, SERVER_RATE, rho=0.2, beta=0.3),
    "params delta",
    loop_of(reference.fed_cm, rate, SERVER_RATE, 0.3, rho=0.2),
  ),
  "fed_exp": (fo.fed_exp(LOSS, SGD, eps=1e-3), "params model", fed_exp),
  "mime_lite": (
    fo.mime_lite(LOSS, rate, beta=0.8),
    "params base.ema",
    loop_of(reference.mime_lite, rate, 0.8),
  ),
  "fed_sam": (
    fo.fed_sam(LOSS, SGD, rho=0.3),
    *averaging(lambda r, client: reference.Sam(LR, 0.3)),
  ),
  "fed_speed": fed_speed(),
  "fed_speed, a multiple": fed_speed(normalized=False),
  "fed_speed, all duals": fed_speed(all_duals=True),
  "fed_acg": (
    fo.fed_acg(LOSS, SGD, lam=0.6, beta=0.7),
    "params momentum",
    loop_of(reference.fed_acg, LR, 0.6, 0.7),
  ),
  "fed_lesam": (
    fo.fed_lesam(LOSS, SGD, optax.sgd(SERVER_RATE), rho=0.2),
    "params kept",
    loop_of(reference.fed_lesam, LR, 0.2, M, SERVER_RATE),
  ),
  "fed_lesam, last step": (
    fo.fed_lesam(LOSS, SGD, optax.sgd(SERVER_RATE), rho=0.2, last_step=True),
    "params step",
    loop_of(
      reference.fed_lesam_last_step,
      LR,
      0.2,
      (slice(0, KERNEL.start), KERNEL),
      SERVER_RATE,
    ),
  ),
  "fed_dc": (
    fo.fed_dc(LOSS, rate, alpha=0.1),
    "params drift control kept",
    loop_of_population(reference.fed_dc, rate, 0.1),
  ),
  "fed_smoo": (
    fo.fed_smoo(LOSS, rate, lam=0.3, rho=0.2),
    "params ahead kept",
    loop_of_population(reference.fed_smoo, rate, 0.3, 0.2),
  ),
  "fed_adamw": fed_adamw(),
  "fed_adamw, whole moments": fed_adamw(whole=True),
  "fed_adamw, shared count": fed_adamw(shared=True),
  "fed_lada": fed_lada(),
  "fed_lada, Adam": fed_lada(amsgrad=False),
  "diloco": (fo.diloco(LOSS, optax.adamw(0.05, **ADAMW)), "params", diloco),
  "ditto": (
    fo.ditto(LOSS, SGD, lam=0.4),
    "params kept",
    loop_of(reference.ditto, LR, 0.4),
  ),
  "p_fed_me": (
    fo.p_fed_me(
      LOSS,
      rate,
      optax.sgd(0.8),
      lam=2.0,
      inner_learning_rate=0.2,
      inner_steps=4,
    ),
    "params kept",
    loop_of(reference.p_fed_me, rate, 0.8, 2.0, 0.2, 4),
  ),
  "per_fed_avg": per_fed_avg(),
  "per_fed_avg, one batch": per_fed_avg(own_batches=False),
  "per_fed_avg, Hessian-free": per_fed_avg(0.5),
  "per_fed_avg, Hessian-free, one batch": per_fed_avg(0.5, False),
  "fed_per": fed_per(),
  "fed_rep": fed_per(0.6),
  "fed_rep, one step": fed_per(1 / 11),
}
# One of each kind, and some that weigh clients that are not there.
IN_SINGLE = (
  "moon", "fed_dual_avg, l1_ball", "scaffold", "domo", "fed_smoo",
  "fed_avg, muon averaged", "per_fed_avg, Hessian-free",
)  # fmt: skip
# What differs by an option from a method that is there too.
VARIANTS = (
  "fed_avg, delta_sgd_reused", "fed_avg, step decay", "fed_avg, muon",
  "fed_avg, muon averaged", "fed_prox, sps", "fed_mid_osp, nuclear",
  "fed_dual_avg, l2_ball", "scaffold, exact", "fed_avg_sm", "fed_avg_lm",
  "fed_avg_lm_z", "fed_avg_slm_z", "fed_nova, momentum", "fed_nova, proximal",
  "fed_speed", "fed_speed, all duals", "fed_lesam, last step",
  "fed_adamw, whole moments", "fed_adamw, shared count", "fed_lada, Adam",
  "per_fed_avg", "per_fed_avg, one batch",
  "per_fed_avg, Hessian-free, one batch", "fed_rep, one step",
)  # fmt: skip


# Of these others hold what differs: rules/test_rules_registry.py the rules by
# themselves; below single precision and traces; fed_dual_avg in the ball;
# fed_mid_osp, fed_rep and mo_fed_sam, of which these are a part.
COVERED_ELSEWHERE = (
  "fed_avg_m", "fed_yogi", "fed_adagrad", "scaffold", "fed_avg, delta_sgd",
  "fed_dual_avg", "fed_per", "fed_cm", "fed_avg, sps", "fed_mid",
)  # fmt: skip


# File -> the algorithms that are compared with their loops there.
LOOPS_ELSEWHERE = {
  "test_loops.py": "prox_skip",
  "test_centralized.py": "centralized local",
  "test_variance_reduction.py": "minibatch_sarah bvr_l_sgd",
  "test_asynchronous.py": "fed_buff fed_async ca2fl fadas",
  "../arrays/test_running_statistics.py": "fed_bn",
  "../test_lora.py": "fed_ex_lora",
}


def test_every_algorithm_has_a_loop():
  here, names = pathlib.Path(__file__).parent, set()
  for file, others in LOOPS_ELSEWHERE.items():
    text = (here / file).read_text()
    assert all(re.search(rf"\b{n}[(,]", text) for n in others.split())
    names |= set(others.split())
  assert names | {name.partition(",")[0] for name in LOOPS} == set(ALGORITHMS)


def check(name, **options):
  task = MLP if name == "moon" else cases.TASK
  cases.check_loop(*LOOPS[name], task=task, **options)


@pytest.mark.parametrize("name", LOOPS)
@pytest.mark.slow_cases(*VARIANTS, *COVERED_ELSEWHERE)
@pytest.mark.quick_cases("moon", "fed_dual_avg")
def test_equals_the_loop(name):
  check(name)


@pytest.mark.parametrize("name", IN_SINGLE)
@pytest.mark.default_cases("scaffold")
def test_single_precision_and_equal_weights_are_near_the_loop(name):
  check(name, case="uniform", x64=False)


@pytest.mark.slow
def test_without_its_own_term_it_is_scaffold():
  """FedGamma without perturbations, and FedDC without a penalty."""
  with jax.enable_x64(True):
    scaffold_, *others = (
      cases.flat(cases.TASK.simulate(make, rounds=3, **cases.FAULTY).params)
      for make in (
        fo.scaffold(LOSS, LR),
        fo.fed_gamma(LOSS, LR, rho=0.0),
        fo.fed_dc(LOSS, LR, alpha=0.0),
      )
    )
  for other in others:
    np.testing.assert_allclose(other, scaffold_, rtol=1e-10)


# A field of Delta-SGD's state -> what the referee calls it.
TRACES = {
  "step_size": "step_sizes",
  "smoothness_step": "smoothness_branches",
  "growth_step": "growth_branches",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["delta_sgd", "delta_sgd_reused"])
def test_traces_of_delta_sgd_are_those_of_the_loop(name):
  """Step sizes and both branches, client by client."""
  with jax.enable_x64(True):
    rounds = cases.draw(4, **cases.PLAIN)
    traced = cases.TASK.simulate(
      fo.fed_avg(LOSS, rule(name)), rounds=4, trace=tuple(TRACES), **cases.PLAIN
    ).traces
  make_rule = lambda r, client: referee(name)
  looped = reference.fed_avg(PROBLEM, rounds, make_rule)
  of_loops = [traces for _, traces in looped]
  for field, of_loop in TRACES.items():
    assert traced[field].shape == (4, 5, 8)  # [R, C, K]
    for r, i in np.ndindex(4, 5):
      expected = np.array(getattr(of_loops[r][i].rule, of_loop))
      if field != "step_size":  # No branch decides the first step.
        expected[:1] = np.inf
      client_trace, padding = np.split(traced[field][r, i], [len(expected)])
      np.testing.assert_allclose(client_trace, expected, rtol=1e-9)
      assert np.isnan(padding).all()
  # Each branch decides some of the steps.
  assert (traced["smoothness_step"] < traced["growth_step"]).any()
  assert (traced["smoothness_step"] > traced["growth_step"]).any()


@pytest.mark.parametrize("number", [1.5, 2.5, 1000.5])
def test_halves_of_counts_go_up_however_a_mean_is_rounded(number):
  for mean in (number, np.nextafter(np.float32(number), np.float32(0))):
    assert rounded_like(jnp.float32(mean), jnp.int32(0)) == number + 0.5
  assert rounded_like(jnp.float32(number - 0.01), jnp.int32(0)) == number - 0.5
  whole = 1e6 + number // 1
  assert rounded_like(jnp.float32(whole), jnp.int32(0)) == whole


@pytest.mark.slow
def test_an_empty_place_of_a_cohort_has_no_trace():
  """Padding takes steps where all clients take equally many."""
  traced = cases.TASK.simulate(
    fo.fed_avg(LOSS, fo.delta_sgd()),
    rounds=4,
    trace=("step_size",),
    sampler=fo.samplers.poisson(2.0),
    cohort_size=5,
    batch_size=4,
    local_steps=3,
  ).traces["step_size"]  # [R, C, K]
  is_empty = np.isnan(traced).all(axis=-1)
  assert 0 < is_empty.sum() < is_empty.size
  assert np.isfinite(traced[~is_empty]).all()


@pytest.mark.parametrize("num_steps", [0, 1, 2, 3, 7])
@pytest.mark.parametrize("pull", [0.0, 0.5, 2.5 - 1e-6, 2.5])
def test_fed_nova_never_divides_by_less_than_1(pull, num_steps):
  """With rho 0.5 and eta mu 2.5 the two weights of two steps are -1 and 1."""
  reach = effective_steps(jnp.int32(num_steps), 0.5, pull, 1.0)
  effect, buffers = np.zeros(num_steps), np.zeros(num_steps)
  for k in range(num_steps):
    buffers = 0.5 * buffers + np.eye(num_steps)[k] - pull * effect
    effect = effect + buffers
  np.testing.assert_allclose(reach, np.abs(effect).sum(), rtol=1e-5)
  assert num_steps == 0 or reach >= 1


@pytest.mark.parametrize(
  "name",
  ["fed_cm", "mo_fed_sam", "fed_nova", "fed_dc", "fed_adamw", "fed_lada"],
)
@pytest.mark.default_cases("fed_nova")
def test_a_cohort_without_examples_moves_nothing(name):
  """Some divide by the number of steps of the cohort, here 0."""
  result = cases.TASK.simulate(
    ALGORITHMS[name].factory(LOSS, LR), rounds=2, batch_size=4, cohort_size=1,
    sampler=lambda key, round: jnp.array([M - 1]), weighting="uniform",
  )  # fmt: skip
  np.testing.assert_array_equal(cases.flat(result.params), np.float32(cases.X0))
  assert np.isfinite(cases.flat(result.state)).all()


def test_prox_skip():
  """All clients; in some rounds the coin does not fall."""
  p, num_steps, rtol = 0.3, 3, 1e-10
  settings = {"batch_size": 4, "local_steps": num_steps, "cohort_size": M}
  coin = jax.jit(
    lambda r: jax.random.geometric(
      cases.cohort(r, **settings).key, jnp.float32(p)
    )
  )
  with jax.enable_x64(True):
    _, *states_after = cases.run(fo.prox_skip(LOSS, LR, p=p), **settings)
    lengths = [int(coin(r)) for r in range(ROUNDS)]
    rounds = cases.draw(ROUNDS, **settings)

  def in_order(drawn):
    order = np.argsort(drawn.clients)
    return reference.Round(*([field[i] for i in order] for field in drawn))

  rounds = list(map(in_order, rounds))
  looped = reference.prox_skip(PROBLEM, rounds, LR, p, lengths)
  xs, points, h = zip(*looped, strict=True)
  states, client_states = zip(*states_after, strict=True)
  cases.assert_close([state.params for state in states], xs, rtol)
  meetings = [0, *(int(state.meetings) for state in states)]
  have_met = (np.diff(meetings) > 0).tolist()
  assert have_met == [length <= num_steps for length in lengths]
  assert {True, False} == set(have_met)
  for r, (state, client) in enumerate(zip(states, client_states, strict=True)):
    # A client learns of a meeting at the start of the next round.
    x, control = cases.flat(client.params, 1), cases.flat(client.control, 1)
    mean = cases.flat(state.params)
    if have_met[r]:
      control, x = control + p / LR * (mean - x), np.tile(mean, (M, 1))
    np.testing.assert_allclose(x, points[r], 0, 10 * rtol)
    np.testing.assert_allclose(control, h[r], 0, 100 * rtol)
    mean = reference.mean(control, rounds[r].weights)
    np.testing.assert_allclose(mean, 0, atol=100 * rtol)
