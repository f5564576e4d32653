"""What a contraction has taken in around it, op by op, and the tensors that it then reads."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tilewise.kernels.mlir.frontend.child.dataflow.tensors import VIEWS, root_of, shape_of
from tilewise.kernels.mlir.frontend.child.endings import Ending
from tilewise.kernels.mlir.frontend.child.structured import Structured
from tilewise.kernels.mlir.frontend.child.values import (
    MOST_STEPS,
    is_constant,
    is_copy,
    only_user,
    owner,
)
from tilewise.kernels.mlir.frontend.graph import Size
from tilewise.kernels.mlir.frontend.imported import Occurrence

_PADS = ("tensor.pad", "tensor.insert_slice")
BIAS = "bias"


@dataclass(frozen=True)
class Surroundings:
    """A contraction among the ops of its module.

    Attributes:
        op: that multiplies.
        found: the problem.
        reads: its operands outside of what is taken in, by role: A and B of the problem, C where
            the sums start from a tensor, and a bias.
        result: the value after all that is taken in, before views of it.
        shape: of the sums, in the order of axes in which they are stored in the end.
        inside: values on the way, which nobody else reads.
    """

    op: Structured
    found: Occurrence
    reads: tuple[tuple[str, Any], ...]
    result: Any
    shape: tuple[Size, ...]
    inside: frozenset[Any]


def surroundings(op: Structured, found: Occurrence, ending: Ending) -> Surroundings:
    """Follow what `recognised` has taken in, backwards and forwards."""
    inside: set[Any] = set()
    inputs = op.inputs[1::-1] if found.is_swapped else op.inputs[:2]
    reads = [
        (role, _source(value, _taken(found, role), inside))
        for role, value in zip("AB", inputs, strict=True)
    ]
    if ending.added is not None:
        reads.append(("C", ending.added))
    if ending.added is None and "init=accumulate" in found.problem:
        reads.append(("C", op.init))
    if ending.bias is not None:
        reads.append((BIAS, ending.bias))
    after = list(_forward(op.result, ending.value))
    inside |= set(ending.repeated)
    result = root_of(ending.value)
    inside = (inside | set(after)) - {result}
    shape = shape_of(_before_views([*after, ending.value]))
    return Surroundings(op, found, tuple(reads), result, shape, frozenset(inside))


def _before_views(chain: list[Any]) -> Any:
    """The last value of a chain that has the axes of the first, in whatever order."""
    views = (i for i, value in enumerate(chain) if _is_view(value))
    return chain[next(views, len(chain)) - 1]


def _is_view(value: Any) -> bool:
    maker = owner(value)
    return maker is not None and maker.name in VIEWS


def _taken(found: Occurrence, role: str) -> set[str]:
    """What is taken in before an operand."""
    names = {f"transpose_{role.lower()}", f"broadcast_{role.lower()}"}
    return {name for name in found.fused if name in names or (name == "pad" and role == "A")}


def _source(value: Any, taken: set[str], inside: set[Any]) -> Any:
    """What an operand is made of before all that is in `taken`; what lies between is `inside`."""
    passed: list[Any] = []
    for _ in range(MOST_STEPS):
        op = owner(value)
        if not taken or op is None or (only_user(value) is None and not is_constant(value)):
            break
        if op.name in _PADS and "pad" in taken:
            taken = taken - {"pad"}
        elif is_copy(op):
            taken = taken & {"pad"}
        elif op.name not in VIEWS:
            break
        passed.append(value)
        value = op.operands[0]
    inside.update(passed)
    return value


def _forward(value: Any, last: Any) -> Iterator[Any]:
    """The values from an op's result to the last one, without it."""
    while value != last:
        yield value
        user = only_user(value)
        assert user is not None
        value = user.results[0]
