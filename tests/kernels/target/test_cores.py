"""What depends on the processor is a field of its core: no other code knows processors by name."""

import pytest

from tilewise.kernels.target.cores import DEFAULT, ceiling_gflops, core_of
from tilewise.kernels.target.costs import CASCADE_LAKE, ZEN5


@pytest.mark.parametrize(
    ("cpu", "costs", "is_far"),
    [
        *((cpu, CASCADE_LAKE, True) for cpu in ("sapphirerapids", "emeraldrapids")),
        *((cpu, CASCADE_LAKE, False) for cpu in ("skylake-avx512", "cascadelake", "alderlake")),
        *((cpu, ZEN5, False) for cpu in ("znver4", "znver5", "generic", "unheard-of")),
    ],
)
def test_the_last_cache_is_far_where_it_was_measured(cpu: str, costs: object, is_far: bool) -> None:
    core, _ = core_of(cpu)
    assert (core.costs, core.far_l3 is not None) == (costs, is_far)
    assert core.transforms.are_cheap == is_far
    assert (core == DEFAULT) == (cpu in ("generic", "unheard-of"))


@pytest.mark.parametrize(("dtype", "operations"), [("bf16", 1024), ("i8", 2048), ("f32", 64)])
def test_matrix_tiles_raise_the_ceiling(dtype: str, operations: int) -> None:
    vectors = ceiling_gflops("emeraldrapids", (), dtype, 2)
    tiles = ceiling_gflops("emeraldrapids", ("amx-tile",), dtype, 2)
    assert tiles == operations * 5.5 * 2
    assert tiles > vectors or dtype == "f32"
