"""Which problems the lowerings cover; light, so that a service can ask at its boundary."""

from kernels.errors import UnsupportedError
from kernels.problem import Conv2d, Matmul, Problem

LOWERED_TYPES = ("f32", "f64", "i32")


def check_supported(problem: Problem) -> None:
    """Raise UnsupportedError, naming the key, for problems that no lowering covers."""
    if problem.element.name not in LOWERED_TYPES:
        raise UnsupportedError(
            f"{problem}: dtype={problem.element.name} is not lowered; "
            f"give one of {', '.join(LOWERED_TYPES)}",
            "dtype",
        )
    if isinstance(problem, Matmul):
        wrong = {"transpose_a": problem.transpose_a, "transpose_b": problem.transpose_b}
    elif isinstance(problem, Conv2d):
        wrong = {
            "dtype": problem.dtype != "f32",
            "groups": problem.groups != 1,
            "layout": problem.layout != "nhwc_hwcf",
        }
    else:
        raise TypeError(f"no reference for {type(problem).__name__}")
    wrong["weights"] = getattr(problem, "weights", "variable") == "constant"
    for field, is_wrong in wrong.items():
        if is_wrong:
            value = getattr(problem, field)
            raise UnsupportedError(f"{problem}: {field}={value} is not lowered", field)
