import pytest

from tilewise.service.dashboard.fleet import roof

LAST_CACHE = 32 * 2**20
PEAK, BANDWIDTH = 280.0, 40.0
ONE = "cpu:znver4,threads=1"
SMALL = "matmul:m=64,n=2000,k=8,dtype=f32"  # in a cache
SMALL_FLOPS_PER_BYTE = 2 * 64 * 2000 * 8 / (4 * (64 * 8 + 8 * 2000 + 64 * 2000))
LARGE = "matmul:m=8,n=8192,k=8192,dtype=f32"  # 256 MiB
FLOPS_PER_BYTE = 2 * 8 * 8192 * 8192 / (4 * (8 * 8192 + 8192 * 8192 + 8 * 8192))


@pytest.mark.parametrize(
    ("problem", "cache", "target", "bandwidth", "expected"),
    [
        (SMALL, "hot", ONE, BANDWIDTH, PEAK),
        (SMALL, "cold", ONE, BANDWIDTH, SMALL_FLOPS_PER_BYTE * BANDWIDTH),
        (LARGE, "hot", ONE, BANDWIDTH, FLOPS_PER_BYTE * BANDWIDTH),
        (LARGE, "hot", "cpu:znver4,threads=4", BANDWIDTH, PEAK),
        (LARGE, "hot", ONE, None, PEAK),
        ("matmul:m=1024,n=1024,k=1024,dtype=f32", "cold", ONE, BANDWIDTH, PEAK),
    ],
)
def test_the_memory_is_a_roof_where_operands_come_from_it(
    problem: str, cache: str, target: str, bandwidth: float | None, expected: float
) -> None:
    found = roof(problem, target, cache, PEAK, (LAST_CACHE, bandwidth))
    assert found == pytest.approx(expected, rel=0.01)
