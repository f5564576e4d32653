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
        """Run a named sequence on the function, unless nothing has changed since it last ran."""
        text = f"transform.include @{sequence} failures(propagate) (%func) : ({ANY}) -> ()"
        done = next((line for line in reversed(self.lines) if not line.startswith("//")), None)
        if text != done:
            self.line(text)

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

    def match(self, op: str, hint: str) -> str:
        """A handle on the ops of a name in the function."""
        found = self.name(hint)
        self.line(
            f'{found} = transform.structured.match ops{{["{op}"]}} in %func : ({ANY}) -> {ANY}'
        )
        return found

    def generalize(self, handle: str, hint: str) -> str:
        """An op without a name of its own."""
        found = self.name(hint)
        self.line(f"{found} = transform.structured.generalize {handle} : ({ANY}) -> {ANY}")
        return found

    def interchange(self, handle: str, order: Sequence[int]) -> str:
        """An op with its loops in another order: for each of them which it was."""
        found = self.name("ordered")
        self.line(
            f"{found} = transform.structured.interchange {handle} "
            f"iterator_interchange = {list(order)} : ({ANY}) -> {ANY}"
        )
        return found

    def apply_patterns(self, handle: str, patterns: str) -> None:
        """Rewrite what is in some ops."""
        self.line(f"transform.apply_patterns to {handle} {{")
        self.line(f"  transform.apply_patterns.{patterns}")
        self.line(f"}} : {ANY}")

    def merge_slices(self, loops: list[str]) -> None:
        """Let ops in some loops read slices of tensors, not slices of slices.

        Outside of the loops slices stay, and with them what is written to C in place.
        """
        merged = loops[0]
        if len(loops) > 1:
            merged = self.name("regions")
            self.line(f"{merged} = transform.merge_handles {', '.join(loops)} : {ANY}")
        self.apply_patterns(merged, "tensor.merge_consecutive_insert_extract_slice")

    def sliced(self, user: str, operand: int) -> str:
        """What makes the tensor of which an op reads a slice."""
        part, whole = self.name("slice"), self.name("whole")
        for found, at, index in ((part, user, operand), (whole, part, 0)):
            self.line(
                f"{found} = transform.get_producer_of_operand {at}[{index}] : ({ANY}) -> {ANY}"
            )
        return whole

    def vectorize_fills(self) -> None:
        """Vectors for the zeros that sums start from."""
        zeros = self.match("linalg.fill", "zeros")
        self.line(f"transform.structured.vectorize {zeros} : {ANY}")

    def tile_for(
        self, handle: str, sizes: Sequence[int], order: Sequence[int] = ()
    ) -> tuple[str, list[str]]:
        """Tile by sequential loops; the tiled op and a handle for each size that is not 0.

        Args:
            handle: on the op.
            sizes: for each dim of the op; 0 for one without a loop.
            order: of the loops, by dims, outermost first; that of the dims where none is given.
        """
        tiled = self.name("step")
        loops = [self.name("loop") for size in sizes if size]
        types = ", ".join([ANY] * (1 + len(loops)))
        ordered = f" interchange = {list(order)}" if list(order) != sorted(order) else ""
        self.line(
            f"{', '.join([tiled, *loops])} = transform.structured.tile_using_for {handle} "
            f"tile_sizes {list(sizes)}{ordered} : ({ANY}) -> ({types})"
        )
        return tiled, loops

    def boxed(self, handle: str) -> tuple[str, str]:
        """The op in a loop of one trip, into which others can be fused; the op and the loop."""
        held, box = self.name("part"), self.name("box")
        self.line(
            f"{held}, {box} = transform.structured.tile_using_forall {handle} "
            f"num_threads [1] : ({ANY}) -> ({ANY}, {ANY})"
        )
        return held, box

    def copied(self, user: str, operand: int) -> str:
        """What an op reads of a padded tensor, as a copy to where the zeros are already."""
        pad, pixels, lines = self.name("pad"), self.name("pixels"), self.name("lines")
        for found, op in (
            (pad, f"get_producer_of_operand {user}[{operand}]"),
            (pixels, f"structured.rewrite_in_destination_passing_style {pad}"),
            (lines, f"structured.insert_slice_to_copy {pixels}"),
        ):
            self.line(f"{found} = transform.{op} : ({ANY}) -> {ANY}")
        return lines

    def fuse(self, producer: str, loop: str, hint: str) -> tuple[str, str]:
        """Compute what an op does inside of the loop that uses it; the op and the loop anew."""
        moved, around = self.name(hint), self.name("around")
        self.line(
            f"{moved}, {around} = transform.structured.fuse_into_containing_op {producer} "
            f"into {loop} : ({ANY}, {ANY}) -> ({ANY}, {ANY})"
        )
        return moved, around
