"""Check the moves in transformed IR against the requirements of K-streaming.

With L3, L2 and L1 as memory spaces 0, 1 and 2:

a) A and B are copied from L3 to L2 in the outer K loop, outside of the inner one;
b) the inner K loop packs A and B from L2 to L1, and nothing else;
c) C is filled in L1 in its packed shape, no K loop packs or copies it, and it is unpacked
   after both loops.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from iree.compiler import ir

from tilewise.kernels.mlir.air.schedule import KStreaming, padded
from tilewise.kernels.mlir.air.script import L1, L2, L3
from tilewise.kernels.mlir.dialects import children
from tilewise.kernels.mlir.lowering.apply import StageError
from tilewise.kernels.mlir.lowering.structure import constant_of
from tilewise.kernels.problem import Matmul

MOVES = ("linalg.fill", "linalg.copy", "memref.copy", "linalg.pack", "linalg.unpack")
COMPUTE = "linalg.generic"
PERMUTED = ("array<i64: 1, 0>", "array<i64: 0, 1>")
"""The outer permutation and the inner positions of every pack and unpack."""
Shape = tuple[int, ...]


@dataclass(frozen=True)
class IrLoop:
    """A loop of the IR; `number` distinguishes those that look alike."""

    number: int
    name: str
    trips: Shape
    mapping: tuple[str, ...] = ()

    def __str__(self) -> str:
        units = f" on {', '.join(self.mapping)}" if self.mapping else ""
        return f"{self.name} of {'x'.join(map(str, self.trips))}{units}"


@dataclass(frozen=True)
class Buffer:
    """A memref that an operation reads or writes: its shape and memory space."""

    shape: Shape
    space: int

    def __str__(self) -> str:
        return f"{'x'.join(map(str, self.shape))} in L{L1 - self.space + 1}"


@dataclass(frozen=True)
class OperationPlace:
    """An operation on buffers and the loops around it, outermost first.

    Attributes:
        number: position in the text.
        buffers: memref operands, inputs first.
        order: outer permutation and inner positions of a pack or unpack.
    """

    number: int
    name: str
    loops: tuple[IrLoop, ...]
    buffers: tuple[Buffer, ...]
    order: tuple[str, ...] = ()

    @property
    def spaces(self) -> Shape:
        """The memory spaces, inputs first."""
        return tuple(buffer.space for buffer in self.buffers)

    @property
    def target(self) -> Shape:
        """The shape of what it writes."""
        return self.buffers[-1].shape

    def __str__(self) -> str:
        inside = ", ".join(map(str, self.loops)) or "no loop"
        return f"{self.name} of {' and '.join(map(str, self.buffers))}, inside {inside}"


def places(module: Any) -> tuple[OperationPlace, ...]:
    """Return every move and computation on buffers in order; raise StageError if not static."""
    return tuple(_walk(module.operation, (), [0]))


def _walk(
    operation: Any, loops: tuple[IrLoop, ...], counter: list[int]
) -> Iterator[OperationPlace]:
    for inner in children(operation):
        counter[0] += 1
        if inner.name in (*MOVES, COMPUTE):
            keys = ("outer_dims_perm", "inner_dims_pos")
            order = tuple(str(inner.attributes[key]) for key in keys if key in inner.attributes)
            yield OperationPlace(counter[0], inner.name, loops, _buffers(inner), order)
            continue
        is_loop = inner.name in ("scf.for", "scf.forall")
        yield from _walk(inner, (*loops, _loop(inner, counter[0])) if is_loop else loops, counter)


def _buffers(operation: Any) -> tuple[Buffer, ...]:
    found = []
    for value in operation.operands:
        kind = value.type
        if isinstance(kind, ir.MemRefType):
            if not kind.has_static_shape:
                raise StageError("structure", f"a shape is not static: {operation}")
            space = kind.memory_space
            found.append(Buffer(tuple(kind.shape), ir.IntegerAttr(space).value if space else L3))
    return tuple(found)


def _loop(operation: Any, number: int) -> IrLoop:
    if operation.name == "scf.for":
        bounds = [constant_of(operation.operands[i]) for i in range(3)]
        if None in bounds:
            raise StageError("structure", f"a loop's bounds are not static: {operation}")
        low, high, step = (int(bound) for bound in bounds if bound is not None)
        return IrLoop(number, "for", (-(-(high - low) // step),))
    trips = tuple(ir.DenseI64ArrayAttr(operation.attributes["staticUpperBound"]))
    mapping: tuple[str, ...] = ()
    if "mapping" in operation.attributes:
        mapping = tuple(str(unit) for unit in ir.ArrayAttr(operation.attributes["mapping"]))
    return IrLoop(number, "forall", trips, mapping)


def check_wishes(found: tuple[OperationPlace, ...], problem: Matmul, schedule: KStreaming) -> None:
    """Raise StageError `structure` unless the IR has exactly the required moves."""
    s, whole = schedule, padded(problem, schedule)
    compute = [place for place in found if place.name == COMPUTE]
    if len(compute) != 1 or compute[0].spaces != (L1, L1, L1):
        raise _broken("one computation, on packed tiles in L1", compute)
    threads, outer, inner = _check_loops(compute[0], whole, s)
    in_l2 = [p for p in found if p.name.endswith("copy") and p.spaces == (L3, L2)]
    shapes = [(s.thread_m, s.outer_k), (s.outer_k, s.thread_n)]
    if [(p.loops, p.target) for p in in_l2] != [(outer, shape) for shape in shapes]:
        raise _broken(
            "a) two copies from L3 to L2 in the outer K loop and outside of the inner", in_l2
        )
    packs = [p for p in found if p.name == "linalg.pack"]
    m, n, k = s.thread_m // s.pack_m, s.thread_n // s.pack_n, s.inner_k // s.pack_k
    tiles = [(k, m, s.pack_m, s.pack_k), (n, k, s.pack_k, s.pack_n)]
    if [(p.loops, p.spaces, p.order, p.target) for p in packs] != [
        (inner, (L2, L1), PERMUTED, tile) for tile in tiles
    ]:
        raise _broken("b) exactly two packs, from L2 to L1, in the inner K loop", packs)
    result = _check_result(found, compute[0], (n, m, s.pack_m, s.pack_n), s, threads)
    pads = _check_pads(found, problem, whole)
    rest = [p for p in found if p not in (*compute, *in_l2, *packs, *result, *pads)]
    if rest:
        raise _broken("nothing else is moved", rest)


def _check_loops(
    compute: OperationPlace, whole: Matmul, s: KStreaming
) -> tuple[tuple[IrLoop, ...], ...]:
    """Return the loops around a thread's body, an outer chunk, and an inner chunk."""
    blocks = (whole.m // s.block_m, whole.n // s.block_n)
    wanted: list[tuple[str, Shape, tuple[str, ...]]] = [
        ("forall", trips, (f"#gpu.{unit}<y>", f"#gpu.{unit}<x>"))
        for trips, unit in ((blocks, "block"), (s.threads, "thread"))
    ]
    chunks = (whole.k // s.outer_k, s.outer_k // s.inner_k)
    wanted += [("for", (trips,), ()) for trips in chunks if trips > 1]
    if [(loop.name, loop.trips, loop.mapping) for loop in compute.loops] != wanted:
        loops = ", ".join(str(IrLoop(0, *one)) for one in wanted)
        raise _broken(f"the loops {loops}", [compute])
    return compute.loops[:2], compute.loops[: 2 + (chunks[0] > 1)], compute.loops


def _check_result(
    found: tuple[OperationPlace, ...],
    compute: OperationPlace,
    tile: Shape,
    s: KStreaming,
    threads: tuple[IrLoop, ...],
) -> list[OperationPlace]:
    """Return the fill, the unpack, and the copy of the block's tile if it goes through L2."""
    fills = [p for p in found if p.name == "linalg.fill" and p.spaces != (L3,)]
    begin = min([compute.number, *(loop.number for loop in compute.loops[2:])])
    if [(p.loops, p.buffers) for p in fills] != [(threads, (Buffer(tile, L1),))] or fills[
        0
    ].number > begin:
        raise _broken("c) one fill in L1, in the packed shape, before the K loops", fills)
    unpacks = [p for p in found if p.name == "linalg.unpack"]
    end = L2 if s.result == "l2" else L3
    if [(p.loops, p.spaces, p.order) for p in unpacks] != [
        (threads, (L1, end), PERMUTED)
    ] or unpacks[0].number < compute.number:
        raise _broken(f"c) one unpack, from L1 to L{L1 - end + 1}, after the K loops", unpacks)
    copies = [p for p in found if p.name.endswith("copy") and p.spaces == (L2, L3)]
    wanted = [(threads[:1], (s.block_m, s.block_n))] if end == L2 else []
    if [(p.loops, p.target) for p in copies] != wanted:
        raise _broken("c) one copy of each block's tile from L2 to L3", copies)
    if copies and copies[0].number < unpacks[0].number:
        raise _broken("c) the copy of a block's tile after its threads", copies)
    return [*fills, *unpacks, *copies]


def _check_pads(
    found: tuple[OperationPlace, ...], problem: Matmul, whole: Matmul
) -> list[OperationPlace]:
    """Return the copies into and out of padded operands, and the zeros around A and B."""
    given, wide = problem.operand_shapes, whole.operand_shapes
    changed = [name for name in given if given[name] != wide[name]]
    pads = [p for p in found if p.name.endswith("copy") and p.spaces == (L3, L3)]
    zeros = [p for p in found if p.name == "linalg.fill" and p.spaces == (L3,)]
    expected = [
        sorted(given[name] for name in changed),
        sorted(wide[name] for name in changed if name != "C"),
    ]
    shapes = [sorted(p.target for p in moves) for moves in (pads, zeros)]
    if any(p.loops for p in (*pads, *zeros)) or shapes != expected:
        wish = "one copy in L3 of each operand that is padded, outside of all loops"
        raise _broken(wish, [*pads, *zeros])
    return [*pads, *zeros]


def _broken(wish: str, found: list[OperationPlace]) -> StageError:
    places = "; ".join(map(str, found)) or "nothing of the kind"
    return StageError("structure", f"wished for: {wish}; found: {places}")
