"""Transpositions, padding and copies around a dispatch whose kernel has another layout than its op.

Between two such kernels the transpositions cancel in canonicalisation. Filters are constants, which
IREE transposes when it loads the module.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tilewise.kernels.dispatches.patterns.graph import Value, tensor_type
from tilewise.kernels.errors import UnsupportedError
from tilewise.kernels.oracle.operands import operand_type
from tilewise.kernels.problem import Problem
from tilewise.kernels.problem.window import canonical


def copy_lines(source: str, target: str, shape: Sequence[int | str], element: str) -> list[str]:
    """Return lines that copy as max(x, min(x, 1)), which no pass folds to x."""
    tensor = f"tensor<{'x'.join(map(str, (*shape, element)))}>"
    dims = ", ".join(f"d{i}" for i in range(len(shape)))
    same, loops = f"affine_map<({dims}) -> ({dims})>", ", ".join(['"parallel"'] * len(shape))
    is_integer = element.startswith("i")
    least, most, one = (
        ("arith.minsi", "arith.maxsi", "1") if is_integer
        else ("arith.minimumf", "arith.maximumf", "1.0")
    )  # fmt: skip
    return [
        f"{target}_empty = tensor.empty() : {tensor}",
        f"{target}_one = arith.constant {one} : {element}",
        f"{target} = linalg.generic {{indexing_maps = [{same}, {same}], "
        f"iterator_types = [{loops}]}} ins({source} : {tensor}) "
        f"outs({target}_empty : {tensor}) {{",
        f"^bb0(%x: {element}, %out: {element}):",
        f"  %least = {least} %x, {target}_one : {element}",
        f"  %same = {most} %x, %least : {element}",
        f"  linalg.yield %same : {element}",
        f"}} -> {tensor}",
    ]


@dataclass(frozen=True)
class Transposed:
    """An operand or the result of a call; `axes` permutes the value, and is empty for no change."""

    name: str
    value: Value
    axes: tuple[int, ...] = ()

    @property
    def given(self) -> str:
        """The name of the tensor as the pattern has it."""
        return f"{self.name}_given" if self.axes else self.name

    @property
    def type(self) -> str:
        """The type of the tensor that the kernel sees."""
        shape = self.value.shape or ()
        return tensor_type(tuple(shape[at] for at in self.axes or range(len(shape))),
                           self.value.element)  # fmt: skip

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines that transpose the given tensor."""
        if not self.axes:
            return ()
        return transposed(f"%{self.given}", self.value.type, f"%{self.name}", self.type, self.axes)

    def transposed_back(self, made: str) -> tuple[str, tuple[str, ...]]:
        """Return the pattern's value for the kernel's result `made`, and the lines that make it."""
        if not self.axes:
            return made, ()
        back = tuple(self.axes.index(at) for at in range(len(self.axes)))
        return "%back", transposed(made, self.type, "%back", self.value.type, back)


def transposed(
    source: str, type_: str, target: str, wanted: str, axes: tuple[int, ...]
) -> tuple[str, str]:
    """Return lines that make `target` of `source`, whose axis `axes[i]` becomes axis i."""
    return (
        f"{target}_empty = tensor.empty() : {wanted}",
        f"{target} = linalg.transpose ins({source} : {type_}) outs({target}_empty : {wanted}) "
        f"permutation = {list(axes)}",
    )


_IMAGES = {True: (0, 2, 3, 1), False: (0, 3, 1, 2)}
"""Axes of an image with channels first, or last, in the order of the other layout."""
_FILTERS = {True: (2, 3, 1, 0), False: (3, 2, 0, 1)}


@dataclass
class Laid:
    """The operands of a dispatch in its problem's layout."""

    values: dict[str, str]
    types: dict[str, str]
    lines: list[str] = field(default_factory=list)


def check_layouts(found: Problem, problem: Problem) -> None:
    """Refuse a kernel that differs from its op in more than layout and stored padding.

    It may not pad more than its op, which has data there.

    Raises:
        UnsupportedError: names both problems.
    """
    pad = canonical(problem.pads)
    has_more_zeros = any(more > one for more, one in zip(problem.pads, found.pads, strict=True))
    if has_more_zeros or problem != found.stored_as(
        channels_first=problem.has_channels_first, pad=pad
    ):
        raise UnsupportedError(f"{problem} computes {found} in no layout of an image")


