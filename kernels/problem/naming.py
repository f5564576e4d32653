"""The beginning of names that a person can read: of files, and of functions."""

from tilewise.kernels.problem.base import Problem

LONGEST = 100  # characters; every filesystem takes names of 255 bytes
KEY_DIGITS = 12
_WORDS = frozenset(
    ("accuracy", "dtype", "epilogue", "init", "layout", "weights")
)  # whose values say it all


def stem(problem: Problem) -> str:
    """Such as `matmul_m64_n48_k32_f32`; one too long ends with the beginning of the key."""
    operation, _, fields = problem.canonical.partition(":")
    words = "_".join([operation, *map(_word, fields.split(","))])
    if len(words) > LONGEST:
        words = f"{words[: LONGEST - KEY_DIGITS - 1]}_{problem.key[:KEY_DIGITS]}"
    return words


def _word(field: str) -> str:
    name, _, value = field.partition("=")
    return value if name in _WORDS else f"{name}{value}"
