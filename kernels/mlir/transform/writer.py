"""Lines of a transform script, and fresh names for its handles."""

from collections.abc import Sequence
from dataclasses import dataclass, field

ANY = "!transform.any_op"
INCLUDE = f"transform.include @{{}} failures(propagate) ({{}}) : ({ANY}) -> ()"
MERGE_SLICES = "tensor.merge_consecutive_insert_extract_slice"


def types(count: int) -> str:
    """Return the types of `count` handles."""
    return ", ".join([ANY] * count)


@dataclass
class SequenceWriter:
    """Collects the operations of one named sequence."""

    lines: list[str] = field(default_factory=list)
    _count: dict[str, int] = field(default_factory=dict)

    def line(self, text: str) -> None:
        """Append one line."""
        self.lines.append(text)

    def main(self, name: str = "__transform_main", effect: str = "consumed") -> str:
        """Return the lines as a named sequence, by default the main one of a script."""
        head = f"transform.named_sequence @{name}(%root: {ANY} {{transform.{effect}}})"
        body = (*self.lines, "transform.yield")
        return "\n".join([f"{head} {{", *(f"  {line}" for line in body), "}", ""])

    def name(self, hint: str) -> str:
        """Return a fresh SSA name such as `%blocks_2`."""
        index = self._count.get(hint, 0)
        self._count[hint] = index + 1
        return f"%{hint}_{index}" if index else f"%{hint}"

    def handle(self, hint: str, op: str) -> str:
        """Write an operation on one handle; return its result, named by `hint`."""
        found = self.name(hint)
        self.line(f"{found} = transform.{op} : ({ANY}) -> {ANY}")
        return found

    def handles(self, hints: Sequence[str], op: str, operands: int = 1) -> list[str]:
        """Write an operation on `operands` handles; return its results."""
        found = [self.name(hint) for hint in hints]
        self.line(
            f"{', '.join(found)} = transform.{op} : ({types(operands)}) -> ({types(len(found))})"
        )
        return found

    def include(self, sequence: str, function: str = "%func") -> None:
        """Run a named sequence on the function, unless nothing has changed since its last run."""
        text = INCLUDE.format(sequence, function)
        done = next((line for line in reversed(self.lines) if not line.startswith("//")), None)
        if text != done:
            self.line(text)

    def foreach(
        self,
        handle: str,
        lines: Sequence[str],
        hints: Sequence[str] = (),
        yields: Sequence[str] = (),
        op: str = "%op",
    ) -> list[str]:
        """Write `lines` for each op of a handle; return handles on what they yield."""
        found = [self.name(hint) for hint in hints]
        results = f"{', '.join(found)} = " if found else ""
        given = f" -> {types(len(found))}" if found else ""
        self.line(f"{results}transform.foreach {handle} : {ANY}{given} {{")
        self.line(f"^bb0({op}: {ANY}):")
        self.lines += [f"  {line}" for line in lines]
        if yields:
            self.line(f"  transform.yield {', '.join(yields)} : {types(len(yields))}")
        self.line("}")
        return found

    def collect(self, matcher: str) -> str:
        """Return a handle on the ops in the function that a matcher accepts."""
        return self.handle("kernels", f"collect_matching @{matcher} in %func")

    def match(self, op: str, hint: str) -> str:
        """Return a handle on the ops of a name in the function."""
        return self.handle(hint, f'structured.match ops{{["{op}"]}} in %func')

    def match_loops(self, attribute: str, hint: str) -> str:
        """Return a handle on the loops annotated with `attribute`."""
        return self.handle(
            hint, f'structured.match ops{{["scf.for"]}} attributes{{{attribute}}} in %func'
        )

    def producer(self, user: str, operand: int, hint: str) -> str:
        """Return a handle on the producer of an op's operand."""
        return self.handle(hint, f"get_producer_of_operand {user}[{operand}]")

    def sliced(self, user: str, operand: int) -> str:
        """Return a handle on the producer of the tensor of which an op reads a slice."""
        return self.producer(self.producer(user, operand, "slice"), 0, "whole")

    def annotate(self, loop: str, *names: str) -> None:
        """Mark a loop with attributes, to match it later."""
        for name in names:
            self.line(f'transform.annotate {loop} "{name}" : {ANY}')

    def generalize(self, handle: str, hint: str) -> str:
        """Make a named op a `linalg.generic`."""
        return self.handle(hint, f"structured.generalize {handle}")

    def interchange(self, handle: str, order: Sequence[int]) -> str:
        """Reorder the loops of an op; `order` has the old position of each."""
        return self.handle(
            "ordered", f"structured.interchange {handle} iterator_interchange = {list(order)}"
        )

    def in_place(self, handle: str, hint: str) -> str:
        """Rewrite ops such as `tensor.pad` in destination-passing style."""
        return self.handle(hint, f"structured.rewrite_in_destination_passing_style {handle}")

    def apply_patterns(self, handle: str, patterns: str) -> None:
        """Apply rewrite patterns inside of some ops."""
        self.line(f"transform.apply_patterns to {handle} {{")
        self.line(f"  transform.apply_patterns.{patterns}")
        self.line(f"}} : {ANY}")

    def merged(self, handles: Sequence[str], hint: str) -> str:
        """Return one handle for the ops of several."""
        if len(handles) == 1:
            return handles[0]
        found = self.name(hint)
        self.line(f"{found} = transform.merge_handles {', '.join(handles)} : {ANY}")
        return found

    def merge_slices(self, loops: Sequence[str]) -> None:
        """Merge slices of slices inside of some loops.

        Slices outside of the loops stay, so that C is written in place.
        """
        self.apply_patterns(self.merged(loops, "regions"), MERGE_SLICES)

    def vectorize(self, handle: str) -> None:
        """Vectorise linalg ops."""
        self.line(f"transform.structured.vectorize {handle} : {ANY}")

    def vectorize_fills(self) -> None:
        """Vectorise the zeros that sums start from."""
        self.vectorize(self.match("linalg.fill", "zeros"))

    def unroll_full(self, loops: Sequence[str]) -> None:
        """Unroll loops completely, the last one first."""
        for loop in reversed(loops):
            self.line(f"transform.loop.unroll_full {loop} : {ANY}")

    def split(self, handle: str, after: int, axis: int, dim: str) -> list[str]:
        """Split an op's `axis`-th dim after some iterations; return both parts."""
        both = self.name("split")
        self.line(_split(both, handle, after, axis))
        return self.handles((f"{dim}_head", f"{dim}_rest"), f"split_handle {both}")

    def split_each(self, handle: str, after: int, axis: int, dim: str) -> list[str]:
        """Split each op of a handle as `split` does."""
        lines = (
            _split("%both", "%op", after, axis),
            f"%h, %r = transform.split_handle %both : ({ANY}) -> ({types(2)})",
        )
        return self.foreach(handle, lines, (f"{dim}_head", f"{dim}_rest"), ("%h", "%r"))

    def tile(self, handle: str, axis: int, size: int, dim: str, kind: str = "forall") -> list[str]:
        """Tile an op's `axis`-th dim by one loop; return the tile and the loop."""
        sizes = [*([0] * axis), size]
        op = f"structured.tile_using_{kind} {handle} tile_sizes {sizes}"
        return self.handles((f"{dim}_block", f"{dim}_loop"), op)

    def tile_for(
        self, handle: str, sizes: Sequence[int], order: Sequence[int] = ()
    ) -> tuple[str, list[str]]:
        """Tile by sequential loops; return the tile, and a loop for each size that is not 0.

        `order` has the dims of the loops, outermost first; by default they are in order.
        """
        ordered = f" interchange = {list(order)}" if list(order) != sorted(order) else ""
        tiled, *loops = self.handles(
            ("step", *("loop" for size in sizes if size)),
            f"structured.tile_using_for {handle} tile_sizes {list(sizes)}{ordered}",
        )
        return tiled, loops

    def boxed(self, handle: str) -> list[str]:
        """Put an op in a loop of one trip, into which others can be fused; return both."""
        op = f"structured.tile_using_forall {handle} num_threads [1]"
        return self.handles(("part", "box"), op)

    def pad(
        self,
        handle: str,
        hints: Sequence[str],
        values: Sequence[str],
        dims: Sequence[int],
        nofold: Sequence[int],
        copy_back: str = "none",
        options: str = "",
    ) -> str:
        """Give an op padded copies of its operands; return the op.

        Args:
            handle: on the op.
            hints: names of the op, the pads and the copies back.
            values: the padding of each operand, an attribute.
            dims: of the op, along which operands are padded.
            nofold: for each operand whether it is copied even without padding.
            copy_back: the op that copies the result back.
            options: before the attributes.
        """
        return self.handles(
            hints,
            f"structured.pad {handle} {options}<{{padding_values = [{', '.join(values)}], "
            f"padding_dimensions = {list(dims)}, nofold_flags = {list(nofold)}, "
            f'copy_back_op = "{copy_back}"}}>',
        )[0]

    def copied(self, user: str, operand: int) -> str:
        """Copy what an op reads of a padded tensor to where its zeros are."""
        pixels = self.in_place(self.producer(user, operand, "pad"), "pixels")
        return self.handle("lines", f"structured.insert_slice_to_copy {pixels}")

    def fuse(self, producer: str, loop: str, hint: str) -> list[str]:
        """Fuse an op into the loop that uses it; return the op and the loop."""
        op = f"structured.fuse_into_containing_op {producer} into {loop}"
        return self.handles((hint, "around"), op, operands=2)


def _split(name: str, handle: str, after: int, axis: int) -> str:
    return (
        f"{name} = transform.structured.split {handle} after {after} {{dimension = {axis}}} : {ANY}"
    )