def laid(
    found: Problem, problem: Problem, names: tuple[str, ...], types: Mapping[str, str]
) -> Laid:
    """Return the operands of an op in the layout of its kernel."""
    made = Laid({name: f"%{name}" for name in names}, dict(types))
    if found == problem:
        return made
    turns = found.has_channels_first != problem.has_channels_first
    for name in ("A", "B", "C"):
        shape, element = found.operand_shapes[name], operand_type(found, name)
        if name not in names:
            continue
        value = _reshaped(made, f"%{name}", types[name], tensor_type(shape, element))
        if turns:
            axes = (_FILTERS if name == "B" else _IMAGES)[found.has_channels_first]
            value, shape = _transposed(made, value, shape, element, axes)
        if name == "A" and found.pads != problem.pads:
            value, shape = _padded(made, value, shape, element, _zeros(found, problem))
        made.values[name], made.types[name] = value, tensor_type(shape, element)
    shape, element = problem.operand_shapes["C"], operand_type(problem, "C")
    made.types["C"] = tensor_type(shape, element)
    return made


def _zeros(found: Problem, problem: Problem) -> tuple[list[int], list[int]]:
    """Return the zeros before and behind each axis that the op adds and the kernel does not."""
    axes = range(len(problem.operand_shapes["A"]))
    whole = found.stored_as(
        channels_first=problem.has_channels_first, pad=canonical(found.pads)
    ).padding
    low, high = (
        [side[axis] - own[axis] for axis in axes]
        for side, own in zip(whole, problem.padding, strict=True)
    )
    return low, high


def given_back(found: Problem, problem: Problem, value: str, type_: str) -> tuple[list[str], str]:
    """Return the lines that bring a kernel's result into its op's layout, and the value."""
    if found == problem:
        return [], value
    made = Laid({}, {})
    shape, element = problem.operand_shapes["C"], operand_type(problem, "C")
    if found.has_channels_first != problem.has_channels_first:
        value, shape = _transposed(made, value, shape, element, _IMAGES[problem.has_channels_first])
    return made.lines, _reshaped(made, value, tensor_type(shape, element), type_)


def _reshaped(made: Laid, value: str, given: str, wanted: str) -> str:
    """Return a value viewed as another type with the same elements in the same order."""
    if given == wanted:
        return value
    name = _name(made, value)
    made.lines.append(f"{name} = flow.tensor.reshape {value} : {given} -> {wanted}")
    return name


def _transposed(
    made: Laid, value: str, shape: tuple[int, ...], element: str, axes: tuple[int, ...]
) -> tuple[str, tuple[int, ...]]:
    name, permuted = _name(made, value), tuple(shape[axis] for axis in axes)
    given, wanted = tensor_type(shape, element), tensor_type(permuted, element)
    made.lines += transposed(value, given, name, wanted, axes)
    return name, permuted


def _padded(
    made: Laid,
    value: str,
    shape: tuple[int, ...],
    element: str,
    around: tuple[list[int], list[int]],
) -> tuple[str, tuple[int, ...]]:
    name = _name(made, value)
    wide = tuple(map(sum, zip(shape, *around, strict=True)))
    given, wanted = tensor_type(shape, element), tensor_type(wide, element)
    zero = "0" if element.startswith("i") else "0.0"
    low, high = (", ".join(map(str, side)) for side in around)
    places = ", ".join(f"%i{axis}: index" for axis in range(len(shape)))
    made.lines += [
        f"{name}_zero = arith.constant {zero} : {element}",
        f"{name} = tensor.pad {value} low[{low}] high[{high}] {{",
        f"^bb0({places}):",
        f"  tensor.yield {name}_zero : {element}",
        f"}} : {given} to {wanted}",
    ]
    return name, wide


def _name(made: Laid, value: str) -> str:
    return f"{value.replace('#', '_')}_{len(made.lines)}"
