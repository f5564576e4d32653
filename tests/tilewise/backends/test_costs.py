from typing import Any

import pytest

from tilewise.backends.costs import stored_costs
from tilewise.errors import MissingError
from tilewise.kernels.schedule import Pack, Register, Schedule, Winograd

PROBLEM = "conv2d:n=1,h=9,w=9,ci=8,co=16,kh=3,kw=3,pad=1,dtype=f32,weights=constant"
DIRECT = Schedule((Register(rows=6, cols=16),))
WINOGRAD = Schedule((Winograd(4), Pack("B"), Pack("A"), Register(rows=7, cols=16)))


def row(schedule: Schedule, time_us: float | None, **changed: Any) -> dict[str, Any]:
    return {
        "hash": schedule.hash, "steps": schedule.to_json(), "time_us": time_us, "state": "timed",
        "cache": "hot", "toolchain": "now", **changed,
    }  # fmt: skip


class Store:
    """A backend with one problem, which counts how often it is asked."""

    def __init__(self, best: dict[str, Any] | None, *trials: dict[str, Any], stale: bool = False):
        self.best, self.stored, self.stale, self.asked = best, list(trials), stale, 0

    def show(self, problem: str, target: str, cache: str | None, *, match: str) -> dict[str, Any]:
        assert match == "range"
        self.asked += 1
        if self.best is None:
            raise MissingError("nothing")
        return {"best": self.best, "stale": self.stale, "toolchain": "now"}

    def trials(self, problem: str, target: str) -> list[dict[str, Any]]:
        if not self.stored and not self.stale:  # as of one size of a range
            raise MissingError("no trials")
        return self.stored


def found(store: Store) -> list[tuple[str, float]]:
    costs = stored_costs(store, "cpu:znver4,threads=1", "hot")  # type: ignore[arg-type]
    known = costs.schedules(PROBLEM)
    assert costs.schedules(PROBLEM) is known
    assert store.asked == 1
    return [(one.algorithm, one.time_us) for one in known]


def test_each_algorithm_is_had_once_the_fastest_first() -> None:
    store = Store(
        row(WINOGRAD, 10.0), row(DIRECT, 14.0), row(DIRECT, 12.0), row(WINOGRAD, 9.0),
    )  # fmt: skip
    assert found(store) == [("winograd F4", 10.0), ("direct", 12.0)]  # the finals' time counts


@pytest.mark.parametrize(
    "other", [{"cache": "cold"}, {"toolchain": "before"}, {"state": "pruned"}, {"state": "failed"},
              {"time_us": None}],
)  # fmt: skip
def test_trials_of_another_kind_do_not_count(other: dict[str, Any]) -> None:
    assert found(Store(row(WINOGRAD, 10.0), row(DIRECT, 5.0) | other)) == [("winograd F4", 10.0)]


def test_several_of_an_algorithm_are_had_for_whoever_times_them_again() -> None:
    other = Schedule((Register(rows=4, cols=16),))
    store = Store(
        row(WINOGRAD, 10.0), row(DIRECT, 14.0, state="pruned"), row(other, 12.0), row(DIRECT, 15.0),
        row(Schedule((Register(rows=2, cols=16),)), 16.0), row(WINOGRAD, 9.0),
    )  # fmt: skip
    costs = stored_costs(store, "cpu:znver4,threads=1", "hot", most=2)  # type: ignore[arg-type]
    assert [(one.hash, one.time_us) for one in costs.schedules(PROBLEM)] == [
        (WINOGRAD.hash, 10.0), (other.hash, 12.0), (DIRECT.hash, 14.0)]  # fmt: skip


def test_a_size_of_a_range_has_its_variant_alone() -> None:
    assert found(Store(row(DIRECT, 3.0))) == [("direct", 3.0)]


def test_what_is_absent_or_stale_has_no_time() -> None:
    assert found(Store(None)) == []
    assert found(Store(row(DIRECT, 1.0), stale=True)) == []
