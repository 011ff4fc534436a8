"""Server steps in FLSim, the program of FedBuff's authors (flsim 0.1.0).

FLSim's own `AsyncTrainer`, aggregators, event generator and durations, with
users, batches and models that are handed to it ready-made.

  python benchmarks/flsim_worker.py tests/schedules/flsim.npz

records what tests/schedules/test_flsim.py compares: a small problem, and for
each of `RUNS` the events and the server's weights after each of its steps. The
Python needs `pip install torch pandas scikit-learn hydra-core omegaconf tqdm`
and `pip install --no-deps flsim opacus opt-einsum`.
"""

import dataclasses
import os
import sys
from unittest import mock

os.environ.setdefault("TQDM_DISABLE", "1")

import numpy as np
import shared
import torch
import torch_worker

plain = dataclasses.dataclass


def hashable(cls=None, **options):
  """Configurations as defaults of fields must hash since Python 3.11."""
  if cls is None:
    return lambda cls: hashable(cls, **options)
  if cls.__module__.startswith("flsim."):
    options["unsafe_hash"] = True
  return plain(cls, **options)


with mock.patch.object(dataclasses, "dataclass", hashable):
  from flsim.clients.base_client import ClientConfig
  from flsim.optimizers import async_aggregators as aggregators
  from flsim.optimizers.local_optimizers import LocalOptimizerSGDConfig
  from flsim.trainers.async_trainer import AsyncTrainer
  from flsim.utils.async_trainer import async_staleness_weights as staleness
  from flsim.utils.async_trainer import async_user_selector as selector
  from flsim.utils.async_trainer import training_event_generator as events
  from flsim.utils.async_trainer.async_weights import AsyncWeightConfig
  from flsim.utils.simple_batch_metrics import FLBatchMetrics
  from flsim.utils.timing import training_duration_distribution as durations


class Model:
  """FLSim's interface of a model."""

  def __init__(self, module, loss_fn):
    self.module, self.loss_fn = module, loss_fn

  def fl_get_module(self):
    return self.module

  def fl_forward(self, batch):
    x, y = batch
    fields = dict.fromkeys(["predictions", "targets", "model_inputs"])
    loss = self.loss_fn(self.module(x), y)
    return FLBatchMetrics(loss=loss, num_examples=len(y), **fields)


class User(list):
  """FLSim's interface of a client: its batches."""

  train_data, num_train_batches = list.__iter__, list.__len__

  def num_train_examples(self):
    return sum(len(y) for _, y in self)


class Users(list):
  """FLSim's interface of all clients."""

  num_train_users, get_train_user = list.__len__, list.__getitem__


class Trainer(AsyncTrainer):
  """FLSim's, which also keeps who arrived, and the weights of each step."""

  def __init__(self, **settings):
    super().__init__(**settings)
    self.arrived, self.models = [], []

  def train_and_update_global_model(self, client):
    schedule, version = client.training_schedule, self.aggregator.global_seqnum
    times = float(schedule.start_time), float(schedule.end_time)
    user = client.user_info.user_index
    self.arrived.append((user, *times, client.model_seqnum, version))
    super().train_and_update_global_model(client)

  def _global_update_done(self):
    super()._global_update_done()
    leaves = self.global_model().fl_get_module().state_dict().values()
    leaves = [leaf.numpy(force=True).ravel() for leaf in leaves]
    self.models.append(np.concatenate(leaves))


def make_trainer(model, aggregator, rate, concurrency, work=1, **settings):
  """One user starts a second, in the mean; none is asked who is away."""
  half_normal = durations.PerUserHalfNormalDurationDistributionConfig(
    training_duration_min=0.1, training_duration_sd=1.25 * concurrency
  )
  starts = events.PoissonAsyncTrainingStartTimeDistrConfig(training_rate=1.0)
  weight = staleness.PolynomialStalenessWeightConfig(exponent=0.5)
  client = ClientConfig(optimizer=LocalOptimizerSGDConfig(lr=rate), epochs=work)
  return Trainer(
    model=model,
    aggregator=aggregator,
    client=client,
    async_weight=AsyncWeightConfig(staleness_weight=weight),
    async_user_selector_type=selector.AsyncUserSelectorType.ROUND_ROBIN,
    training_event_generator=events.AsyncTrainingEventGeneratorConfig(
      training_start_time_distribution=starts,
      duration_distribution_generator=half_normal,
    ),
    do_eval=False,
    report_train_metrics=False,
    **settings,
  )


def train(trainer: Trainer, users: Users, epochs: int) -> None:
  """An epoch has as many arrivals as there are users."""
  trainer.cfg.epochs = epochs
  trainer.train(users, None, len(users))


FED_BUFF = aggregators.FedAvgWithLRFedBuffAggregatorConfig
FED_ASYNC = aggregators.FedAvgWithLRAsyncAggregatorConfig
MIXING = aggregators.AsyncAggregationType.fed_async_aggregation


@shared.program
def fed_buff(
  workload: shared.Workload, buffer: int, concurrency: int
) -> shared.RunRounds:
  """What is timed; batches are not shuffled again."""
  torch.set_num_threads(shared.num_cores())
  problem = torch_worker.make_problem(workload)
  split = lambda x: x.split(workload.batch_size)
  users = Users(
    User(zip(split(x), split(y), strict=True)) for x, y in problem.clients
  )
  trainer = make_trainer(
    Model(problem.model, problem.loss_fn),
    FED_BUFF(lr=1 / buffer, buffer_size=buffer),
    workload.learning_rate,
    concurrency,
  )

  def run_rounds(rounds):
    """An epoch at least."""
    train(trainer, users, rounds * buffer // len(users))
    torch_worker.check_finite(problem.model.state_dict())

  return run_rounds


# What is recorded: name -> aggregator, settings of the trainer, epochs.
RUNS = {
  "buffer": (FED_BUFF(lr=0.25, buffer_size=3), {}, 5),
  "restarts": (FED_BUFF(lr=0.25, buffer_size=5), {"max_staleness": 2.0}, 8),
  "mixing": (FED_ASYNC(lr=0.5, aggregation_type=MIXING), {}, 2),
}


def record(path: str, clients: int = 24, labels: int = 3) -> None:
  """Writes the problem, and {run}_events [E, 5] and {run}_models [T, d].

  Columns of events: client, start, end, version it started from, version of
  the server when it arrived. One batch has all of a client's examples.
  """
  rng = np.random.default_rng(0)
  sizes = rng.integers(4, 10, clients)
  x = rng.standard_normal((sizes.sum(), 3), np.float32)
  y = rng.integers(0, labels, sizes.sum())
  arrays = {"x": x, "y": y.astype(np.int32), "sizes": sizes}
  tensors = (torch.from_numpy(array).split(sizes.tolist()) for array in (x, y))
  users = Users(User([pair]) for pair in zip(*tensors, strict=True))
  for name, (aggregator, settings, epochs) in RUNS.items():
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002, FLSim draws from it.
    module = torch.nn.Linear(3, labels)
    for leaf in ("weight", "bias"):
      arrays[leaf] = getattr(module, leaf).detach().numpy().copy()
    model = Model(module, torch.nn.functional.cross_entropy)
    trainer = make_trainer(
      model, aggregator, rate=0.5, concurrency=5, work=2, **settings
    )
    train(trainer, users, epochs)
    arrays[f"{name}_events"] = np.array(trainer.arrived, np.float32)
    arrays[f"{name}_models"] = np.array(trainer.models)
  np.savez_compressed(path, **arrays)


if __name__ == "__main__":
  record(sys.argv[1])
