"""A step: `reorder` exchanges two neighbouring loops over blocks."""

from dataclasses import dataclass, replace
from typing import ClassVar

from tilewise.kernels.nest import Loop, LoopKind, Nest, Node
from tilewise.kernels.steps import Step


@dataclass(frozen=True)
class Reorder(Step):
    """Exchange the innermost loop over blocks of `dim` with the one right inside of it.

    Halide reorder, TVM reorder, scf interchange.

        tile dim=n size=64
        tile dim=m size=12
        reorder dim=n
    before                          after
        for n step 64:                  for m step 12:
            for m step 12:                  for n step 64:
                tiles                           tiles
    """

    name: ClassVar[str] = "reorder"
    dim: str

    def check(self, nest: Nest) -> None:
        """Raise unless there are two such loops, over different dims, with nothing between."""
        outer = self._outer(nest)
        if outer is None:
            raise self.refused(nest, f"there is no loop over blocks of {self.dim}")
        inner, *behind = outer.body
        if behind or not isinstance(inner, Loop) or inner.kind not in BLOCKS:
            raise self.refused(nest, "no loop over blocks follows directly")
        if inner.dim == self.dim:
            raise self.refused(nest, f"both loops are over {self.dim}")

    def apply(self, nest: Nest) -> Nest:
        """Exchange them."""
        found = self._outer(nest)

        def exchanged(node: Node) -> Node:
            if node != found:
                return node
            assert isinstance(node, Loop) and isinstance(node.body[0], Loop)
            inner = node.body[0]
            return replace(inner, body=(replace(node, body=inner.body),))

        return nest.mapped(exchanged)

    def _outer(self, nest: Nest) -> Loop | None:
        loops = [loop for loop in nest.loops_of(*BLOCKS) if loop.dim == self.dim]
        return loops[-1] if loops else None


BLOCKS = (LoopKind.TILE, LoopKind.K_BLOCK)
