"""The command line: flags by the specification and the registries.

parser.py        a command line, with files of flags -> the values given in it
exits.py         does a command's work; bad input ends it in one line
flag_words.py    words -> flags with their values, and back
mistakes.py      one line for what cannot be a flag, or a flag's value
help.py          what --help, --list and --version print
choice_pages.py  the choices by name, and a page of help for each
texts.py         what the help says of flags
layout.py        how the help is laid out
"""
