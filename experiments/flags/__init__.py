"""The flags of a run, in the order of the help.

command_line   groups of flags, the help, parsing, one line for a mistake
registries     flags of a choice by name and of its hyperparameters
methods        algorithm, client, server, regularizer -> Setup
selection      on which examples settings are compared
tasks, clients, sampler, settings   all others
"""

from experiments.flags import clients, methods, selection, settings, tasks
from experiments.tasks import TASKS

tasks.define()
clients.define()
methods.define({name: task.defaults for name, task in TASKS.items()})
selection.define()
settings.define()
