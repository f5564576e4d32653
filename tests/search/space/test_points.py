import json
from dataclasses import replace

import pytest

from tests.search.targets import WIDE
from tilewise.kernels.problem import parse_problem
from tilewise.search.space.points import TilePoint, point_from_json, point_to_json, scalars_of
from tilewise.search.space.space import Space

TILES = {
    "6x4": (TilePoint(6, 4), "6 rows x 4 vectors"),
    "1x1": (TilePoint(1, 1), "1 row x 1 vector"),
    "2x3s4": (
        TilePoint(2, 3, "split", partial_sums=4), "2 rows x 3 columns, 4 partial sums",
    ),
    "8x2w32": (TilePoint(8, 2, "sweep", depth=32), "8 rows x 2 vectors, k-block 32"),
    "1x4w8i8": (
        TilePoint(1, 4, "sweep", depth=8, streams=8), "1 row x 4 vectors, k-block 8, 8 k-streams",
    ),
}  # fmt: skip


@pytest.mark.parametrize("text", TILES)
def test_a_tile_is_read_from_its_text_and_from_its_fields(text: str) -> None:
    tile, description = TILES[text]
    point = {"tile": tile, "unroll": 2, "pack_a": True}
    assert point_from_json({**point, "tile": text}) == point
    assert point_from_json(json.loads(json.dumps(point_to_json(point)))) == point
    assert scalars_of(point) == {**point, "tile": text}
    assert tile.description == description


def test_a_tile_of_iree_is_told_by_its_point() -> None:
    tile = TilePoint(12, 32, "iree")
    assert point_from_json({"tile": "12x32", "inner": "rows"})["tile"] == tile
    assert str(tile) == "12x32" and tile.description == "12 rows x 32 columns"


@pytest.mark.parametrize("text", ["2x2w8e", "6x4e", "0x4", "6x", "6x4s", "6x4w8i", "", "6x4 "])
def test_a_text_that_is_no_tile_stays_and_no_space_holds_it(text: str) -> None:
    space = Space(parse_problem("matmul:m=64,n=64,k=64,dtype=f32"), replace(WIDE, kind="iree"))
    point = {p.name: p.values[0] for p in space.parameters}
    assert space.holds(point)
    stored = point_from_json(point | {"tile": text})
    assert stored["tile"] == text and not space.holds(stored)


@pytest.mark.parametrize(
    "fields",
    [
        {}, {"rows": 6}, {"rows": 6, "vectors": 0}, {"rows": "6", "vectors": 4},
        {"rows": True, "vectors": 4}, {"rows": 6, "vectors": 4, "kind": "other"},
        {"rows": 6, "vectors": 2**31}, {"rows": 6, "vectors": 4, "colour": 1},
        {"rows": 6, "vectors": 4, "depth": -1},
    ],
)  # fmt: skip
def test_an_object_that_is_no_tile_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="no register tile"):
        point_from_json({"tile": fields})


def test_every_tile_of_a_space_is_read_from_its_text() -> None:
    """Whatever the kind; trials stored until now have these texts."""
    small = parse_problem("matmul:m=1,n=4096,k=4096,dtype=f32")
    narrow = parse_problem("matmul:m=64,n=1,k=1024,dtype=f32")
    kinds = set()
    for space in (Space(small, WIDE), Space(narrow, WIDE)):
        for tile in space.values("tile"):
            kinds.add(tile.kind)
            assert point_from_json({"tile": str(tile)})["tile"] == tile
    assert kinds == {"outer", "split", "sweep"}
    levels = Space(parse_problem("matmul:m=64,n=64,k=64,dtype=f32"), replace(WIDE, kind="iree"))
    for tile in levels.values("tile"):
        assert point_from_json({"tile": str(tile), "inner": "rows"})["tile"] == tile
