"""A schedule drawn as the loop nest that it makes: boxes in each other, packs at their level.

This drawing and those of `tilewise.service.plots.networks` no plotting library has; all other
pictures are specifications.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html import escape
from math import prod
from typing import Any

from tilewise.kernels.errors import ScheduleError
from tilewise.kernels.loopnest import Copy, Counts, Kernel, Loop, Nest, build, count
from tilewise.kernels.problem import Problem, parse_problem
from tilewise.kernels.problem.iteration import is_packed_ahead
from tilewise.kernels.schedule import Schedule
from tilewise.service.plots.style import COLOURS, FONT, Theme

WIDTH, INDENT, OUTDENT, LINE, PAD = 640, 14, 4, 24, 8
CELL, MOST_CELLS = 9, 32  # of the register tile's picture
MEMORY = "memory"
CACHES = ("l1", "l2", "l3")
# Which colour of the category, and what a reader is told.
KINDS = {"parallel": 1, "tile": 0, "stream": 2, "micro": 3}
NAMES = {
    "parallel": "threads", "tile": "tile", "stream": "K-stream",
    "micro": "micro-tiles",
}  # fmt: skip
PACK = 4


@dataclass(frozen=True)
class _Page:
    """What everything is drawn with."""

    problem: Problem
    nest: Nest
    counts: Counts
    caches: Mapping[str, int]
    colours: Mapping[str, Any]
    parts: list[str] = field(default_factory=list)


def drawn(
    problem: str, steps: list[dict[str, Any]], caches: Mapping[str, int] | None = None
) -> str:
    """As `draw`; nothing for a configuration of IREE's own code, whose compiler makes the loops.

    Nor for steps of another version that this one does not know, or would not apply.
    """
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
    """The loop nest of a schedule as SVG.

    Args:
        problem: its canonical string.
        steps: of the schedule, as the API gives them.
        caches: bytes of the data caches by level, to name the one that a pack fits; `l1`, ...
        theme: of the page that it stands on; a page's own style sheet may colour the classes.

    Raises:
        KernelsError: no such problem or schedule, or one that is illegal.
    """
    asked = parse_problem(problem)
    nest = build(asked, Schedule.from_json(steps))
    page = _Page(asked, nest, count(asked, nest), caches or {}, COLOURS[theme])
    height = _entries(page) + PAD
    title = escape(f"Loop nest of {problem}: " + "; ".join(_told(nest)))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="nest" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" role="img" aria-label="{title}" '
        f'font-family="{escape(FONT)}" font-size="12">'
        f'<rect class="nest-page" width="100%" height="100%" fill="{page.colours["page"]}"/>'
        + "".join(page.parts)
        + "</svg>\n"
    )


def _told(nest: Nest) -> Iterator[str]:
    return (line.strip() for line in str(nest).splitlines())


def _entries(page: _Page) -> int:
    """Draw the entries from the top; each loop's box holds all that follows it. The height."""
    y = PAD
    opened: list[tuple[int, int, int, Loop]] = []
    for entry in page.nest.entries:
        x = PAD + INDENT * len(opened)
        if isinstance(entry, Loop):
            opened.append((len(page.parts), x, y, entry))
            page.parts.append("")  # its box, as soon as its end is known
            _loop(page, entry, x, y)
            y += LINE
        elif isinstance(entry, Copy):
            _copy(page, entry, x, y)
            y += LINE + 2
        else:
            y = _kernel(page, entry, x, y)
    for place, x, top, loop in reversed(opened):
        y += PAD // 2
        page.parts[place] = _box(page, loop, x, top, y)
    return y


def _box(page: _Page, loop: Loop, x: int, top: int, bottom: int) -> str:
    colour = page.colours["category"][KINDS[loop.kind]]
    return (
        f'<rect class="nest-loop nest-{loop.kind}" x="{x}" y="{top}" width="{_right(x) - x}" '
        f'height="{bottom - top}" rx="4" fill="{colour}" fill-opacity="0.07" stroke="{colour}"/>'
    )


