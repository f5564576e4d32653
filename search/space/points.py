"""A point of a space: one value for each parameter."""

Value = int | str | bool
Point = dict[str, Value]

WHOLE = 0  # the size of a block that leaves its dim uncut
