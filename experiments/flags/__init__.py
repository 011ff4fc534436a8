"""The flags of a run, in the order of the help.

command_line   groups of flags, parsing, one line for a mistake
registries     flags of a choice by name and of its hyperparameters
methods        algorithm, client, server, regularizer -> Setup
messages       what clients send, how it is combined
selection      on which examples settings are compared
tasks, clients, sampler, settings   all others
help, choices  what --help and --list print
"""

from experiments.flags import (
  choices,
  clients,
  command_line,
  help,
  messages,
  methods,
  selection,
  settings,
  tasks,
  version,
)
from experiments.tasks import TASKS

tasks.define()
clients.define()
methods.define({name: task.defaults for name, task in TASKS.items()})
messages.define()
selection.define()
settings.define()
command_line.answer("help", help.answer)
command_line.answer("list", choices.listed)
command_line.answer("version", version.answer)
