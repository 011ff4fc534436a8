"""The command line: flags made from the specification and the registries.

parser      a command line, with files of flags -> the values that were given
mistakes    one line for what cannot be a flag, or a flag's value
help, pages what --help, --list and --version print
texts       what the help says of flags; layout: how it is laid out
"""
