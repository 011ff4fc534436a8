"""What runs a simulation; `Simulator` in simulator.py is the way through it.

What is settled before anything runs:

  run_options.py    the options of a run, as they are given
  config.py         the same, resolved: `Config`
  batch_plan.py     how many local steps clients take
  chunks.py         how many clients are vectorized at a time
  clock.py          the timetables of a schedule, as the input of rounds
  client_work.py    the work of clients, from which a schedule has durations
  inputs.py         checks of arguments that are no options; data of all seeds
  initial_state.py  the state before the first round, and how it is made
  resolved_run.py   a run with its model: all of these together
  identity.py       what a run must have to go on with another one

While it runs, on the host:

  runner.py           from evaluation to evaluation, with checkpoints
  stop_signals.py     what ends a run early
  tally.py            what a run has measured and spent so far
  run_programs.py     the compiled programs, with their inputs on the devices
  compilation.py      programs that were compiled before are found again
  active_settings.py  which settings still run
  feed.py             what the host gives to each segment of rounds
  run_state.py        `GridPoints`, and their state between calls of the program
  client_state.py     what clients keep, on the devices or the host

In the compiled program: the package `traced`.

Beside it, with the same clients and workers:

  client_evaluation.py  how good models are on each client's held-out examples
  own_models.py         the same of clients' own models, while a run goes on
"""
