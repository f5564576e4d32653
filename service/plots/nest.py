"""Draw a schedule as a loop nest: nested boxes, with packs at their level.

No plotting library has this drawing; all other pictures are specifications.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from math import prod
from typing import Any

from tilewise.kernels import nest as nodes
from tilewise.kernels.errors import KernelsError, ScheduleError
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import Schedule, fast_algorithm, loop_nest
from tilewise.service.plots.drawing import COLOURS, FONT, Theme

WIDTH, INDENT, OUTDENT, LINE, PAD = 640, 14, 4, 24, 8
CELL, MOST_CELLS = 9, 32  # of the register tile's picture
MEMORY = "memory"
CACHES = ("l1", "l2", "l3")
KINDS = {
    nodes.LoopKind.PARALLEL: ("parallel", 1, "threads"),
    nodes.LoopKind.TILE: ("tile", 0, "tile"),
    nodes.LoopKind.K_BLOCK: ("stream", 2, "k-block"),
    nodes.LoopKind.MICRO: ("micro", 3, "register tiles"),
}
"""The CSS class of a loop, its colour of the category, and its label."""
PACK = 4


@dataclass(frozen=True)
class _Page:
    """What everything is drawn with."""

    nest: nodes.Nest
    counts: nodes.Counts
    caches: Mapping[str, int]
    colours: Mapping[str, Any]
    parts: list[str] = field(default_factory=list)


def drawn(
    problem: str, steps: list[dict[str, Any]], caches: Mapping[str, int] | None = None
) -> str:
    """Draw a nest, or return an empty text if its steps are of IREE or of an unknown version."""
    try:
        return draw(problem, steps, caches)
    except ScheduleError:
        return ""


def draw(
    problem: str,
    steps: list[dict[str, Any]],
    caches: Mapping[str, int] | None = None,
    theme: Theme = "light",
) -> str:
    """Draw the loop nest of a schedule as SVG; raise KernelsError if it is illegal.

    `caches` are bytes by level, to name the one that a pack fits. Style sheets may colour the
    classes.
    """
    parsed = parse_problem(problem)
    nest = loop_nest(parsed, Schedule.from_json(steps))
    page = _Page(nest, nodes.count(nest), caches or {}, COLOURS[theme])
    height = _nodes(page) + PAD
    text = "; ".join(line.strip() for line in nodes.printed(nest))
    title = escape(f"Loop nest of {problem}: {text}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="nest" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" role="img" aria-label="{title}" '
        f'font-family="{escape(FONT)}" font-size="12">'
        f'<rect class="nest-page" width="100%" height="100%" fill="{page.colours["page"]}"/>'
        + "".join(page.parts)
        + "</svg>\n"
    )


def _nodes(page: _Page) -> int:
    """Draw the nodes from the top, each loop's box around its body; return the height."""
    y = PAD
    opened: list[tuple[int, int, int, nodes.Loop]] = []
    for here in page.nest.visit():
        y = _close(page, opened, len(here.loops), y)
        node, x = here.node, PAD + INDENT * len(opened)
        if isinstance(node, nodes.Loop):
            opened.append((len(page.parts), x, y, node))
            page.parts.append("")  # its box, as soon as its end is known
            _loop(page, here, node, x, y)
            y += LINE
        elif isinstance(node, nodes.Compute):
            y = _kernel(page, here, node, x, y)
        elif label := _label(page, here):
            _bar(page, x, y)
            _text(page, x + 14, y + 16, label[0])
            _text(page, _right(x) - 18, y + 16, label[1], is_faint=True, at_end=True)
            y += LINE + 2
    return _close(page, opened, 0, y)


def _close(page: _Page, opened: list[tuple[int, int, int, nodes.Loop]], depth: int, y: int) -> int:
    """Draw the boxes of loops that end here; return where the next node begins."""
    while len(opened) > depth:
        place, x, top, loop = opened.pop()
        y += PAD // 2
        page.parts[place] = _box(page, loop, x, top, y)
    return y


