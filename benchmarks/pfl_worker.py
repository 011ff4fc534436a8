"""FedAvg rounds in pfl-research's simulation, its models in PyTorch.

pfl's own `FederatedAveraging` and `SimulatedBackend` in one process; the
clients' models and examples are those of torch_worker.py. No metrics are
evaluated. A turn is a call of `FederatedAveraging.run`.
"""

import logging

import torch
import torch_worker
import worker
import workloads
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
from pfl.model.pytorch import PyTorchModel
from torch import nn

logging.disable(logging.INFO)


class WithLoss(nn.Module):
  """A model as pfl takes one."""

  def __init__(self, model: nn.Module, loss_fn):
    super().__init__()
    self.model, self._loss_fn = model, loss_fn

  def loss(self, x, y, eval=False):
    self.train(not eval)
    return self._loss_fn(self.model(x), y)

  def metrics(self, x, y, eval=True):
    return {}


def build_fed_avg(workload: workloads.Workload) -> worker.RunRounds:
  torch.set_num_threads(worker.num_cores())
  problem = torch_worker.make_problem(workload)
  module = WithLoss(problem.model, problem.loss_fn)
  model = PyTorchModel(
    module,
    torch.optim.SGD,
    torch.optim.SGD(module.parameters(), 1.0),
  )
  users = list(range(workload.num_clients))
  make_dataset = lambda user: Dataset(raw_data=problem.clients[user])
  data = FederatedDataset(
    make_dataset, get_user_sampler("minimize_reuse", users)
  )
  backend = SimulatedBackend(training_data=data, val_data=data)
  train = NNTrainHyperParams(
    local_batch_size=workload.batch_size,
    local_num_epochs=1,
    local_learning_rate=workload.learning_rate,
  )

  def run_rounds(rounds):
    FederatedAveraging().run(
      NNAlgorithmParams(
        central_num_iterations=rounds,
        evaluation_frequency=rounds + 1,
        train_cohort_size=workload.num_clients,
        val_cohort_size=0,
      ),
      backend,
      model,
      train,
      NNEvalHyperParams(local_batch_size=workload.batch_size),
      send_metrics_to_platform=False,
    )
    torch_worker.check_finite(module.state_dict())

  return run_rounds


if __name__ == "__main__":
  worker.serve({"fed_avg": build_fed_avg}, ["pfl", "torch"])
