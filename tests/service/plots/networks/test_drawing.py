from xml.etree import ElementTree

from tests.service.plots.networks.made import block
from tilewise.service.plots.networks.drawing import draw
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


def test_boxes_lead_to_their_schedules() -> None:
    svg = drawn(link=lambda node: None if node == 2 else f"/problems/{node}?schedule=1&x=2")
    links = {one.get("href"): one.get("aria-label") for one in svg.iter(f"{SVG}a")}
    assert set(links) == {f"/problems/{node}?schedule=1&x=2" for node in (0, 1, 3)}
    told = links["/problems/3?schedule=1&x=2"]
    assert told.startswith("node 3; conv2d 3x3 10x10x8 to 10x10x8 f32; direct; with bias, residual")
    assert "10.0 us, 10.0% of all" in told
