"""Names of files that a person can read, each for one problem and one kind of file."""

from kernels.problem import Problem

KERNEL = "kernel"
LONGEST = 100  # characters before the ending; every filesystem takes 255 bytes
KEY_DIGITS = 12
_WORDS = frozenset(
    ("accuracy", "dtype", "epilogue", "init", "layout", "weights")
)  # whose values say it all


def file_name(problem: Problem, kind: str) -> str:
    """Such as `matmul_m64_n48_k32_f32.cpu.mlir`, and `matmul_m64_n48_k32_f32.py` of a kernel.

    It depends on the problem and the kind alone. One that would be too long ends with the
    beginning of the problem's key.
    """
    operation, _, fields = problem.canonical.partition(":")
    stem = "_".join([operation, *map(_word, fields.split(","))])
    if len(stem) > LONGEST:
        stem = f"{stem[: LONGEST - KEY_DIGITS - 1]}_{problem.key[:KEY_DIGITS]}"
    return f"{stem}.py" if kind == KERNEL else f"{stem}.{kind}.mlir"


def _word(field: str) -> str:
    name, _, value = field.partition("=")
    return value if name in _WORDS else f"{name}{value}"
