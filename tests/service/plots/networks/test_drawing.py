from dataclasses import replace
from xml.etree import ElementTree

from tests.service.plots.networks.made import LAST, block, layer, use
from tilewise.service.plots.networks.drawing import HOTTEST, draw
from tilewise.service.plots.networks.picture import picture_of

SVG = "{http://www.w3.org/2000/svg}"


def drawn(plan=None, link=lambda _node: None) -> ElementTree.Element:
    return ElementTree.fromstring(draw(picture_of(plan or block()), link, "Graph").svg)


def of_class(svg: ElementTree.Element, name: str) -> list[ElementTree.Element]:
    return [one for one in svg.iter() if name in one.get("class", "").split()]


def test_every_box_and_edge_is_drawn_once() -> None:
    svg, picture = drawn(), picture_of(block())
    assert len(of_class(svg, "net-box")) == len(picture.boxes) == 9
    assert len(of_class(svg, "net-edge")) == len(picture.edges) == 9
    assert [len(of_class(svg, f"net-{kind}")) for kind in ("layer", "around", "copy", "end")] == [
        3, 1, 3, 2]  # fmt: skip
    assert {one.get("id") for one in svg.iter() if one.get("id")} == {
        f"node-{i}" for i in range(4)}  # fmt: skip


def test_edges_are_coloured_and_named_by_their_layouts() -> None:
    svg = drawn()
    edges = [one.get("class").split()[-1] for one in of_class(svg, "net-edge")]
    assert {kind: edges.count(kind) for kind in edges} == {
        "net-plain": 3, "net-order": 5, "net-halo": 1}  # fmt: skip
    labels = [one.text for one in of_class(svg, "net-label")]
    assert sorted(labels) == ["axes 2,3,1"] * 5 + ["axes 2,3,1 halo 1"]


def test_the_longest_is_the_hottest() -> None:
    heats = [float(one.get("fill-opacity")) for one in of_class(drawn(), "net-heat")]
    assert len(heats) == 6 and max(heats) == HOTTEST
    assert sorted(heats)[:2] == [round(HOTTEST * 2 / 50, 3), round(HOTTEST * 4 / 50, 3)]


def test_boxes_lead_to_their_schedules() -> None:
    svg = drawn(link=lambda node: None if node == 2 else f"/problems/{node}?schedule=1&x=2")
    links = {one.get("href"): one.get("aria-label") for one in svg.iter(f"{SVG}a")}
    assert set(links) == {f"/problems/{node}?schedule=1&x=2" for node in (0, 1, 3)}
    told = links["/problems/3?schedule=1&x=2"]
    assert told.startswith("node 3; conv2d 3x3 10x10x8 to 10x10x8 f32; direct; with bias, residual")
    assert "10.0 us, 10.0% of all" in told


def test_words_stay_in_their_boxes() -> None:
    plan = block()
    reason = "an operand lies in an order that a view hides; its copy is not priced " * 3
    fused = ("broadcast_a", "transpose_a", "transpose_b", "bias", "addition", "relu6")
    crowded = layer((use(1, LAST),), use(2, LAST), 123456.7, "winograd F4", fused)
    nodes = (replace(plan.nodes[0], reason=reason), crowded, *plan.nodes[2:])
    svg = drawn(replace(plan, nodes=nodes))
    for box in of_class(svg, "net-box"):
        frame = next(one for one in box.iter() if one.get("class") == "net-frame")
        width, height = float(frame.get("width")), float(frame.get("height"))
        for text in box.iter(f"{SVG}text"):
            wide = 0.6 * 11 * len(text.text)
            x = float(text.get("x"))
            x -= {"end": wide, "middle": wide / 2}.get(text.get("text-anchor", ""), 0)
            assert x >= 0 and x + wide <= width + 2, text.text
            assert 0 < float(text.get("y")) < height, text.text
        chips = [one for one in box.iter() if one.get("class") in ("net-fused", "net-algorithm")]
        spots = {(one.get("x"), one.get("y")) for one in chips}
        assert len(spots) == len(chips)
