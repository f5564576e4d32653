"""The buffers of a network: one for each tensor and layout, some of them shared by several."""

from dataclasses import dataclass, field
from math import prod

import numpy as np

from tilewise.kernels.oracle.operands import NUMPY_TYPES
from tilewise.search.errors import NetworkError
from tilewise.search.networks.layouts import Layout
from tilewise.search.networks.plan import Plan


@dataclass
class Buffers:
    """Numbers of buffers, by what lies in them.

    Attributes:
        plan: of the network.
        sizes: of each buffer, in bytes.
        halos: buffers with zeros that nobody writes.
    """

    plan: Plan
    sizes: list[int] = field(default_factory=list)
    halos: set[int] = field(default_factory=set)
    _of: dict[tuple[int, Layout], int] = field(default_factory=dict)

    def of(self, tensor: int, layout: Layout) -> int:
        """The buffer of a tensor in a layout."""
        if (tensor, layout) not in self._of:
            self._of[tensor, layout] = self.scratch(self._bytes(tensor, layout))
            if layout.halo:
                self.halos.add(self._of[tensor, layout])
        return self._of[tensor, layout]

    def known(self, tensor: int, layout: Layout) -> int | None:
        """The buffer of a tensor in a layout, if it has one yet."""
        return self._of.get((tensor, layout))

    def made(self, tensor: int) -> int:
        """The buffer in which a tensor is made."""
        return self.of(tensor, self.plan.tensors[tensor].layout)

    def share(self, tensor: int, layout: Layout, buffer: int) -> None:
        """Let a tensor lie in a buffer that another one has had."""
        self._of[tensor, layout] = buffer

    def scratch(self, size: int) -> int:
        """A buffer for no tensor."""
        self.sizes.append(size)
        return len(self.sizes) - 1

    def _bytes(self, tensor: int, layout: Layout) -> int:
        shape = static(self.plan, tensor)
        halo = [2 * layout.halo if axis in layout.around else 0 for axis in range(len(shape))]
        size = np.dtype(type_of(self.plan, tensor)).itemsize
        return size * prod(n + more for n, more in zip(shape, halo, strict=True))


def static(plan: Plan, tensor: int) -> tuple[int, ...]:
    """The shape of a tensor.

    Raises:
        NetworkError: it is dynamic.
    """
    shape = plan.tensors[tensor].shape
    known = tuple(size for size in shape if size is not None)
    if len(known) != len(shape):
        raise NetworkError(f"tensor {tensor} has a dynamic shape; give the model static ones")
    return known


def type_of(plan: Plan, tensor: int) -> type:
    """NumPy's type of a tensor's elements; bf16 as its bits.

    Raises:
        NetworkError: there is none.
    """
    dtype = plan.tensors[tensor].dtype
    if dtype not in NUMPY_TYPES:
        raise NetworkError(f"tensor {tensor} is of {dtype}; {', '.join(NUMPY_TYPES)} are run here")
    return NUMPY_TYPES[dtype]
