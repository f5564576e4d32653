"""Names of files that a person can read, each for one problem and one kind of file."""

from tilewise.kernels.problem import Problem, stem

KERNEL = "kernel"


def file_name(problem: Problem, kind: str) -> str:
    """Such as `matmul_m64_n48_k32_f32.cpu.mlir`, and `matmul_m64_n48_k32_f32.py` of a kernel.

    It depends on the problem and the kind alone. One that would be too long ends with the
    beginning of the problem's key.
    """
    beginning = stem(problem)
    return f"{beginning}.py" if kind == KERNEL else f"{beginning}.{kind}.mlir"
