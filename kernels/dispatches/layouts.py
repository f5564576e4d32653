"""A kernel for another layout than its op has: what stands around its dispatch.

The image is transposed, and gets its zeros, in front; the result is transposed back behind. Where
two such kernels follow each other, the transposition behind the first and the one in front of the
second are each other's inverse, and canonicalisation drops both. A filter is constant, so IREE
transposes it when a module is loaded.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tilewise.kernels.dispatches.patterns.graph import tensor_type
from tilewise.kernels.dispatches.turned import transposed
from tilewise.kernels.errors import UnsupportedError
from tilewise.kernels.oracle.operands import operand_type
from tilewise.kernels.problem import Conv2d, Problem

_IMAGES = {"nchw_fchw": (0, 2, 3, 1), "nhwc_hwcf": (0, 3, 1, 2)}
"""Axes of an image of each layout, in the order of the other one."""
_FILTERS = {"nchw_fchw": (2, 3, 1, 0), "nhwc_hwcf": (3, 2, 0, 1)}
_ROWS = {"nchw_fchw": 2, "nhwc_hwcf": 1}
"""The first of an image's two axes that have zeros around."""


@dataclass
class Laid:
    """Values that a dispatch takes, laid as its problem has them.

    Attributes:
        values: the name of each operand's value.
        types: their types, and C's.
        lines: what makes the values.
    """

    values: dict[str, str]
    types: dict[str, str]
    lines: list[str] = field(default_factory=list)


def check_layouts(found: Problem, problem: Problem) -> None:
    """Refuse a kernel that differs from its op in more than an image's axes and zeros.

    A kernel with more zeros around than its op is refused: the op has data there.

    Raises:
        UnsupportedError: names both problems.
    """
    if found == problem:
        return
    are_images = isinstance(found, Conv2d) and isinstance(problem, Conv2d)
    if not are_images or not _is_laid_otherwise(found, problem):
        raise UnsupportedError(f"{problem} computes {found} in no layout of an image")


def laid(
    found: Problem, problem: Problem, names: tuple[str, ...], types: Mapping[str, str]
) -> Laid:
    """The operands of an op as its kernel wants them.

    Args:
        found: the op's problem.
        problem: the kernel's.
        names: of the operands, which are the op's values `%A`, `%B`, ...
        types: of the op's operands and of C.
    """
    made = Laid({name: f"%{name}" for name in names}, dict(types))
    if found == problem:
        return made
    assert isinstance(found, Conv2d)
    assert isinstance(problem, Conv2d)
    turns = found.layout != problem.layout
    for name in ("A", "B", "C"):
        shape, element = found.operand_shapes[name], operand_type(found, name)
        if name not in names:
            continue
        value = _reshaped(made, f"%{name}", types[name], tensor_type(shape, element))
        if turns:
            axes = (_FILTERS if name == "B" else _IMAGES)[found.layout]
            value, shape = _turned(made, value, shape, element, axes)
        if name == "A" and found.pad != problem.pad:
            pad, rows = found.pad - problem.pad, _ROWS[problem.layout]
            value, shape = _padded(made, value, shape, element, pad, rows)
        made.values[name], made.types[name] = value, tensor_type(shape, element)
    shape, element = problem.operand_shapes["C"], operand_type(problem, "C")
    made.types["C"] = tensor_type(shape, element)
    return made


def given_back(found: Problem, problem: Problem, value: str, type_: str) -> tuple[list[str], str]:
    """What lays a kernel's result as its op's, of a type; the lines and the value."""
    if found == problem:
        return [], value
    assert isinstance(found, Conv2d)
    assert isinstance(problem, Conv2d)
    made = Laid({}, {})
    shape, element = problem.operand_shapes["C"], operand_type(problem, "C")
    if found.layout != problem.layout:
        value, shape = _turned(made, value, shape, element, _IMAGES[problem.layout])
    return made.lines, _reshaped(made, value, tensor_type(shape, element), type_)


def _is_laid_otherwise(found: Problem, problem: Problem) -> bool:
    """Whether a kernel's problem is an op's, with some of the op's zeros as a part of the image."""
    assert isinstance(found, Conv2d)
    assert isinstance(problem, Conv2d)
    more = found.pad - problem.pad
    if more < 0 or min(problem.h, problem.w) <= 2 * more:
        return False
    plain = replace(problem, layout=found.layout, pad=found.pad,
                    h=problem.h - 2 * more, w=problem.w - 2 * more)  # fmt: skip
    return plain.canonical == found.canonical


def _reshaped(made: Laid, value: str, given: str, wanted: str) -> str:
    """A value of a type that has the same elements in the same order."""
    if given == wanted:
        return value
    name = _name(made, value)
    made.lines.append(f"{name} = flow.tensor.reshape {value} : {given} -> {wanted}")
    return name


def _turned(
    made: Laid, value: str, shape: tuple[int, ...], element: str, axes: tuple[int, ...]
) -> tuple[str, tuple[int, ...]]:
    name, turned = _name(made, value), tuple(shape[axis] for axis in axes)
    given, wanted = tensor_type(shape, element), tensor_type(turned, element)
    made.lines += transposed(value, given, name, wanted, axes)
    return name, turned


def _padded(
    made: Laid, value: str, shape: tuple[int, ...], element: str, pad: int, first: int
) -> tuple[str, tuple[int, ...]]:
    name = _name(made, value)
    around = [pad if axis in (first, first + 1) else 0 for axis in range(len(shape))]
    wide = tuple(size + 2 * more for size, more in zip(shape, around, strict=True))
    given, wanted = tensor_type(shape, element), tensor_type(wide, element)
    zero = "0" if element.startswith("i") else "0.0"
    low = ", ".join(map(str, around))
    places = ", ".join(f"%i{axis}: index" for axis in range(len(shape)))
    made.lines += [
        f"{name}_zero = arith.constant {zero} : {element}",
        f"{name} = tensor.pad {value} low[{low}] high[{low}] {{",
        f"^bb0({places}):",
        f"  tensor.yield {name}_zero : {element}",
        f"}} : {given} to {wanted}",
    ]
    return name, wide


def _name(made: Laid, value: str) -> str:
    return f"{value.replace('#', '_')}_{len(made.lines)}"
