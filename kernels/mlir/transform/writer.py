"""Lines of a transform script, and fresh names for its handles."""

from collections.abc import Sequence
from dataclasses import dataclass, field

ANY = "!transform.any_op"


@dataclass
class Writer:
    """Collects the operations of one named sequence."""

    lines: list[str] = field(default_factory=list)
    _count: dict[str, int] = field(default_factory=dict)

    def line(self, text: str) -> None:
        """Append one line."""
        self.lines.append(text)

    def name(self, hint: str) -> str:
        """A fresh SSA name such as `%blocks_2`."""
        index = self._count.get(hint, 0)
        self._count[hint] = index + 1
        return f"%{hint}_{index}" if index else f"%{hint}"

    def include(self, sequence: str) -> None:
        """Run a named sequence on the function."""
        self.line(f"transform.include @{sequence} failures(propagate) (%func) : ({ANY}) -> ()")

    def collect(self, matcher: str) -> str:
        """A handle on the ops in the function that a matcher accepts."""
        found = self.name("kernels")
        self.line(f"{found} = transform.collect_matching @{matcher} in %func : ({ANY}) -> {ANY}")
        return found

    def match_loops(self, attribute: str, hint: str) -> str:
        """A handle on the loops annotated with `attribute`."""
        found = self.name(hint)
        self.line(
            f'{found} = transform.structured.match ops{{["scf.for"]}} attributes{{{attribute}}} '
            f"in %func : ({ANY}) -> {ANY}"
        )
        return found

    def vectorize_fills(self) -> None:
        """Vectors for the zeros that sums start from."""
        zeros = self.name("zeros")
        self.line(
            f'{zeros} = transform.structured.match ops{{["linalg.fill"]}} in %func '
            f": ({ANY}) -> {ANY}"
        )
        self.line(f"transform.structured.vectorize {zeros} : {ANY}")

    def tile_for(self, handle: str, sizes: Sequence[int]) -> tuple[str, list[str]]:
        """Tile by sequential loops; the tiled op and a handle for each size that is not 0."""
        tiled = self.name("step")
        loops = [self.name("loop") for size in sizes if size]
        types = ", ".join([ANY] * (1 + len(loops)))
        self.line(
            f"{', '.join([tiled, *loops])} = transform.structured.tile_using_for {handle} "
            f"tile_sizes {list(sizes)} : ({ANY}) -> ({types})"
        )
        return tiled, loops

    def fuse(self, producer: str, loop: str, hint: str) -> tuple[str, str]:
        """Compute what an op does inside of the loop that uses it; the op and the loop anew."""
        moved, around = self.name(hint), self.name("around")
        self.line(
            f"{moved}, {around} = transform.structured.fuse_into_containing_op {producer} "
            f"into {loop} : ({ANY}, {ANY}) -> ({ANY}, {ANY})"
        )
        return moved, around
