"""The first schedules to try, from the target's registers, latencies and caches alone.

After Low, Igual, Smith and Quintana-Orti, Analytical Modeling Is Enough for
High-Performance BLIS (ACM TOMS 43(2), 2016): the register tile covers the latency of
the multiply-add units and loads as little as possible per multiply-add; a panel of B
stays in L1, a block of A in L2, a block of B in L3. Two things differ here and widen
the list: L2 is often large and fast enough to stream panels of B from it, so deeper
chunks (fewer visits to C) are tried too; and packing is a choice, since a small A
read in place costs nothing.
"""

from collections.abc import Iterator
from itertools import islice, product

from kernels.problem.iteration import is_packed_ahead
from search.parameters import WHOLE, Point, Value
from search.space import Space
from search.split_tiles import VECTORS, SplitTile

TILES_TRIED = 4
SPLITS_TRIED = 8
LONG_STREAM = 32  # vectors of a row, from which caches deliver one row at a time best
HALF = 2  # a cache is shared with what streams by, so half of it is counted on


def prior_points(space: Space, most: int) -> list[Point]:
    """Up to `most` points of different schedules, the most promising first."""
    seen: set[str] = set()
    chosen: list[Point] = []
    for point in _candidates(space):
        schedule = space.schedule(point)
        if schedule.hash in seen or space.why_illegal(schedule):
            continue
        seen.add(schedule.hash)
        chosen.append(point)
        if len(chosen) == most:
            break
    return chosen


def _candidates(space: Space) -> Iterator[Point]:
    """Model's own choice for each good register tile, then one change at a time.

    Where B comes from beyond L2, a panel that is fetched while the one before is computed
    on comes first: the visits to a large block of B cost what its reading costs otherwise.
    """
    yield from islice(_split_points(space), SPLITS_TRIED)
    tiles = list(islice(iter(best_tiles(space)), TILES_TRIED))
    unrolls = _unrolls(space)
    if "prefetch" in _names(space):
        for tile in tiles[:2]:
            base = _model_point(space, tile, unrolls[0])
            for depth in _depths_of_a_panel(space, tile):
                yield base | _fetched_panel(space, tile) | {"depth": depth}
    for unroll, tile in product(unrolls[:1], tiles):
        yield _model_point(space, tile, unroll)
    for tile in tiles[:2]:
        base = _model_point(space, tile, unrolls[0])
        for change in _changes(space, base):
            yield base | change
    for unroll, tile in product(unrolls[1:], tiles):
        yield _model_point(space, tile, unroll)


def _split_points(space: Space) -> Iterator[Point]:
    """Tiles of single columns, where there are any: large ones first, nothing else cut.

    Whole rows at a time where they are long; else all rows of a tile side by side.
    """
    registers = space.target.vector_registers
    is_long = space.dims.extent(space.dims.stream) >= LONG_STREAM * space.lanes

    def rank(tile: SplitTile) -> tuple[bool, int]:
        return tile.fits(registers) == is_long, -tile.rows * tile.cols

    for tile in sorted(space.split_tiles, key=rank):
        wanted = 1 if tile.vectors >= max(VECTORS) else 2
        yield {
            "tile": str(tile),
            "unroll": wanted if wanted in _values(space, "unroll") else 1,
            "outer": "cols",
            "pack_a": _values(space, "pack_a")[0],
            "pack_b": _values(space, "pack_b")[0],
            "depth": WHOLE,
            "cols": WHOLE,
            "rows": WHOLE,
        }


def _unrolls(space: Space) -> list[int]:
    """Fused accumulation hides the loop's overhead by unrolling; products apart spill sooner."""
    wanted = (2, 1, 4) if space.adds_apart else (4, 1, 2)
    return [u for u in wanted if u in _values(space, "unroll")]


