"""What becomes part of the compiled program, from the outside in.

Its programs are pure; a `Cohort` and a `Worker` note what is done while they
are traced. It knows nothing of the host's side but the options of a run,
`Config`, with their `BatchPlan`:

  grid_programs.py  the programs of all points of a grid, and their inputs
  rounds.py         the loop over rounds, and one round of an algorithm
  cohort.py         the clients of a round: `Cohort` and its verbs
  participants.py   who takes part: drawn clients, their keys and weights
  mapping.py        the work of one client, mapped over the cohort in chunks
  worker.py         one client: `Worker`, its local steps and gradients
  batches.py        the examples of each local step
  precision.py      the types in which clients compute
  replies.py        what the verbs return: `Reply`, who counted, what it cost
  versions.py       older versions of the model, on asynchronous schedules
"""
