"""A plan's picture as SVG; the page's style sheet colours its classes."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from tilewise.service.plots.drawing import FONT
from tilewise.service.plots.networks.picture import Box, Edge, PlanPicture, format_us, layout_kind
from tilewise.service.plots.networks.placement import PlacedPlan, Point, placed

MARGIN = 10
LAYER, SMALL, LINE, PAD = 292, 30, 18, 10
TEXT, FAINT = 12, 11  # px of letters; a letter of the font is at most 0.62 as wide
LETTER = 0.62
CHIP, CHIP_GAP = 17, 5
HOTTEST = 0.4  # opacity of the box that takes longest, on which text is still read
ARROW = 5


@dataclass(frozen=True)
class _Chip:
    """A framed word of class `kind`; `x` and `y` are relative to its box."""

    says: str
    kind: str
    x: float
    y: float
    width: float


@dataclass(frozen=True)
class FinishedDrawing:
    """A finished drawing as SVG, whose width is in pixels."""

    svg: str
    width: float


Link = Callable[[int], str | None]
"""The page of a node's schedule, by the node's number; None where it has none."""


def draw(picture: PlanPicture, link: Link, label: str) -> FinishedDrawing:
    """Draw the graph from its arguments to its results; `label` is for screen readers."""
    sizes = [_size(box) for box in picture.boxes]
    ends = [(edge.source, edge.target) for edge in picture.edges]
    found = placed(sizes, ends)
    width, height = found.width + 2 * MARGIN, found.height + 2 * MARGIN
    hottest = max((box.time_us or 0.0 for box in picture.boxes), default=0.0)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="net" role="group" '
        f'aria-label="{escape(label)}" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="{-MARGIN} {-MARGIN} {width:.0f} {height:.0f}" '
        f'font-family="{escape(FONT)}" font-size="{TEXT}">',
        '<g aria-hidden="true">', *_edges(picture.edges, found), "</g>",
    ]  # fmt: skip
    for number, box in enumerate(picture.boxes):
        heat = (box.time_us or 0.0) / hottest if hottest else 0.0
        share = (box.time_us or 0.0) / picture.total_us if picture.total_us else 0.0
        href = None if box.node is None else link(box.node)
        parts.append(_box(box, (found.corners[number], sizes[number]), (heat, share), href))
    return FinishedDrawing("".join([*parts, "</svg>\n"]), width)


def _size(box: Box) -> tuple[float, float]:
    if box.kind in ("layer", "around"):
        lines = len(_reason_lines(box))
        chips = _chips(box)
        rows = (chips[-1].y + CHIP if chips else PAD + 2 * LINE) + lines * (LINE - 3)
        return LAYER, rows + PAD
    letters = len(box.title) * TEXT + len(_aside(box)) * FAINT
    return round(letters * LETTER + 3 * PAD), SMALL


def _aside(box: Box) -> str:
    """What stands right in a small box."""
    return format_us(box.time_us) or box.detail


def _chips(box: Box) -> list[_Chip]:
    """The algorithm, and what is fused, in rows below the extents."""
    words = [(box.algorithm, "net-algorithm")] if box.algorithm else []
    words += [(f"+ {name}", "net-fused") for name in box.fused]
    chips: list[_Chip] = []
    x, y = float(PAD), float(PAD + 2 * LINE - 2)
    for says, kind in words:
        width = len(says) * (FAINT - 0.5) * LETTER + 9
        if x + width > LAYER - PAD:
            x, y = float(PAD), y + CHIP + 3
        chips.append(_Chip(says, kind, x, y, width))
        x += width + CHIP_GAP
    return chips


def _reason_lines(box: Box) -> list[str]:
    """The reason in lines that fit the box."""
    most = int((LAYER - 2 * PAD) / (FAINT * LETTER))
    lines: list[str] = []
    for word in box.reason.split():
        if lines and len(lines[-1]) + 1 + len(word) <= most:
            lines[-1] += f" {word}"
        else:
            lines.append(word if len(word) <= most else f"{word[: most - 1]}…")
    return lines


def _box(
    box: Box, place: tuple[Point, tuple[float, float]], heat_share: tuple[float, float],
    href: str | None,
) -> str:  # fmt: skip
    (x, y), (width, height) = place
    heat, share = heat_share
    name = f' id="node-{box.node}"' if box.node is not None else ""
    rounded = 5 if box.kind in ("layer", "around") else SMALL // 2
    frame = f'width="{width:.0f}" height="{height:.0f}" rx="{rounded}"'
    inside = [
        f"<title>{escape(_describe(box, share))}</title>",
        f'<rect class="net-frame" {frame}/>',
    ]
    if box.time_us:
        inside.append(f'<rect class="net-heat" {frame} fill-opacity="{HOTTEST * heat:.3f}"/>')
    inside += _large(box, share) if box.kind in ("layer", "around") else _small(box, width)
    shown = "".join(inside)
    if href is not None:
        shown = f'<a href="{escape(href)}" aria-label="{escape(_describe(box, share))}">{shown}</a>'
    return (
        f'<g class="net-box net-{box.kind}"{name} transform="translate({x:.1f} {y:.1f})">'
        f"{shown}</g>"
    )


def _large(box: Box, share: float) -> Iterator[str]:
    right = LAYER - PAD
    yield _text(PAD, PAD + 10, f"{box.node}", "net-number")
    shift = PAD + (len(f"{box.node}") + 1) * TEXT * 0.6
    yield _text(shift, PAD + 10, box.title, "net-title")
    yield _text(right, PAD + 10, format_us(box.time_us) or "not timed", "net-time", at_end=True)
    yield _text(PAD, PAD + 10 + LINE - 2, box.detail, "net-detail")
    if box.time_us is not None:
        yield _text(right, PAD + 10 + LINE - 2, f"{100 * share:.1f}%", "net-detail", at_end=True)
    chips = _chips(box)
    for chip in chips:
        yield (
            f'<rect class="{chip.kind}" x="{chip.x:.1f}" y="{chip.y:.1f}" '
            f'width="{chip.width:.1f}" height="{CHIP}" rx="3"/>'
        )
        yield _text(chip.x + chip.width / 2, chip.y + 12, chip.says, "net-word", in_middle=True)
    y = (chips[-1].y + CHIP if chips else PAD + 2 * LINE - 4) + 12
    for number, line in enumerate(_reason_lines(box)):
        yield _text(PAD, y + number * (LINE - 3), line, "net-reason")


def _small(box: Box, width: float) -> Iterator[str]:
    yield _text(PAD + 2, SMALL / 2 + 4, box.title, "net-name")
    yield _text(width - PAD - 2, SMALL / 2 + 4, _aside(box), "net-detail", at_end=True)


def _describe(box: Box, share: float) -> str:
    """All of a box in words."""
    time = f"{format_us(box.time_us)}, {100 * share:.1f}% of all" if box.time_us is not None else ""
    fused = f"with {', '.join(box.fused)}" if box.fused else ""
    node = "" if box.node is None else f"node {box.node}"
    what = f"{box.title} {box.detail}".strip()
    op = box.op if box.op != box.title else ""
    parts = [node, what, box.algorithm, fused, time, box.reason, op, box.where]
    return "; ".join(part for part in parts if part)


def _edges(edges: Sequence[Edge], found: PlacedPlan) -> Iterator[str]:
    for edge, route in zip(edges, found.routes, strict=True):
        kind = layout_kind(edge.layout)
        x, y = route[-1]
        yield f'<path class="net-edge net-{kind}" d="{_path(route)}"/>'
        yield (
            f'<path class="net-arrow net-{kind}" '
            f'd="M{x:.1f} {y:.1f}l-{ARROW - 1} -{ARROW + 2}h{2 * (ARROW - 1)}z"/>'
        )
    leftmost: dict[int, Sequence[Point]] = {}
    entered = Counter(edge.target for edge in edges)
    for edge, route in zip(edges, found.routes, strict=True):
        if route[-1] <= leftmost.get(edge.target, route)[-1]:
            leftmost[edge.target] = route
    for edge, route in zip(edges, found.routes, strict=True):
        if not edge.layout.is_plain:
            x, y = route[-1]
            # Where all others come from the right, there is room on the left of each.
            first = leftmost[edge.target]
            is_left = entered[edge.target] > 1 and first[-2][0] == first[-3][0]
            label = f"net-label net-{layout_kind(edge.layout)}"
            yield _text(x - 7 if is_left else x + 7, y - 9, edge.layout.name, label, at_end=is_left)


def _path(route: Sequence[Point]) -> str:
    """Down through ranks, and bent between them."""
    (x, y), *others = route
    parts = [f"M{x:.1f} {y:.1f}"]
    last = len(others) - 1
    for i, (to_x, to_y) in enumerate(others):
        end = to_y - ARROW if i == last else to_y
        if i % 2 == 0:
            parts.append(f"V{end:.1f}")
        elif to_x == x:
            parts.append(f"V{to_y:.1f}")
        else:
            half = (y + to_y) / 2
            parts.append(f"C{x:.1f} {half:.1f} {to_x:.1f} {half:.1f} {to_x:.1f} {to_y:.1f}")
        x, y = to_x, to_y
    return "".join(parts)


def _text(
    x: float, y: float, says: str, kind: str, *, at_end: bool = False, in_middle: bool = False
) -> str:
    anchor = ' text-anchor="end"' if at_end else ' text-anchor="middle"' if in_middle else ""
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}"{anchor}>{escape(says)}</text>'
