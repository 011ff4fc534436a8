"""What runs: from the values of flags to one frozen record, `spec.Spec`.

spec.py          the record: each field is a flag, with its group and rules
flag.py          what a field says of its flag
choice_flags.py  flags that choose by name, and flags of what was chosen
resolve.py       values of flags -> the record: defaults and checks
method.py        its part of that: algorithm, rules, regularizer, privacy
"""
