"""The curse of primal averaging: density of clients' solutions and the mean.

  python -m experiments.fco.primal_averaging --figures_dir=figures

Soft thresholding makes each client's solution sparse, each with zeros of its
own; their primal mean (FedMiD) is dense, while the primal image of their dual
mean (FedDualAvg) is sparse.
"""

import pathlib

import jax
import jax.numpy as jnp
import numpy as np
from absl import app, flags

import fedjax_opt as fo
from experiments.tasks import composite
from fedjax_opt import evaluation, plots, prox, rules
from fedjax_opt.metrics import History

FLAGS = flags.FLAGS
flags.DEFINE_string("figures_dir", "runs/fco/figures", "Folder of pictures.")
flags.DEFINE_integer("rounds", 500, "Rounds.")
flags.DEFINE_string("variant", "II", "Of lasso.")
flags.DEFINE_float("strength", 0.1, "Of l1.")
flags.DEFINE_float("client_lr", 0.001, "Clients' rate.")

THRESHOLD = 1e-2


def watched(algorithm: fo.Algorithm, local_solution) -> fo.Algorithm:
  """The algorithm, also keeping how dense the clients' solutions are.

  Args:
    algorithm: to be watched.
    local_solution: `(worker, state) -> params`, what a client arrives at.
  """

  def init(params, num_clients):
    return algorithm.init(params, num_clients), jnp.zeros([])

  def round(state, cohort):
    def one_client(worker, broadcast):
      return density(local_solution(worker, broadcast))

    densities = cohort.each(one_client, broadcast=state[0])
    return algorithm.round(state[0], cohort), jnp.mean(densities)

  def params(state):
    return {"server": algorithm.params(state[0]), "clients": state[1]}

  return fo.Algorithm(init, round, params)


def density(params) -> jax.Array:
  return evaluation.density(params["kernel"], THRESHOLD)


def evaluate(params, data, test) -> dict[str, jax.Array]:
  del data, test
  return {
    "server": density(params["server"]),
    "clients": params["clients"],
  }


def main(argv: list[str]) -> None:
  del argv
  task = composite.lasso(
    {"variant": FLAGS.variant, "zero_threshold": THRESHOLD, "eval_every": 1}
  )
  psi = prox.kernels(prox.l1(FLAGS.strength))
  rate = FLAGS.client_lr

  def mirror_solution(worker, state):
    rule = rules.mirror_step(rate, psi)
    return worker.descend(task.loss_fn, rule, state.params)

  def dual_solution(worker, state):
    rule = rules.dual_averaging(rate, psi)
    start = rules.DualAveragingState(state.dual, state.elapsed)
    params = psi.prox(state.dual, state.elapsed)
    return worker.descend_from(task.loss_fn, rule, params, start)[0]

  contenders = {
    "FedMiD": (fo.fed_mid, mirror_solution),
    "FedDualAvg": (fo.fed_dual_avg, dual_solution),
  }
  densities, points = [], []
  for name, (factory, local_solution) in contenders.items():
    result = fo.simulate(
      watched(factory(task.loss_fn, psi, rate), local_solution),
      task.init(jax.random.key(0)),
      task.clients,
      rounds=FLAGS.rounds,
      cohort_size=10,
      batch_size=10,
      evaluate=evaluate,
      eval_every=5,
    )
    # Clients have no solution before the first round.
    rounds = result.history.rounds[1:]
    for who in ("server", "clients"):
      values = result.history.metrics[who][0, 1:]
      densities.append(values)
      points.append({"solution": f"{name}, {who}"})
      print(
        f"{name}, {who}: density {values[-1]:.3f} after {rounds[-1]} rounds"
      )
  folder = pathlib.Path(FLAGS.figures_dir)
  folder.mkdir(parents=True, exist_ok=True)
  plots.curves(
    History(rounds, {"density": np.stack(densities)}),
    points,
    folder / "primal_averaging.png",
    panels=["density"],
    title=f"lasso {FLAGS.variant}, strength {FLAGS.strength:g}",
  )


if __name__ == "__main__":
  app.run(main)
