"""Numbers for the tensors of a module: a value and its views are one tensor."""

from typing import Any

from iree.compiler import ir

from tilewise.kernels.mlir.frontend.child.structured import element, rank
from tilewise.kernels.mlir.frontend.child.values import (
    MOST_STEPS,
    RESHAPES,
    is_constant,
    owner,
    splat,
)
from tilewise.kernels.mlir.frontend.graph import Size, Tensor, Use

VIEWS = (*RESHAPES, "tensor.cast")


class Tensors:
    """The tensors that were met so far, in their order."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self._made: list[Any] = []
        self._known: set[Any] = set()
        self._made_here: set[int] = set()
        self._results: set[int] = set()

    def take_as_known(self, value: Any) -> None:
        """Remember a value as one that is computed when the module is loaded."""
        self._known.add(value)

    def is_known(self, value: Any) -> bool:
        """Whether a value is known when the module is loaded, or is a tensor that is not filled."""
        root = root_of(value)
        maker = owner(root)
        is_empty = maker is not None and maker.name == "tensor.empty"
        return root in self._known or is_empty or splat(root) is not None or is_constant(root)

    def is_activation(self, value: Any) -> bool:
        """Whether a value is a tensor that lies between nodes."""
        return bool(rank(value)) and not self.is_known(value)

    def read(self, value: Any, role: str) -> Use:
        """A use of a value; the value itself becomes a tensor."""
        return Use(self._number(root_of(value)), shape_of(value), role)

    def make(self, value: Any, shape: tuple[Size, ...], role: str) -> Use:
        """The use that makes a value, which its maker has in a shape."""
        number = self._number(value)
        self._made_here.add(number)
        return Use(number, shape, role)

    def leave(self, value: Any) -> None:
        """Note that a value leaves the nodes: a function returns it."""
        if self.is_activation(value):
            self._results.add(self._number(root_of(value)))

    def number_of(self, value: Any) -> int | None:
        """The number of the tensor that a value is a view of; None if no node has it."""
        return self._numbers.get(root_of(value))

    def all(self) -> tuple[Tensor, ...]:
        """Those that were met, by number."""
        return tuple(
            Tensor(shape_of(value), element(value), i not in self._made_here, i in self._results)
            for i, value in enumerate(self._made)
        )

    def _number(self, value: Any) -> int:
        if value not in self._numbers:
            self._numbers[value] = len(self._made)
            self._made.append(value)
        return self._numbers[value]


def root_of(value: Any) -> Any:
    """What a value is a view of."""
    for _ in range(MOST_STEPS):
        op = owner(value)
        if op is None or op.name not in VIEWS:
            break
        value = op.operands[0]
    return value


def shape_of(value: Any) -> tuple[Size, ...]:
    """The shape of a tensor."""
    kind = value.type
    if not isinstance(kind, ir.RankedTensorType):
        return ()
    return tuple(None if kind.is_dynamic_dim(i) else kind.get_dim_size(i) for i in range(kind.rank))
