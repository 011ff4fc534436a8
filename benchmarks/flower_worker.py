"""FedAvg rounds in Flower's simulation engine, its clients in PyTorch.

Flower's own `FedAvg` strategy and `run_simulation`, which hands clients to Ray:
one actor for each core, with one thread. The clients' model, examples and steps
are those of torch_worker.py. Each turn is a simulation of its own, whose first
round does not count: so the start of Ray and of its processes is not in its
time.
"""

import os

# Nothing is told to anyone about these runs.
os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
# Of the same priority as the others; Ray gives its actors a low one.
os.environ.setdefault("RAY_worker_niceness", "0")

import functools
import time
from collections.abc import Callable

import shared
import torch_worker
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation


class AllReply(FedAvg):
  """FedAvg that does not go on without a client; Flower only logs it."""

  def aggregate_train(self, server_round, replies):
    replies = list(replies)
    for reply in replies:
      if reply.has_error():
        raise RuntimeError(reply.error.reason)
    return super().aggregate_train(server_round, replies)


def simulate(
  problem: Callable[[], torch_worker.Problem],
  num_clients: int,
  share: float,
  serve: Callable,
) -> None:
  """Runs a function as Flower's server.

  Args:
    problem: makes it; each of Ray's actors calls this for each client.
    num_clients: in the population.
    share: of the clients in a round.
    serve: is given `(weights, rounds) -> weights`.
  """
  clients, server = ClientApp(), ServerApp()

  @clients.train()
  def train(message, context):
    ours = problem()  # First, as Flower asks whether PyTorch is imported.
    client = context.node_config["partition-id"]
    weights = message.content["arrays"].to_torch_state_dict()
    reply = {
      "arrays": ArrayRecord(ours.train_one_client(client, weights)),
      "metrics": MetricRecord({"num-examples": len(ours.clients[client][0])}),
    }
    return Message(content=RecordDict(reply), reply_to=message)

  @server.main()
  def main(grid, context):
    strategy = AllReply(
      fraction_train=share,
      fraction_evaluate=0.0,
      min_available_nodes=num_clients,
    )

    def run(weights, rounds):
      result = strategy.start(grid, ArrayRecord(weights), rounds)
      return result.arrays.to_torch_state_dict()

    serve(run)

  run_simulation(
    server,
    clients,
    num_supernodes=num_clients,
    backend_config={
      "init_args": {"num_cpus": shared.num_cores()},
      "client_resources": {"num_cpus": 1, "num_gpus": 0},
    },
  )


@shared.program
def fed_avg(workload: shared.Workload) -> shared.RunRounds:
  """All clients in each round."""
  problem = functools.partial(torch_worker.make_problem, workload)

  def run_rounds(rounds):
    answer = {}

    def serve(run):
      weights = run(problem().model.state_dict(), 1)
      start = time.perf_counter()
      torch_worker.check_finite(run(weights, rounds))
      answer["seconds"] = time.perf_counter() - start

    simulate(problem, workload.num_clients, 1.0, serve)
    return answer

  return run_rounds
