"""Walking transformed IR: what is moved where, and whether that is what was wished for.

The wishes, with L3, L2 and L1 as memory spaces 0, 1 and 2:

a) A and B are copied from L3 to L2 in the outer K loop, outside of the inner one;
b) the inner K loop packs A and B from L2 to L1, and nothing else;
c) C is filled in L1 in its packed shape, no K loop packs or copies it, and it is unpacked
   once both have ended.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from iree.compiler import ir

from tilewise.kernels.mlir.air.schedule import KStreaming, padded
from tilewise.kernels.mlir.lowering.apply import StageError
from tilewise.kernels.problem import Matmul

L3, L2, L1 = 0, 1, 2
MOVES = ("linalg.fill", "linalg.copy", "memref.copy", "linalg.pack", "linalg.unpack")
COMPUTE = "linalg.generic"
SWAPPED = "array<i64: 1, 0>"
STRAIGHT = "array<i64: 0, 1>"


@dataclass(frozen=True)
class Loop:
    """A loop of the IR; `number` tells apart those that look alike."""

    number: int
    name: str
    trips: tuple[int, ...]
    mapping: tuple[str, ...] = ()

    def __str__(self) -> str:
        units = f" on {', '.join(self.mapping)}" if self.mapping else ""
        return f"{self.name} of {'x'.join(map(str, self.trips))}{units}"


@dataclass(frozen=True)
class Buffer:
    """What an operation reads or writes: a memref's shape and memory space."""

    shape: tuple[int, ...]
    space: int

    def __str__(self) -> str:
        return f"{'x'.join(map(str, self.shape))} in L{L1 - self.space + 1}"


@dataclass(frozen=True)
class Place:
    """An operation on buffers and the loops around it, outermost first.

    Attributes:
        number: its position in the text.
        name: of the operation.
        loops: around it.
        buffers: its memref operands, inputs first.
        order: a pack's or unpack's outer permutation and inner positions.
    """

    number: int
    name: str
    loops: tuple[Loop, ...]
    buffers: tuple[Buffer, ...]
    order: tuple[str, ...] = ()

    @property
    def spaces(self) -> tuple[int, ...]:
        """The memory spaces, inputs first."""
        return tuple(buffer.space for buffer in self.buffers)

    def __str__(self) -> str:
        inside = ", ".join(map(str, self.loops)) or "no loop"
        return f"{self.name} of {' and '.join(map(str, self.buffers))}, inside {inside}"


def places(module: Any) -> tuple[Place, ...]:
    """Every move and every computation on buffers, in the order of the text.

    Raises:
        StageError: `structure`, where a shape or a trip count is not static.
    """
    return tuple(_walk(module.operation, (), [0]))


def _walk(operation: Any, loops: tuple[Loop, ...], counter: list[int]) -> Iterator[Place]:
    for region in operation.regions:
        for block in region.blocks:
            for op in block.operations:
                inner = op.operation
                counter[0] += 1
                if inner.name in (*MOVES, COMPUTE):
                    order = tuple(
                        str(inner.attributes[key])
                        for key in ("outer_dims_perm", "inner_dims_pos")
                        if key in inner.attributes
                    )
                    yield Place(counter[0], inner.name, loops, _buffers(inner), order)
                    continue
                within = loops
                if inner.name in ("scf.for", "scf.forall"):
                    within = (*loops, _loop(inner, counter[0]))
                yield from _walk(inner, within, counter)


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


