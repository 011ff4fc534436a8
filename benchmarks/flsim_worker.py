"""Server steps in FLSim; tools/flsim_record.py says what it needs."""

import shared
import torch
import torch_worker

from tools import flsim_record as flsim


@shared.program
def fed_buff(
  workload: shared.Workload, buffer: int, concurrency: int
) -> shared.RunRounds:
  """What is timed; batches are not shuffled again."""
  torch.set_num_threads(shared.num_cores())
  problem = torch_worker.make_problem(workload)
  split = lambda x: x.split(workload.batch_size)
  users = flsim.Users(
    flsim.User(zip(split(x), split(y), strict=True)) for x, y in problem.clients
  )
  trainer = flsim.make_trainer(
    flsim.Model(problem.model, problem.loss_fn),
    flsim.FED_BUFF(lr=1 / buffer, buffer_size=buffer),
    workload.learning_rate,
    concurrency,
  )

  def run_rounds(rounds):
    """An epoch at least."""
    flsim.train(trainer, users, rounds * buffer // len(users))
    torch_worker.check_finite(problem.model.state_dict())

  return run_rounds
