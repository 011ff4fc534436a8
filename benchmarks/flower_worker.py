"""FedAvg rounds in Flower's simulation engine, its clients in PyTorch.

Flower's own `FedAvg` strategy and `run_simulation`, which hands clients to Ray:
one actor for each core, with one thread. The clients' model, examples and steps
are those of torch_worker.py. The simulation is started once, with the first
rounds, and then waits: so the start of Ray and of its processes is not in the
time of the later rounds.
"""

import atexit
import os

# Nothing is told to anyone about these runs.
os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
# Of the same priority as the others; Ray gives its actors a low one.
os.environ.setdefault("RAY_worker_niceness", "0")

import queue
import threading

import shared
import torch_worker
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation


def make_client_app(workload: shared.Workload) -> ClientApp:
  """Takes its examples from the pool, which each of Ray's actors has once."""
  app = ClientApp()

  @app.train()
  def train(message, context):
    problem = torch_worker.make_problem(workload)
    server = message.content["arrays"].to_torch_state_dict()
    problem.train_one_client(context.node_config["partition-id"], server)
    reply = {
      "arrays": ArrayRecord(problem.model.state_dict()),
      "metrics": MetricRecord({"num-examples": workload.examples_per_client}),
    }
    return Message(content=RecordDict(reply), reply_to=message)

  return app


class AllReply(FedAvg):
  """FedAvg that does not go on without a client; Flower only logs it."""

  def aggregate_train(self, server_round, replies):
    replies = list(replies)
    for reply in replies:
      if reply.has_error():
        raise RuntimeError(reply.error.reason)
    if len(replies) < self.min_train_nodes:
      raise RuntimeError(f"{len(replies)} of {self.min_train_nodes} replies")
    return super().aggregate_train(server_round, replies)


class Simulation:
  """Flower's simulation in a thread of its own, which waits for rounds."""

  def __init__(self, workload: shared.Workload):
    self._requests, self._answers = queue.Queue(), queue.Queue()
    self._workload = workload
    self._thread = threading.Thread(target=self._simulate)
    self._thread.start()

  def run_rounds(self, rounds: int) -> None:
    self._requests.put(rounds)
    error = self._answers.get()
    if error is not None:
      raise error

  def close(self) -> None:
    self._requests.put(None)
    self._thread.join()

  def _simulate(self):
    server_app = ServerApp()
    server_app.main()(self._serve)
    try:
      run_simulation(
        server_app,
        make_client_app(self._workload),
        num_supernodes=self._workload.num_clients,
        backend_config={
          "init_args": {"num_cpus": shared.num_cores()},
          "client_resources": {"num_cpus": 1, "num_gpus": 0},
        },
      )
    except BaseException as error:
      while error.__cause__ is not None:  # Flower only says that it ends.
        error = error.__cause__
      self._answers.put(error)

  def _serve(self, grid, context):
    """What Flower calls as the server."""
    clients = self._workload.num_clients
    strategy = AllReply(
      fraction_evaluate=0.0,
      min_train_nodes=clients,
      min_available_nodes=clients,
    )
    model = torch_worker.make_problem(self._workload).model
    arrays = ArrayRecord(model.state_dict())
    while (rounds := self._requests.get()) is not None:
      result = strategy.start(grid, arrays, rounds, timeout=ROUND_TIMEOUT)
      arrays = result.arrays
      torch_worker.check_finite(arrays.to_torch_state_dict())
      self._answers.put(None)


ROUND_TIMEOUT = 600.0  # seconds
RUNNING: list[Simulation] = []


def build_fed_avg(workload: shared.Workload) -> shared.RunRounds:
  simulation = Simulation(workload)
  RUNNING.append(simulation)
  return simulation.run_rounds


if __name__ == "__main__":
  try:
    shared.serve({"fed_avg": build_fed_avg}, ["flwr", "ray", "torch"])
  finally:
    for simulation in RUNNING:
      simulation.close()
    # Where Ray could not start, Flower's server still waits for its replies,
    # and Python would wait for Flower; what Ray did start, its exit ends.
    atexit._run_exitfuncs()
    os._exit(0)
