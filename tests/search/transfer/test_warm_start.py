from tests.search.engine.fakes import FakeRunner, run
from tests.search.targets import WIDE
from tests.search.transfer.searches import costs, searched_with, solved
from tilewise.kernels.problem import parse_problem
from tilewise.search.model.amounts import DEFAULT_WEIGHTS
from tilewise.search.model.analytical import AnalyticalModel
from tilewise.search.records import Solved, TuneRequest
from tilewise.search.space.points import TilePoint
from tilewise.search.space.space import Space
from tilewise.search.store import MemoryStore
from tilewise.search.transfer.starting_points import warmed


def test_a_warm_search_has_both_costs_and_starting_points() -> None:
    model = AnalyticalModel.shipped(
        Space(parse_problem("matmul:m=900,n=1000,k=700,dtype=f32"), WIDE)
    )
    found, starts = warmed(model, MemoryStore(searched_with(costs(1.0, b_rows_from_l2=5))))
    assert found.weights.overlap < DEFAULT_WEIGHTS.overlap
    assert starts and all(model.space.holds(point) for point in starts)
    assert warmed(model, MemoryStore()) == (model, [])


def test_a_search_begins_with_what_the_store_knows() -> None:
    known = solved("matmul:m=512,n=512,k=500,dtype=f32", tile=TilePoint(7, 3), rows=64, depth=128)
    # the same processor name as the fake target of these tests
    known = Solved(known.problem, "cpu:fake,threads=1", known.points)
    result, _, _ = run(TuneRequest(trials=12), MemoryStore([known]), FakeRunner())
    assert [t.origin for t in result.trials[:4]] == ["prior", "prior", "transfer", "prior"]
    assert result.trials[2].params["tile"] == TilePoint(7, 3)