def best_tiles(space: Space) -> list[tuple[int, int]]:
    """Register tiles by loads per multiply-add and by what the problem's edges waste."""
    rows_extent = space.dims.extent(space.dims.row)
    cols_extent = space.dims.extent(space.dims.col)

    def cost(tile: tuple[int, int]) -> float:
        rows, vectors = tile
        cols = vectors * space.lanes
        loads = (rows + vectors) / (rows * vectors)
        latency = max(1.0, 10 / (rows * vectors))
        waste = (
            -(-rows_extent // rows) * rows / rows_extent
            * _computed(cols_extent, cols, space.lanes) / cols_extent
        )  # fmt: skip
        return (1 + loads / 2) * latency * waste

    return sorted(space.register_tiles, key=cost)


def _division(space: Space) -> str:
    """The columns, else the dim with most to divide: then no thread packs what another packs."""
    divisions = [str(value) for value in _values(space, "parallel") if "," not in str(value)]
    threads = space.target.threads
    wanted = [(dim, space.dims.extent(dim)) for dim in space.dims.lead]
    wanted.append((space.dims.col, space.dims.extent(space.dims.col) // (4 * space.lanes)))
    for dim, parts in wanted:
        if f"{dim}={threads}" in divisions and parts >= threads:
            return f"{dim}={threads}"
    rows = [dim for dim in space.dims.row_dims if f"{dim}={threads}" in divisions]
    if not rows:
        return divisions[-1]
    return f"{max(rows, key=space.dims.extent)}={threads}"


def _computed(extent: int, cols: int, lanes: int) -> int:
    """Columns that tiles compute; one whose last tile fits a vector computes only that."""
    whole, rest = divmod(extent, cols)
    return whole * cols + (0 if not rest else lanes if rest <= lanes else cols)


def _model_point(space: Space, tile: tuple[int, int], unroll: int) -> Point:
    rows, vectors = tile
    size = space.problem.element.bytes
    target, cols = space.target, vectors * space.lanes
    panel_row = cols * size * space.dims.taps
    depth = target.l2_bytes // HALF // HALF // panel_row
    depth = max(depth, target.l1_bytes // HALF // (cols * size))
    block_cols = target.l3_bytes // HALF // (size * depth * space.dims.taps)
    if space.dims.patches:  # A is small and B is made, not copied: used while it is in L2
        reduction = min(depth, space.dims.extent(space.dims.stream))
        block_cols = target.l2_bytes // HALF // (size * reduction)
    point: Point = {
        "tile": f"{rows}x{vectors}",
        "unroll": unroll,
        "outer": "cols",
        "pack_a": _pack_a(space),
        "pack_b": _pack_b(space, rows),
        "depth": _nearest(space, "depth", depth, space.dims.stream),
        "cols": _nearest(space, "cols", block_cols, space.dims.col),
    }
    if "prefetch" in _names(space):
        point["prefetch"] = False
    if space.target.threads > 1:
        point["parallel"] = _division(space)
    block_rows = max(rows, target.l2_bytes // HALF // (size * depth))
    if "image_rows" in _names(space):
        pixels = space.dims.extent("ow")
        point["image_rows"] = _nearest(space, "image_rows", max(1, block_rows // pixels), "oh")
    else:
        point["rows"] = _nearest(space, "rows", block_rows, space.dims.row)
    return point


def _fetched_panel(space: Space, tile: tuple[int, int]) -> Point:
    """Blocks of one panel, whole in rows, each fetched before it is packed."""
    cols = tile[1] * space.lanes
    rows = "image_rows" if "image_rows" in _names(space) else "rows"
    return {
        "cols": _nearest(space, "cols", cols, space.dims.col),
        rows: WHOLE,
        "pack_b": True,
        "prefetch": True,
    }


def _depths_of_a_panel(space: Space, tile: tuple[int, int]) -> list[int]:
    """Chunks that leave room in L2 for the next panel; half, and a quarter of that."""
    row = tile[1] * space.lanes * space.problem.element.bytes * space.dims.taps
    depths = [
        _nearest(space, "depth", space.target.l2_bytes // share // row, space.dims.stream)
        for share in (4, 8, 16)
    ]
    return list(dict.fromkeys(depths))


def _pack_a(space: Space) -> bool:
    """In place unless it must be packed: rows of A stream well, and few share a cache set."""
    return _values(space, "pack_a") == (True,)


def _pack_b(space: Space, rows: int) -> bool:
    """Packing B pays once its panels are used by several tiles of rows."""
    if False not in _values(space, "pack_b") or is_packed_ahead(space.problem, "B"):
        return True
    used = space.dims.extent(space.dims.row)
    for dim in space.dims.row_dims[:-1]:
        used *= space.dims.extent(dim)
    return used > 4 * rows


def _changes(space: Space, base: Point) -> Iterator[Point]:
    """Single departures from the model, the most often worthwhile first."""
    yield {"depth": WHOLE}
    for name in ("pack_a", "pack_b"):
        if len(_values(space, name)) > 1:
            yield {name: not base[name]}
    yield {"outer": "rows"}
    for division in _values(space, "parallel") if "parallel" in _names(space) else ():
        if division != base["parallel"]:
            yield {"parallel": division}
    for name in ("depth", "rows", "image_rows", "cols"):
        if name in _names(space):
            parameter = next(p for p in space.parameters if p.name == name)
            for value in parameter.neighbours(base[name]):
                yield {name: value}


def _names(space: Space) -> set[str]:
    return {p.name for p in space.parameters}


def _values(space: Space, name: str) -> tuple[Value, ...]:
    return next(p.values for p in space.parameters if p.name == name)


def _nearest(space: Space, name: str, wanted: int, dim: str) -> int:
    """The parameter's value nearest to `wanted`, on a scale of ratios."""
    extent = space.dims.extent(dim)
    if wanted >= extent:
        return WHOLE
    sizes = [(int(v) or extent, int(v)) for v in _values(space, name)]
    return min(sizes, key=lambda s: max(s[0], wanted) / max(1, min(s[0], wanted)))[1]