def _loop(operation: Any, number: int) -> Loop:
    if operation.name == "scf.for":
        low, high, step = (_constant(operation, i) for i in range(3))
        return Loop(number, "for", (-(-(high - low) // step),))
    bounds = tuple(ir.DenseI64ArrayAttr(operation.attributes["staticUpperBound"]))
    mapping: tuple[str, ...] = ()
    if "mapping" in operation.attributes:
        mapping = tuple(str(unit) for unit in ir.ArrayAttr(operation.attributes["mapping"]))
    return Loop(number, "forall", bounds, mapping)


def _constant(loop: Any, index: int) -> int:
    owner = loop.operands[index].owner
    if isinstance(owner, ir.Block) or owner.name != "arith.constant":
        raise StageError("structure", f"a loop's bounds are not static: {loop}")
    return int(ir.IntegerAttr(owner.attributes["value"]).value)


class Expected:
    """The loops, shapes and counts that a schedule promises."""

    def __init__(self, problem: Matmul, schedule: KStreaming) -> None:
        s, given, problem = schedule, problem, padded(problem, schedule)
        shapes, whole = given.operand_shapes, problem.operand_shapes
        self.pads = sorted(shape for name, shape in shapes.items() if shape != whole[name])
        self.zeros = sorted(whole[name] for name in "AB" if shapes[name] != whole[name])
        self.result = s.result
        self.spatial = (
            ((problem.m // s.block_m, problem.n // s.block_n), ("block", ("y", "x"))),
            (s.threads, ("thread", ("y", "x"))),
        )
        self.outer, self.inner = problem.k // s.outer_k, s.outer_k // s.inner_k
        m, n, m0, n0, k0 = s.thread_m, s.thread_n, s.pack_m, s.pack_n, s.pack_k
        self.block = (s.block_m, s.block_n)
        self.in_l2 = ((m, s.outer_k), (s.outer_k, n))
        k = s.inner_k // k0
        self.in_l1 = ((k, m // m0, m0, k0), (n // n0, k, k0, n0))
        self.packed_c = (n // n0, m // m0, m0, n0)


def check_wishes(found: tuple[Place, ...], problem: Matmul, schedule: KStreaming) -> None:
    """Raise unless the IR has exactly the moves that were wished for, each in its place.

    Raises:
        StageError: `structure`, naming the wish and the operation that breaks it.
    """
    expected = Expected(problem, schedule)
    compute = [place for place in found if place.name == COMPUTE]
    if len(compute) != 1 or compute[0].spaces != (L1, L1, L1):
        raise _broken("one computation, on packed tiles in L1", compute)
    threads, outer, inner = _check_loops(compute[0], expected)
    in_l2 = [p for p in found if p.name.endswith("copy") and p.spaces == (L3, L2)]
    wish = "a) two copies from L3 to L2 in the outer K loop and outside of the inner"
    if [p.loops for p in in_l2] != [outer] * 2 or _targets(in_l2) != expected.in_l2:
        raise _broken(wish, in_l2)
    packs = [p for p in found if p.name == "linalg.pack"]
    wish = "b) exactly two packs, from L2 to L1, in the inner K loop"
    straight = [(SWAPPED, STRAIGHT)] * 2
    if [(p.loops, p.spaces, p.order) for p in packs] != [
        (inner, (L2, L1), order) for order in straight
    ] or _targets(packs) != expected.in_l1:
        raise _broken(wish, packs)
    result = _check_result(found, compute[0], expected, threads)
    pads = _check_pads(found, expected)
    rest = [p for p in found if p not in (*compute, *in_l2, *packs, *result, *pads)]
    if rest:
        raise _broken("nothing else is moved", rest)


def _check_loops(compute: Place, expected: Expected) -> tuple[tuple[Loop, ...], ...]:
    """The loops around a thread's body, an outer chunk, and an inner chunk."""
    wanted: list[tuple[str, tuple[int, ...], tuple[str, ...]]] = [
        ("forall", trips, tuple(f"#gpu.{unit}<{axis}>" for axis in axes))
        for trips, (unit, axes) in expected.spatial
    ]
    wanted += [("for", (trips,), ()) for trips in (expected.outer, expected.inner) if trips > 1]
    if [(loop.name, loop.trips, loop.mapping) for loop in compute.loops] != wanted:
        told = ", ".join(str(Loop(0, *one)) for one in wanted)
        raise _broken(f"the loops {told}", [compute])
    outer = compute.loops[: 2 + (expected.outer > 1)]
    return compute.loops[:2], outer, compute.loops


def _check_result(
    found: tuple[Place, ...], compute: Place, expected: Expected, threads: tuple[Loop, ...]
) -> list[Place]:
    """The fill and the unpack, and the copy of the block's tile where it goes through L2."""
    fills = [p for p in found if p.name == "linalg.fill" and p.spaces != (L3,)]
    wish = "c) one fill in L1, in the packed shape, before the K loops"
    if [(p.loops, p.buffers) for p in fills] != [
        (threads, (Buffer(expected.packed_c, L1),))
    ] or fills[0].number > min([compute.number, *(x.number for x in compute.loops[2:])]):
        raise _broken(wish, fills)
    unpacks = [p for p in found if p.name == "linalg.unpack"]
    end = L2 if expected.result == "l2" else L3
    wish = f"c) one unpack, from L1 to L{L1 - end + 1}, after the K loops"
    if [(p.loops, p.spaces, p.order) for p in unpacks] != [
        (threads, (L1, end), (SWAPPED, STRAIGHT))
    ] or unpacks[0].number < compute.number:
        raise _broken(wish, unpacks)
    copies = [p for p in found if p.name.endswith("copy") and p.spaces == (L2, L3)]
    wanted = [(threads[:1], expected.block)] if end == L2 else []
    if [(p.loops, p.buffers[-1].shape) for p in copies] != wanted:
        raise _broken("c) one copy of each block's tile from L2 to L3", copies)
    if copies and copies[0].number < unpacks[0].number:
        raise _broken("c) the copy of a block's tile after its threads", copies)
    return [*fills, *unpacks, *copies]


def _check_pads(found: tuple[Place, ...], expected: Expected) -> list[Place]:
    """The copies into and out of padded operands, and the zeros around A and B."""
    pads = [p for p in found if p.name.endswith("copy") and p.spaces == (L3, L3)]
    zeros = [p for p in found if p.name == "linalg.fill" and p.spaces == (L3,)]
    shapes = [sorted(p.buffers[-1].shape for p in moves) for moves in (pads, zeros)]
    if any(p.loops for p in (*pads, *zeros)) or shapes != [expected.pads, expected.zeros]:
        wish = "one copy in L3 of each operand that is padded, outside of all loops"
        raise _broken(wish, [*pads, *zeros])
    return [*pads, *zeros]


def _targets(moves: list[Place]) -> tuple[tuple[int, ...], ...]:
    return tuple(move.buffers[-1].shape for move in moves)


def _broken(wish: str, found: list[Place]) -> StageError:
    told = "; ".join(map(str, found)) or "nothing of the kind"
    return StageError("structure", f"wished for: {wish}; found: {told}")
