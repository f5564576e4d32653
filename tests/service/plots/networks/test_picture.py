from dataclasses import replace

import pytest

from tests.service.plots.networks.made import LAST, block, other, use
from tilewise.kernels.problem import parse_problem
from tilewise.search.networks.plan import PlannedPass
from tilewise.service.plots.networks import picture
from tilewise.service.plots.networks.picture import PlanPicture, bars, kind_of, picture_of


def ways(picture: PlanPicture) -> set[tuple[str, str, str]]:
    def named(number: int) -> str:
        box = picture.boxes[number]
        return box.title if box.node is None else str(box.node)

    return {(named(e.source), named(e.target), e.layout.name) for e in picture.edges}


def test_edges_lead_over_the_copies() -> None:
    picture = picture_of(block())
    last, halo = "axes 2,3,1", "axes 2,3,1 halo 1"
    assert ways(picture) == {
        ("argument", "0", "plain"),
        ("0", f"copy to {last}", "plain"), (f"copy to {last}", "1", last),
        ("1", f"copy to {halo}", last), (f"copy to {halo}", "2", halo),
        ("2", "3", last), (f"copy to {last}", "3", last),
        ("3", "copy to plain", last), ("copy to plain", "result", "plain"),
    }  # fmt: skip
    assert picture.total_us == block().totals.chosen_us


def test_copies_run_after_what_they_copy() -> None:
    order = [box.title if box.node is None else box.node for box in picture_of(block()).in_order]
    last, halo = "copy to axes 2,3,1", "copy to axes 2,3,1 halo 1"
    assert order == ["argument", 0, last, 1, halo, 2, 3, "copy to plain", "result"]


def test_a_tensor_that_is_read_twice_has_one_edge() -> None:
    plan = block()
    squared = replace(plan.nodes[0], reads=(use(0, role="whole"), use(0, role="whole")))
    picture = picture_of(replace(plan, nodes=(squared, *plan.nodes[1:])))
    ends = [(edge.source, edge.target) for edge in picture.edges]
    assert len(ends) == len(set(ends)) == 9


def test_boxes_say_what_was_fused_and_what_is_planned_around() -> None:
    boxes = {box.node: box for box in picture_of(block()).boxes if box.node is not None}
    assert (boxes[0].kind, boxes[0].reason, boxes[0].time_us) == ("around", "is no product", None)
    assert (boxes[2].algorithm, boxes[2].fused) == ("winograd F4", ("pad", "bias", "relu"))
    assert boxes[3].fused == ("bias", "residual")
    assert (boxes[1].title, boxes[1].detail) == ("conv2d 3x3", "10x10x8 to 10x10x8 f32")
    assert boxes[1].where == "@main 5:3"


def test_a_layer_without_a_schedule_keeps_its_problem() -> None:
    plan = block()
    node = replace(plan.nodes[1], problem=None, schedule=None, reason="no schedule is stored")
    box = picture_of(replace(plan, nodes=(plan.nodes[0], node, *plan.nodes[2:]))).boxes[2]
    assert (box.kind, box.title, box.time_us) == ("around", "conv2d 3x3", None)
    assert box.reason == "no schedule is stored"


@pytest.mark.parametrize("number", [-1, 5, 99])
def test_a_plan_that_names_no_tensor_of_its_own_is_refused(number: int) -> None:
    plan = block()
    node = replace(plan.nodes[1], reads=(use(number, LAST),))
    with pytest.raises(ValueError, match=f"no tensor {number}"):
        picture_of(replace(plan, nodes=(plan.nodes[0], node, *plan.nodes[2:])))


def test_parts_of_the_planned_bar_fill_it() -> None:
    plan = block()
    planned, own, alone = bars(picture_of(plan), plan.totals)
    assert (planned.ratio, own.ratio, alone.ratio) == (1.0, 1.2, 1.05)
    assert planned.svg.count("<rect") == 6
    last = planned.svg.rpartition('x="')[2]  # the copy for the caller, 4 of 120
    start, width = (float(last.split('"')[i].rstrip("%")) for i in (0, 2))
    assert (start, width) == (pytest.approx(80.0, abs=0.01), pytest.approx(100 * 4 / 120, abs=0.01))
    assert 'width="100.000%"' in own.svg and 'width="87.500%"' in alone.svg


def test_a_plan_of_which_nothing_is_timed_has_no_bars() -> None:
    plan = block()
    nothing = replace(plan.totals, chosen_us=0.0, plain_us=0.0, alone_us=0.0)
    assert bars(picture_of(plan), nothing) == []


@pytest.mark.parametrize(
    ("problem", "title", "extents"),
    [
        ("matmul:m=3,n=5,k=7,dtype=bf16", "matmul", "m=3 n=5 k=7 bf16"),
        ("matmul:batch=2,m=3,n=5,k=7,dtype=f32", "batch matmul", "2 of m=3 n=5 k=7 f32"),
        ("conv2d:n=2,h=9,w=7,ci=6,co=6,kh=3,kw=5,stride=2,pad=1,groups=6,dtype=f32",
         "depthwise 3x5 stride 2", "2x9x7x6 to 2x5x3x6 f32"),
        ("conv2d:n=1,h=9,w=7,ci=6,co=4,kh=3,kw=3,dilation=2,groups=2,dtype=f32",
         "conv2d 3x3 dilation 2 groups 2", "9x7x6 to 5x3x4 f32"),
    ],
)  # fmt: skip
def test_problems_have_short_names(problem: str, title: str, extents: str) -> None:
    asked = parse_problem(problem)
    assert (picture.title(asked), picture.extents(asked)) == (title, extents)


def test_sizes_that_are_not_known_are_told() -> None:
    assert picture.format_shape((None, 3), "f32") == "?x3xf32"


def test_a_pass_has_its_time_where_it_ends() -> None:
    """Of two ops that are one pass the table of the first says where that is."""
    plan = block()
    first = other((use(0, role="whole"),), use(1, role="whole"))
    second = other((use(4, LAST, role="whole"),), use(4, LAST, role="whole"))
    nodes = (first, *plan.nodes[1:], second)
    passes = (PlannedPass((0, 4), "rows of 10: exp, add", 5.0),)
    picture = picture_of(replace(plan, nodes=nodes, passes=passes))
    boxes = {box.node: box for box in picture.boxes if box.node is not None}
    assert [boxes[i].time_us for i in (0, 4)] == [None, 5.0]
    assert [boxes[i].ends for i in (0, 3, 4)] == [4, None, 4]
    assert (boxes[4].kind, boxes[4].algorithm) == ("op", "pass")
    assert boxes[4].fused == ("rows of 10: exp, add",)
    assert kind_of(boxes[4]) == "pass"
    for wrong in ((), (7,)):
        with pytest.raises(ValueError, match="no node"):
            picture_of(replace(plan, passes=(PlannedPass(wrong, "rows", 1.0),)))
