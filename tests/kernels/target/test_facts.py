"""The facts of a machine on one line."""

from tilewise.kernels.target.machine import facts_text

WHOLE = {
    "cpu": "emeraldrapids",
    "cores": 2,
    "caches": {"l3": 260 << 20, "l1": 48 << 10, "l2": 2 << 20},
    "peaks": {"f32": 230.4, "i8": 3000.0, "f64": 100.0},
    "bandwidth_gbs": 12.3,
}


def test_facts_are_what_is_known() -> None:
    assert facts_text(WHOLE) == (
        "emeraldrapids, 2 cores, L1 48 KiB, L2 2 MiB, L3 260 MiB; one thread: f32 230 GFLOP/s, "
        "i8 3000 GFLOP/s, memory 12 GB/s"
    )
    assert facts_text({**WHOLE, "cores": 1, "caches": {"l3": 0}, "peaks": None,
                       "bandwidth_gbs": None}) == "emeraldrapids, 1 core"  # fmt: skip
    assert facts_text({"cpu": "znver5", "host": "of an older service"}) == "znver5"
