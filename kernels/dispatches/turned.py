"""A tensor of a pattern whose axes lie in another order than the problem's, turned and back."""

from dataclasses import dataclass

from tilewise.kernels.dispatches.patterns.graph import Value, tensor_type


@dataclass(frozen=True)
class Turned:
    """An operand or the result of a call.

    Attributes:
        name: of the tensor that the kernel reads or writes.
        value: as the pattern has it.
        axes: the value's, in the problem's order; empty where it lies so.
    """

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
        """What makes that tensor of the given one."""
        if not self.axes:
            return ()
        return transposed(f"%{self.given}", self.value.type, f"%{self.name}", self.type, self.axes)

    def turned_back(self, made: str) -> tuple[str, tuple[str, ...]]:
        """The value that a pattern has of what the kernel made, and the lines that make it."""
        if not self.axes:
            return made, ()
        back = tuple(self.axes.index(at) for at in range(len(self.axes)))
        return "%back", transposed(made, self.type, "%back", self.value.type, back)


def transposed(
    source: str, type_: str, target: str, wanted: str, axes: tuple[int, ...]
) -> tuple[str, str]:
    """The lines that make `target` of `source`, of which axis `axes[i]` becomes axis i."""
    return (
        f"{target}_empty = tensor.empty() : {wanted}",
        f"{target} = linalg.transpose ins({source} : {type_}) outs({target}_empty : {wanted}) "
        f"permutation = {list(axes)}",
    )
