"""Choose a K-streaming schedule by declared capacities and counted bytes.

No such machine is here to measure on, so a model chooses: what the script allocates has to fit
(chunks of A and B twice, since the next one is copied while the present one is used), as many cores
as possible are busy, and the nest's stages move the fewest bytes.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from tilewise.kernels.errors import ScheduleError
from tilewise.kernels.mlir.air.schedule import KStreaming, Result, check_streaming, padded
from tilewise.kernels.mlir.cpu.loops import largest_divisor
from tilewise.kernels.nest import (
    Compute,
    Layout,
    Loop,
    LoopKind,
    MicroTile,
    Nest,
    Stage,
    Store,
    count,
    nest_of,
)
from tilewise.kernels.problem import Matmul

KIB = 1 << 10
FEW = 8
MODELLED = "modelled, not measured"


@dataclass(frozen=True, kw_only=True)
class Memories:
    """The declared machine; the defaults resemble one column pair of an AIE.

    Attributes:
        l1_bytes, l2_bytes: memory of a core, and of the cores of a block together.
        rows, cols: cores of a block along m and n.
        buffers: copies held of each chunk; 2 if transfers overlap the work.
        burst_bytes: preferred least length of a row of A's inner chunk.
        pack: the largest m0, n0, k0 of the innermost matmul.
    """

    l1_bytes: int = 64 * KIB
    l2_bytes: int = 512 * KIB
    rows: int = 2
    cols: int = 2
    buffers: int = 2
    burst_bytes: int = 64
    pack: tuple[int, int, int] = (4, 8, 8)


AIE = Memories()


@dataclass(frozen=True)
class Traffic:
    """Bytes that one execution moves, and bytes that a core (L1) and a block (L2) hold.

    A and B move from L3 to L2 in `copies` transfers and from L2 to L1 in `packs`; `result` counts
    every transfer of C.
    """

    l3_to_l2: int
    l2_to_l1: int
    copies: int
    packs: int
    result: int
    l1_bytes: int
    l2_bytes: int


def nest(problem: Matmul, schedule: KStreaming, level: int) -> Nest:
    """Return the loops around the copies into L2 (`level` 2) or the packs into L1 (`level` 1)."""
    s, whole = schedule, nest_of(problem)
    depths, cols = ((s.outer_k,), 1) if level == 2 else ((s.outer_k, s.inner_k), s.pack_n)
    out = replace(whole, body=(Compute(MicroTile(s.thread_m, cols)), Store()))
    for dim, size in (("m", s.block_m), ("n", s.block_n), ("m", s.thread_m), ("n", s.thread_n)):
        out = out.around(Loop(dim, size, LoopKind.PARALLEL))
    for depth in depths:
        out = out.around(Loop("k", depth, LoopKind.K_BLOCK))
    is_ahead = whole.operand("B").is_constant
    return out.inside(Stage("A", Layout.ROWS), Stage("B", Layout.PANELS, is_ahead=is_ahead))


def traffic(problem: Matmul, schedule: KStreaming, buffers: int = AIE.buffers) -> Traffic:
    """Count what `schedule` moves and holds; raise ScheduleError if a size does not divide."""
    check_streaming(problem, schedule)
    given, problem = problem, padded(problem, schedule)
    s, element = schedule, problem.element
    outer, inner = (count(nest(problem, s, level)) for level in (2, 1))
    edge = (s.thread_m + s.thread_n) * element.bytes * buffers
    through_l2 = s.result == "l2"
    cores = s.threads[0] * s.threads[1]
    return Traffic(
        l3_to_l2=sum(outer.packed_bytes.values()),
        l2_to_l1=sum(inner.packed_bytes.values()),
        copies=sum(outer.packs.values()),
        packs=sum(inner.packs.values()),
        result=given.m * given.n * element.accumulator_bytes * (1 + through_l2),
        l1_bytes=edge * s.inner_k + s.thread_m * s.thread_n * element.accumulator_bytes,
        l2_bytes=edge * s.outer_k * cores
        + s.block_m * s.block_n * element.accumulator_bytes * through_l2,
    )


def choose(problem: Matmul, memories: Memories = AIE, result: Result = "l3") -> KStreaming:
    """Return the schedule that fits `memories` and moves the fewest bytes.

    Busy cores, size of packs, number of K loops and whole bursts of A come before bytes. Of the
    depths that fit, the deepest is taken. Raise ScheduleError if nothing fits.
    """
    found: list[tuple[tuple[float, ...], KStreaming]] = []
    problem = _rounded(problem)
    for m in _divisors(problem.m):
        for n in _divisors(problem.n):
            schedule = _tile(problem, memories, result, m, n)
            if schedule is not None:
                found.append((_cost(problem, memories, schedule), schedule))
    if not found:
        raise ScheduleError(
            f"{problem}: not even a tile of one element fits L1 of {memories.l1_bytes} bytes and "
            f"L2 of {memories.l2_bytes}; declare more"
        )
    return min(found, key=lambda pair: pair[0])[1]


def describe(problem: Matmul, schedule: KStreaming, memories: Memories = AIE) -> tuple[str, ...]:
    """Return the lines of a script's header on the model's choice."""
    t = traffic(problem, schedule, memories.buffers)
    rows, cols = schedule.threads
    return (
        f"chosen:   {MODELLED}, for {memories.rows}x{memories.cols} cores, L1 of "
        f"{memories.l1_bytes} bytes, L2 of {memories.l2_bytes}",
        f"holds:    L1 {t.l1_bytes} bytes, L2 {t.l2_bytes}, chunks {memories.buffers} times; "
        f"{rows}x{cols} cores busy",
        f"moves:    L3 to L2 {t.l3_to_l2} bytes in {t.copies} copies, L2 to L1 {t.l2_to_l1} "
        f"in {t.packs} packs, results {t.result}",
    )


def _rounded(problem: Matmul) -> Matmul:
    """Round sizes up to have more divisors: by at most 1/16, or to the next multiple of eight."""

    def up(size: int) -> int:
        if size < FEW or size % FEW == 0:
            return size
        unit = max(FEW, min(1 << (size // 16).bit_length() - 1, 16 * FEW) if size >= 16 else FEW)
        return -(-size // unit) * unit

    return replace(problem, m=up(problem.m), n=up(problem.n), k=up(problem.k))


def _tile(problem: Matmul, memories: Memories, result: Result, m: int, n: int) -> KStreaming | None:
    """Return the schedule with tiles of m x n per thread; None if it does not fit."""
    element = problem.element
    rows = _largest(problem.m // m, memories.rows)
    cols = _largest(problem.n // n, memories.cols)
    c = m * n * element.accumulator_bytes
    edge = (m + n) * element.bytes * memories.buffers
    left = memories.l2_bytes - c * rows * cols * (result == "l2")
    inner_limit = (memories.l1_bytes - c) // edge
    outer_limit = left // (edge * rows * cols)
    burst = -(-memories.burst_bytes // element.bytes)
    for outer, inner, pack_k in _depths(problem.k, memories.pack[2], burst):
        if outer <= outer_limit and inner <= inner_limit:
            return KStreaming(
                block_m=m * rows,
                block_n=n * cols,
                thread_m=m,
                thread_n=n,
                outer_k=outer,
                inner_k=inner,
                pack_m=_largest(m, memories.pack[0]),
                pack_n=_largest(n, memories.pack[1]),
                pack_k=pack_k,
                result=result,
            )
    return None


@lru_cache(maxsize=16)
def _depths(k: int, pack_limit: int, burst: int) -> tuple[tuple[int, int, int], ...]:
    """Return every outer depth, inner depth and pack size of K, the best first."""
    pairs = [
        (outer, inner, _largest(inner, pack_limit))
        for outer in _divisors(k)
        for inner in _divisors(outer)
    ]
    whole = _largest(k, pack_limit)

    def merit(pair: tuple[int, int, int]) -> tuple[int, ...]:
        outer, inner, pack = pair
        return (pack == whole, _loops(k, *pair[:2], pack_limit), inner >= burst, outer, inner)

    return tuple(sorted(pairs, key=merit, reverse=True))


def _cost(problem: Matmul, memories: Memories, schedule: KStreaming) -> tuple[float, ...]:
    """Return the key by which tiles are compared; the smallest wins."""
    s = schedule
    t = traffic(problem, s, memories.buffers)
    packed = s.pack_m * s.pack_n * s.pack_k
    in_bursts = s.inner_k * problem.element.bytes >= memories.burst_bytes
    cores = s.threads[0] * s.threads[1]
    bytes_moved = t.l3_to_l2 + t.l2_to_l1 + t.result
    loops = _loops(problem.k, s.outer_k, s.inner_k, memories.pack[2])
    return (-cores, -packed, -loops, -in_bursts, bytes_moved, t.copies + t.packs, -s.thread_n)


def _loops(k: int, outer: int, inner: int, pack_limit: int) -> int:
    """Return the number of K loops that help; chunks shallower than a pack do not."""
    return ((outer < k) + (inner < outer)) * (inner >= pack_limit)


def _largest(number: int, limit: int) -> int:
    return largest_divisor((number,), limit)


def _divisors(number: int) -> Iterator[int]:
    """Yield the divisors of a number, ascending."""
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    yield from small
    yield from (number // d for d in reversed(small) if d * d != number)
