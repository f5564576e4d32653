"""The faults, by the rows of the register tile that has each, and the class that each ends with."""

SEGFAULT, LOOP_IN_CODE_GENERATION, LOOP_AT_RUN_TIME, PIECES, WRONG, NAN, AT_ONCE = range(2, 9)

GOOD = (1, 10)
"""Rows of the candidates before all faults and after them."""

CLASSES = {
    SEGFAULT: "crash",
    LOOP_IN_CODE_GENERATION: "timeout",
    LOOP_AT_RUN_TIME: "timeout",
    PIECES: "memory",
    WRONG: "wrong",
    NAN: "wrong",
    AT_ONCE: "memory",
}
NAMES = {
    SEGFAULT: "segfault",
    LOOP_IN_CODE_GENERATION: "endless loop in code generation",
    LOOP_AT_RUN_TIME: "endless loop at run time",
    PIECES: "50 GiB allocation, in pieces",
    WRONG: "wrong result",
    NAN: "silent NaN",
    AT_ONCE: "50 GiB allocation, at once",
}
ROWS = (GOOD[0], *CLASSES, GOOD[1])
"""Of a search's trials, in their order."""
