"""The features of a point: the analytical model's amounts, sizes against caches, the machine."""

from collections.abc import Sequence
from math import log2

import numpy as np
from numpy.typing import NDArray

from tilewise.search.model.amounts import AMOUNTS, FMA_UNITS
from tilewise.search.model.traffic import PAGE_BYTES
from tilewise.search.predictor.candidates import Candidate
from tilewise.search.space.algorithms import PAST_CACHES, WANTED, algorithm_of
from tilewise.search.space.parameters import Size
from tilewise.search.space.points import Point
from tilewise.search.space.space import Space

Array = NDArray[np.float64]

KINDS = ("outer", "split", "sweep", "matrix")
OF_POINT = (
    "rows", "vectors", "kind", "partial_sums", "k_block", "streams", "registers", "ratio",
    "unroll", "outer", "pack_a", "pack_b", "prefetch", "chunks", "winograd", "strassen", "tiles",
    "nontemporal", "lines", "depth", "block_cols", "block_rows", "block_a", "block_b", "strip",
    "panel", "k_blocks", "cut_rows", "cut_cols",
)  # fmt: skip
OF_PROBLEM = (
    "problem_rows", "problem_cols", "problem_depth", "taps", "bytes_a", "bytes_b", "in_pages",
    "stride_a", "stride_b", "element", "is_image", "is_float", "is_constant", "lanes",
    "vector_registers", "l1", "l2", "l3", "has_far_l3",
)  # fmt: skip
NAMES = (*OF_POINT, *AMOUNTS, *OF_PROBLEM)


def features(space: Space, candidates: Sequence[Candidate]) -> Array:
    """Return a row of `NAMES` for each candidate."""
    workload = space.workload
    ideal = space.problem.flops / 2 / workload.lanes / FMA_UNITS
    problem = _of_problem(space)
    depth, cols = space.parameter("depth"), space.parameter("cols")
    rows = space.parameter("image_rows") or space.parameter("rows")
    assert isinstance(depth, Size) and isinstance(cols, Size) and isinstance(rows, Size)
    sides = depth, cols, rows
    return np.array([
        [*_of_point(space, one.point, *sides), *(count / ideal for count in one.amounts), *problem]
        for one in candidates
    ])  # fmt: skip


def _number_of(kind: str) -> int:
    """Return the number of a kind of tile; those of extensions share one."""
    return KINDS.index(kind) if kind in KINDS else len(KINDS)


def _of_problem(space: Space) -> tuple[float, ...]:
    workload, target, element = space.workload, space.target, space.problem.element
    a, b = workload.stored["A"], workload.stored["B"]
    return (
        log2(workload.rows), log2(workload.cols), log2(workload.depth), workload.nest.taps,
        log2(a.total / target.l2_bytes), log2(b.total / target.l2_bytes),
        b.stride % PAGE_BYTES == 0, log2(a.stride), log2(b.stride), element.bytes,
        bool(workload.nest.image), element.is_float, workload.b.is_constant, workload.lanes,
        target.vector_registers, log2(target.l1_bytes), log2(target.l2_bytes),
        log2(target.l3_bytes + 1), target.core.far_l3 is not None,
    )  # fmt: skip


def _of_point(
    space: Space, point: Point, of_depth: Size, of_cols: Size, of_rows: Size
) -> tuple[float, ...]:
    workload, target, tile = space.workload, space.target, point["tile"]
    depth, cols = of_depth.size(point["depth"]), of_cols.size(point["cols"])
    rows, high, wide = of_rows.size(point[of_rows.name]), tile.rows, tile.cols(workload.lanes)
    algorithm, line = algorithm_of(point), depth * space.problem.element.bytes
    area = high * tile.vectors
    return (
        high, tile.vectors, _number_of(tile.kind), tile.partial_sums, tile.depth, tile.streams,
        (area + tile.vectors) / target.vector_registers, area / (high + tile.vectors),
        point["unroll"], point["outer"] == "rows", point["pack_a"], point["pack_b"],
        bool(point.get("prefetch")), point.get("chunks") == "outer",
        algorithm.get("winograd", 0), algorithm.get("strassen", 0), point.get(WANTED, 0),
        bool(point.get(PAST_CACHES)), point.get("lines", 1),
        log2(depth), log2(cols), log2(rows),
        log2(rows * line / target.l2_bytes), log2(cols * line / target.l2_bytes),
        log2(high * line / target.l1_bytes), log2(wide * line / target.l1_bytes),
        workload.depth / depth, -workload.rows % high / workload.rows,
        -workload.cols % wide / workload.cols,
    )  # fmt: skip
