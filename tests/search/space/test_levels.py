"""The space of a spec's sizes: every point means steps that IREE's attributes can say."""

from dataclasses import replace
from random import Random

import pytest

from tests.search.targets import NARROW, WIDE
from tilewise.kernels.mlir.tuning_spec.config import Configuration
from tilewise.kernels.mlir.tuning_spec.form import form_of
from tilewise.kernels.mlir.tuning_spec.text import check_levels, outgrows_stack
from tilewise.kernels.problem import parse_problem
from tilewise.search.model.levels import LevelModel, level_starts
from tilewise.search.space.points import TilePoint
from tilewise.search.space.space import Space

IREE = replace(WIDE, kind="iree")
PROBLEMS = [
    "matmul:m=512,n=512,k=512,dtype=f32",
    "matmul:m=1,n=7,k=3,dtype=f64",
    "matmul:batch=5,m=129,n=65,k=1,dtype=bf16,bias",
    "conv2d:n=1,h=14,w=14,ci=1024,co=256,kh=1,kw=1,dtype=f32",
    "conv2d:n=3,h=15,w=15,ci=64,co=96,kh=1,kw=1,stride=2,layout=nchw_fchw,dtype=i8",
    "conv2d:n=2,h=14,w=14,ci=64,co=96,kh=3,kw=3,dtype=f32",
]


@pytest.mark.parametrize("target", [IREE, replace(NARROW, kind="iree")], ids=["wide", "narrow"])
@pytest.mark.parametrize("text", PROBLEMS)
def test_every_point_means_steps_of_the_op(text: str, target) -> None:
    space, random = Space(parse_problem(text), target), Random(text)
    form, model = form_of(space.problem), LevelModel(space)
    points = [*level_starts(model, 10), *(space.draw(random) for _ in range(50))]
    for point in points:
        assert space.holds(point)
        config = space.schedule(point)
        check_levels(form, config)
        assert Configuration.from_json(config.to_json()) == config
        for level in ("distribution", "vector_common_parallel"):
            assert {t.dim for t in config.tiles_at(level)} == set(form.parallel)
        vectors = {t.dim: t.size for t in config.tiles_at("vector_common_parallel")}
        for share in config.tiles_at("distribution"):
            is_whole = share.size == form.extent(share.dim)
            assert is_whole or share.size % vectors[share.dim] == 0, str(share)
        assert len(space.encode(point)) == len(space.encode(points[0]))
        assert model.log_time(point) == model.log_time(dict(point))
        assert all(space.holds(near) for near in space.neighbours(point))


def test_remainders_are_peeled_and_only_those() -> None:
    space = Space(parse_problem("matmul:m=512,n=512,k=512,dtype=f32"), IREE)
    even = level_starts(LevelModel(space), 1)[0]
    assert space.schedule(even).remainders == "masked"
    cut = even | {"tile": TilePoint(12, 32, "iree")}
    assert space.schedule(cut).remainders == "peeled"


def test_a_cut_reduction_with_an_epilogue_fits_the_stack() -> None:
    text = "matmul:m=512,n=512,k=512,dtype=f32"
    sizes = {"tile": TilePoint(8, 32, "iree"), "rows": 0, "cols": 0, "cache_depth": 128}
    for more, is_legal in (("", True), (",bias", False)):
        space = Space(parse_problem(text + more), IREE)
        point = level_starts(LevelModel(space), 1)[0] | sizes
        assert outgrows_stack(form_of(space.problem), space.schedule(point))
        assert (space.legal_hash(point) is not None) == is_legal
        small = point | {"cache_rows": 64, "cache_cols": 64}
        assert space.legal_hash(small) is not None
