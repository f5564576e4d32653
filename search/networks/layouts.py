"""How a tensor lies in memory: the order of its axes, one of them in blocks, zeros around it."""

from collections.abc import Sequence
from dataclasses import dataclass

from tilewise.kernels.mlir.frontend.graph import Size


@dataclass(frozen=True)
class Layout:
    """A layout of a tensor.

    Attributes:
        order: its axes that are longer than one, the outermost first.
        halo: zeros on both sides of each of the axes `around`.
        around: axes, in the tensor's order; none without a halo.
        block: elements of a block of channels; not 0 in plans of version 0.1 alone.
    """

    order: tuple[int, ...]
    halo: int = 0
    around: tuple[int, ...] = ()
    block: int = 0

    @property
    def is_plain(self) -> bool:
        """Whether it lies as the model has it."""
        return self.order == tuple(sorted(self.order)) and not self.halo

    @property
    def name(self) -> str:
        """For people: `plain`, `axes 3,1,2`, `halo 1`, `blocks of 32`."""
        moved = self.order != tuple(sorted(self.order))
        parts = [f"axes {','.join(map(str, self.order))}"] if moved and not self.block else []
        parts += [f"blocks of {self.block}"] if self.block else []
        parts += [f"halo {self.halo}"] if self.halo else []
        return " ".join(parts) or "plain"


def ordered(axes: Sequence[int], shape: Sequence[Size]) -> Layout:
    """The layout of a tensor whose axes are stored in an order; those of one element are nowhere.

    Args:
        axes: all of them, or those that matter.
        shape: of the tensor.
    """
    return Layout(tuple(axis for axis in axes if shape[axis] != 1))


def plain(shape: Sequence[Size]) -> Layout:
    """The layout of a tensor as the model has it."""
    return ordered(range(len(shape)), shape)