def _loop(page: _Page, loop: Loop, x: int, y: int) -> None:
    _text(page, x + 8, y + 16, f"for {loop.dim} in steps of {loop.step}")
    trips = "1 trip" if loop.trips == 1 else f"{loop.trips} trips"
    said = f"{NAMES[loop.kind]}, {trips}"
    _text(page, _right(x) - 8, y + 16, said, is_faint=True, at_end=True)


def _bar(page: _Page, x: int, y: int) -> None:
    colour = page.colours["category"][PACK]
    page.parts.append(
        f'<rect class="nest-pack" x="{x + 6}" y="{y + 2}" width="{_right(x) - x - 12}" '
        f'height="{LINE - 4}" rx="3" fill="{colour}" fill-opacity="0.18" stroke="{colour}"/>'
    )


def _copy(page: _Page, copy: Copy, x: int, y: int) -> None:
    """A bar that says what is packed, its bytes, and how often that happens."""
    _bar(page, x, y)
    size = prod(copy.shape) * page.problem.element.bytes
    fits = next((name for name in CACHES if size <= page.caches.get(name, 0)), MEMORY)
    where = f", fits {fits.upper()}" if page.caches and fits != MEMORY else ""
    shape = "x".join(map(str, copy.shape))
    _text(page, x + 14, y + 16, f"{_verb(copy)} {shape}: {said_bytes(size)}{where}")
    _text(page, _right(x) - 18, y + 16, _how_often(page, copy), is_faint=True, at_end=True)


def _verb(copy: Copy) -> str:
    """What a copy does; C is transformed behind the loops that it is drawn before."""
    if copy.operand == "C":
        return "then transform to C"
    return f"{'transform' if copy.transforms else 'pack'} {copy.operand} to"


def _how_often(page: _Page, copy: Copy) -> str:
    if is_packed_ahead(page.problem, copy.operand):
        return "once, ahead"
    times, total = page.counts.packs[copy.operand], page.counts.packed_bytes[copy.operand]
    return f"{times} {'time' if times == 1 else 'times'}, {said_bytes(total)} in all"


def _kernel(page: _Page, kernel: Kernel, x: int, y: int) -> int:
    """The register tile as a grid, and what runs in it; where it ends."""
    rows = min(kernel.lines * kernel.rows, MOST_CELLS)
    high = max(3 * LINE - 8, rows * (CELL - 1) + 12)
    colour = page.colours["category"][0]
    page.parts.append(
        f'<rect class="nest-kernel" x="{x + 6}" y="{y + 2}" width="{_right(x) - x - 12}" '
        f'height="{high}" rx="3" fill="{colour}" fill-opacity="0.16" stroke="{colour}"/>'
    )
    jammed = f"{kernel.lines} x " if kernel.lines > 1 else ""
    done = "tiles" if kernel.walks else "calls"
    told = [f"micro-kernel: {jammed}{kernel.rows} x {kernel.cols} of C in registers",
            f"over {kernel.depth} of {page.nest.space.stream}"
            + (f" in {kernel.streams} streams" if kernel.streams > 1 else "")
            + (f" at each of {kernel.taps} taps" if kernel.taps > 1 else "")
            + f", unrolled by {kernel.unroll}"
            + (f", {kernel.lanes} partial sums" if kernel.lanes > 1 else ""),
            f"{page.counts.micro_kernels} {done}"]  # fmt: skip
    for number, line in enumerate(told):
        _text(page, x + 14, y + 18 + 17 * number, line, is_faint=number > 0)
    _grid(page, kernel, _right(x) - 18, y + 8)
    return y + high + 6


def _grid(page: _Page, kernel: Kernel, right: int, top: int) -> None:
    """Rows of the tile, and its columns in bundles, so that the picture has its proportions."""
    rows = min(kernel.lines * kernel.rows, MOST_CELLS)
    columns = min(max(1, kernel.cols // 8), 12) if kernel.cols >= 8 else kernel.cols
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


def said_bytes(size: float) -> str:
    """A number of bytes as people read it: `512 KiB`."""
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if size >= 10 or size == int(size) else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
