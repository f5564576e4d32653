"""Transpositions, padding and copies around a dispatch whose kernel has another layout than its op.

Between two such kernels the transpositions cancel in canonicalisation. Filters are constants, which
IREE transposes when it loads the module.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tilewise.kernels.dispatches.patterns.graph import Value
from tilewise.kernels.errors import UnsupportedError
from tilewise.kernels.mlir.payload.tensors import padded
from tilewise.kernels.problem import Problem
from tilewise.kernels.problem.spatial import canonical


def copy_lines(source: str, target: str, shape: Sequence[int | str], element: str) -> list[str]:
    """Return lines that copy as max(x, min(x, 1)), which no pass folds to x; `?` is dynamic."""
    tensor = f"tensor<{'x'.join(map(str, (*shape, element)))}>"
    dims = ", ".join(f"d{i}" for i in range(len(shape)))
    same, loops = f"affine_map<({dims}) -> ({dims})>", ", ".join(['"parallel"'] * len(shape))
    is_integer = element.startswith("i")
    least, most, one = (
        ("arith.minsi", "arith.maxsi", "1") if is_integer
        else ("arith.minimumf", "arith.maximumf", "1.0")
    )  # fmt: skip
    sizes = [f"{target}_size{axis}" for axis, size in enumerate(shape) if size == "?"]
    read = [
        line for size in sizes for line in (
            f"{size}_axis = arith.constant {size.rpartition('size')[2]} : index",
            f"{size} = tensor.dim {source}, {size}_axis : {tensor}",
        )
    ]  # fmt: skip
    return [
        *read,
        f"{target}_empty = tensor.empty({', '.join(sizes)}) : {tensor}",
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


@dataclass
class CallLines:
    """The lines of a call's function, and the values that they make of others."""

    lines: list[str] = field(default_factory=list)

    def transposed(self, value: Value, axes: Sequence[int]) -> Value:
        """Return a value whose axis i is axis `axes[i]` of another; that one for no axes."""
        if not axes:
            return value
        made = self._named(value, [value.shape[at] for at in axes])
        self.lines += [
            f"{made.name}_empty = tensor.empty({made.sizes}) : {made.type}",
            f"{made.name} = linalg.transpose ins({value.name} : {value.type}) "
            f"outs({made.name}_empty : {made.type}) permutation = {list(axes)}",
        ]
        return made

    def reshaped(self, value: Value, shape: Sequence[int]) -> Value:
        """Return a value with the same elements in the same order in another shape."""
        if value.shape == tuple(shape):
            return value
        made = self._named(value, shape)
        line = f"{made.name} = flow.tensor.reshape {value.name} : {value.type} -> {made.type}"
        self.lines.append(line)
        return made

    def padded(self, value: Value, low: Sequence[int], high: Sequence[int]) -> Value:
        """Return a value with zeros before and after each axis."""
        made = self._named(value, [sum(one) for one in zip(value.shape, low, high, strict=True)])
        zero = f"{'0' if value.element.startswith('i') else '0.0'} : {value.element}"
        self.lines += padded(value.name, made.name, value.shape, made.shape, tuple(low), zero)
        return made

    def _named(self, value: Value, shape: Sequence[int]) -> Value:
        return Value(f"%v{len(self.lines)}", tuple(shape), value.element)


_IMAGES = {True: (0, 2, 3, 1), False: (0, 3, 1, 2)}
"""Axes of an image with channels first, or last, in the order of the other layout."""
_FILTERS = {True: (2, 3, 1, 0), False: (3, 2, 0, 1)}


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


def laid(lines: CallLines, found: Problem, problem: Problem, name: str, value: Value) -> Value:
    """Return an operand of an op in the layout of its kernel."""
    if found == problem or name not in ("A", "B", "C"):
        return value
    value = lines.reshaped(value, found.operand_shapes[name])
    if found.has_channels_first != problem.has_channels_first:
        axes = _FILTERS if name == "B" else _IMAGES
        value = lines.transposed(value, axes[found.has_channels_first])
    if name == "A" and found.pads != problem.pads:
        value = lines.padded(value, *_zeros(found, problem))
    return value


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


def given_back(
    lines: CallLines, found: Problem, problem: Problem, value: Value, shape: Sequence[int]
) -> Value:
    """Return a kernel's result in its op's layout, in a shape."""
    if found.has_channels_first != problem.has_channels_first:
        value = lines.transposed(value, _IMAGES[problem.has_channels_first])
    return lines.reshaped(value, shape)