def _box(page: _Page, loop: nodes.Loop, x: int, top: int, bottom: int) -> str:
    name, category, _ = KINDS[loop.kind]
    colour = page.colours["category"][category]
    return (
        f'<rect class="nest-loop nest-{name}" x="{x}" y="{top}" width="{_right(x) - x}" '
        f'height="{bottom - top}" rx="4" fill="{colour}" fill-opacity="0.07" stroke="{colour}"/>'
    )


def _loop(page: _Page, here: nodes.Here, loop: nodes.Loop, x: int, y: int) -> None:
    _text(page, x + 8, y + 16, f"for {loop.dim} in steps of {loop.step}")
    trips = "1 trip" if here.trips == 1 else f"{here.trips} trips"
    text = f"{KINDS[loop.kind][2]}, {trips}"
    _text(page, _right(x) - 8, y + 16, text, is_faint=True, at_end=True)


def _bar(page: _Page, x: int, y: int) -> None:
    colour = page.colours["category"][PACK]
    page.parts.append(
        f'<rect class="nest-pack" x="{x + 6}" y="{y + 2}" width="{_right(x) - x - 12}" '
        f'height="{LINE - 4}" rx="3" fill="{colour}" fill-opacity="0.18" stroke="{colour}"/>'
    )


def _label(page: _Page, here: nodes.Here) -> tuple[str, str] | None:
    """What a copy, a transform or a prefetch does, and how often; None for a plain store."""
    node, nest = here.node, page.nest
    if isinstance(node, nodes.Stage):
        shape = nodes.shape_of(nest, here)
        size = prod(shape) * nest.problem.element.bytes
        fits = next((name for name in CACHES if size <= page.caches.get(name, 0)), MEMORY)
        where = f", fits {fits.upper()}" if page.caches and fits != MEMORY else ""
        verb = "transform" if node.transforms else "pack"
        what = f"{verb} {node.operand} to {'x'.join(map(str, shape))}: {format_bytes(size)}{where}"
        return what, "once, ahead" if node.is_ahead else _how_often(page, node.operand)
    if isinstance(node, nodes.Store) and node.transforms:
        tile = f"{here.blocks[nest.row]}x{nest.tile.cols}"
        return f"transform products to C, of {tile} at all points", _how_often(page, "C")
    if isinstance(node, nodes.Fetch):
        return f"prefetch {node.what.value} of {node.operand}", ""
    return None


def _how_often(page: _Page, operand: str) -> str:
    times, total = page.counts.packs[operand], page.counts.packed_bytes[operand]
    return f"{times} {'time' if times == 1 else 'times'}, {format_bytes(total)} in all"


def _kernel(page: _Page, here: nodes.Here, kernel: nodes.Compute, x: int, y: int) -> int:
    """The register tile as a grid, and what runs in it; where it ends."""
    nest, tile = page.nest, page.nest.tile
    rows = min(tile.lines * tile.rows, MOST_CELLS)
    high = max(3 * LINE - 8, rows * (CELL - 1) + 12)
    colour = page.colours["category"][0]
    page.parts.append(
        f'<rect class="nest-kernel" x="{x + 6}" y="{y + 2}" width="{_right(x) - x - 12}" '
        f'height="{high}" rx="3" fill="{colour}" fill-opacity="0.16" stroke="{colour}"/>'
    )
    jammed = f"{tile.lines} x " if tile.lines > 1 else ""
    streams = nest.k_block.streams if nest.k_block else 1
    done = "tiles" if nest.is_macro else "calls"
    lines = [f"micro-kernel: {jammed}{tile.rows} x {tile.cols} of C in registers",
            f"over {here.blocks[nest.k]} of {nest.k}"
            + (f" in {streams} streams" if streams > 1 else "")
            + (f" at each of {nest.taps} taps" if nest.taps > 1 else "")
            + f", unrolled by {kernel.unroll}"
            + (f", {kernel.lanes} partial sums" if kernel.lanes > 1 else ""),
            f"{page.counts.micro_kernels} {done}"]  # fmt: skip
    for number, line in enumerate(lines):
        _text(page, x + 14, y + 18 + 17 * number, line, is_faint=number > 0)
    _grid(page, tile, _right(x) - 18, y + 8)
    return y + high + 6


