from dataclasses import replace

import pytest

from tests.service.plots.networks.made import LAST, block, use
from tilewise.service.plots.networks.picture import PlanPicture, bars, picture_of


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
