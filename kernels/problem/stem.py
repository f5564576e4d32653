"""Names of files and functions for problems, and for ranges of them."""

from tilewise.kernels.problem.base import Problem
from tilewise.kernels.problem.ranges import ProblemRange

LONGEST_STEM = 100  # characters; every filesystem takes names of 255 bytes
KEY_DIGITS = 12
SELF_EXPLANATORY = {"accuracy", "dtype", "epilogue", "init", "layout", "weights"}


def stem(problem: Problem | ProblemRange) -> str:
    """Return a name of files and functions, such as `matmul_m64_n48_k32_f32`, `matmul_m1to64_...`.

    One that is too long ends with the beginning of the key.
    """
    operation, _, pairs = problem.canonical.partition(":")
    parts = [operation]
    for pair in pairs.split(","):
        name, _, value = pair.replace("..", "to").replace(":", "by").partition("=")
        parts.append(value if name in SELF_EXPLANATORY else f"{name}{value}")
    found = "_".join(parts)
    if len(found) > LONGEST_STEM:
        found = f"{found[: LONGEST_STEM - KEY_DIGITS - 1]}_{problem.key[:KEY_DIGITS]}"
    return found
