"""Targets as they are written."""

import pytest

from tilewise.kernels.errors import TargetError
from tilewise.kernels.target import parse_target


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("host", ("host", 1)),
        ("cpu:znver4", ("znver4", 1)),
        ("cpu:znver4,threads=12", ("znver4", 12)),
        ("cpu:skylake-avx512,threads=1024", ("skylake-avx512", 1024)),
        ("cpu:x86-64-v3,threads=01", ("x86-64-v3", 1)),
        ("cpu:host,threads=2", ("host", 2)),
    ],
)
def test_a_target_is_a_name_and_threads(text: str, parsed: tuple[str, int]) -> None:
    assert parse_target(text) == parsed


@pytest.mark.parametrize("threads", ["0", "1025", "999999999"])
def test_threads_have_a_range(threads: str) -> None:
    with pytest.raises(TargetError, match=f"threads={threads} is out of range; give 1 to 1024"):
        parse_target(f"cpu:znver4,threads={threads}")


@pytest.mark.parametrize(
    "text",
    [
        *("", "gpu", "cpu:", "cpu:,threads=1", "host,threads=2", "cpu:a,threads=", "CPU:a"),
        *("cpu:a,threads=-1", "cpu:a,threads=1e3", "cpu:a,threads=1,threads=2", "cpu:a,cores=1"),
        *("cpu:a,threads=٣", "cpu:a,threads=²", f"cpu:a,threads={'9' * 5000}"),
        *("cpu:\0", "cpu:a\0b", "cpu:\ud800", "cpu:\udcff", "cpu:a\nb", "cpu:a b", "cpu:\u202e"),
        *("cpu:é", "cpu:-a", "cpu:" + "x" * 65, "x" * 100_000, "host\n", "cpu:a,threads=1\n"),
    ],
    ids=lambda text: ascii(text)[:30],
)
def test_any_other_text_is_refused_in_a_line(text: str) -> None:
    with pytest.raises(TargetError, match="is neither 'host' nor cpu:NAME,threads=N") as caught:
        parse_target(text)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 300
