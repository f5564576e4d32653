"""The loop nest as text, a line for each node."""

from collections.abc import Iterator

from tilewise.kernels.nest.nest import Here, Nest
from tilewise.kernels.nest.nodes import Compute, Fetch, Loop, Node, Stage, Store
from tilewise.kernels.nest.shapes import shape_of


def printed(nest: Nest) -> Iterator[str]:
    """Yield the nest as text, a line for each node."""
    for here in nest.visit():
        yield "  " * len(here.loops) + _line(nest, here)


def text(node: Node) -> str:
    """Return a node as text, without what follows from the loops around it and inside of it."""
    if isinstance(node, Loop):
        return f"for {node.dim} step {node.step}"
    if isinstance(node, Stage):
        return f"{'transform' if node.transforms else 'pack'} {node.operand} to {node.layout.value}"
    if isinstance(node, Fetch):
        ahead = f", {node.distance} bytes ahead" if node.distance else ""
        return f"prefetch {node.what.value} of {node.operand} to L{node.level}{ahead}"
    return _store_text(node) if isinstance(node, Store) else "C += A * B"


def _line(nest: Nest, here: Here) -> str:
    node = here.node
    if isinstance(node, Loop):
        notes = [node.kind.value, f"{here.trips} trips"]
        notes += ["in the micro-kernel"] if node.in_kernel else []
        notes += [f"of {node.streams} streams"] if node.streams > 1 else []
        return f"{text(node)}:  # {', '.join(notes)}"
    if isinstance(node, Stage):
        shape = "x".join(map(str, shape_of(nest, here)))
        words = f" in words of {node.word}" if node.word > 1 else ""
        return f"{text(node)} {shape}{words}{', ahead' * node.is_ahead}"
    if isinstance(node, Compute):
        return text(node) + _compute_notes(nest, node, here.blocks[nest.k])
    return text(node)


def _store_text(node: Store) -> str:
    ends = ["bias"] * node.has_bias + ["relu"] * node.has_relu
    ends += [f"at most {node.ceiling}"] if node.ceiling is not None else []
    ends += ["past the caches"] * node.is_nontemporal
    verb = "transform products to C" if node.transforms else "store C"
    begins = " + C" if node.adds_to_c else ""
    return verb + begins + (f" ({', '.join(ends)})" if ends else "")


def _compute_notes(nest: Nest, node: Compute, depth: int) -> str:
    if node.tile is None:
        return ""
    jammed = f"{node.tile.lines}x" if node.tile.lines > 1 else ""
    taps = f" x {nest.taps} taps" if nest.taps > 1 else ""
    split = f" in {node.lanes} partial sums" if node.lanes > 1 else ""
    unroll = f", unrolled {node.unroll}" if node.unroll > 1 else ""
    how = f" by {node.instruction}" if node.instruction else ""
    size = f"{jammed}{node.tile.rows}x{node.tile.cols}"
    return f"  # {size} over {depth}{taps}{split}{how}{unroll}"