def _grid(page: _Page, tile: nodes.MicroTile, right: int, top: int) -> None:
    """Rows of the tile, and its columns in bundles, so that the picture has its proportions."""
    rows = min(tile.lines * tile.rows, MOST_CELLS)
    columns = min(max(1, tile.cols // 8), 12) if tile.cols >= 8 else tile.cols
    left = right - columns * CELL
    colour = page.colours["category"][0]
    page.parts.extend(
        f'<rect class="nest-cell" x="{left + column * CELL}" y="{top + row * (CELL - 1)}" '
        f'width="{CELL - 1}" height="{CELL - 2}" fill="{colour}" fill-opacity="0.55"/>'
        for row in range(rows)
        for column in range(columns)
    )


def _right(x: int) -> int:
    """Where a box ends that begins at `x`."""
    return WIDTH - PAD - (x - PAD) * OUTDENT // INDENT


def _text(
    page: _Page, x: int, y: int, says: str, *, is_faint: bool = False, at_end: bool = False
) -> None:
    anchor = ' text-anchor="end"' if at_end else ""
    kind, colour = ("nest-faint", "faint") if is_faint else ("nest-text", "ink")
    page.parts.append(
        f'<text class="{kind}" x="{x}" y="{y}"{anchor} fill="{page.colours[colour]}">'
        f"{escape(says)}</text>"
    )


def format_bytes(size: float) -> str:
    """Format a number of bytes, such as `512 KiB`."""
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if size >= 10 or size == int(size) else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def result_card(result: dict[str, Any]) -> str:
    """Draw a result of `GET /v1/schedules`: its numbers, and the schedule as a loop nest."""
    rows = "".join(
        f"<tr><th style='text-align:left'>{escape(name)}</th>"
        f"<td style='text-align:left'>{escape(value)}</td></tr>"
        for name, value in _facts(result)
    )
    try:
        figure = drawn(result["problem"], result["best"]["steps"])
    except KernelsError:  # steps of a newer version
        figure = ""
    return f"<div><table>{rows}</table>{figure}</div>"


def _facts(result: dict[str, Any]) -> list[tuple[str, str]]:
    best, proof = result["best"], result["proof"]
    low, high = best["interval"] or (best["gflops"], best["gflops"])
    facts = [
        ("problem", result["problem"]),
        ("target", f"{result['target']}, {result['cache']} caches"),
        ("speed", f"{best['gflops']:.1f} GFLOP/s, 95% interval {low:.1f} to {high:.1f}"),
    ]
    if best.get("quality") == "noisy":
        facts.append(("quality", "noisy machine: measure again"))
    if best["peak_fraction"]:
        name = fast_algorithm(best["steps"])
        fewer = f"; {name} does fewer multiplications than GFLOP/s counts" if name else ""
        facts.append(("peak", f"{best['peak_fraction']:.1%} of the measured one{fewer}"))
    for name, peer in sorted(result["peers"].items()):
        ratio = best["gflops"] / peer["gflops"]
        facts.append((name, f"{peer['gflops']:.1f} GFLOP/s, ours is {ratio:.2f}x"))
    if proof is not None:
        speed = "" if proof["gflops"] is None else f", {proof['gflops']:.1f} GFLOP/s"
        status = f"proven{speed}" if proof["sha256"] and not proof["failure"] else "not proven"
        facts.append(("script", f"{status} ({proof['mlir']})"))
    return facts
