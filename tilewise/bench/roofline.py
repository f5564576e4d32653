"""A bench report as a roofline: speed over arithmetic intensity, both logarithmic.

Williams, Waterman and Patterson, Roofline: an insightful visual performance model (CACM
52(4), 2009). Intensity counts every operand once; problems that live in a cache are read
from there, so small ones may lie above the slope of the memory.
"""

from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10
from typing import Any

from kernels.problem import parse_problem

Json = dict[str, Any]

LEFT, TOP, WIDTH, HEIGHT = 70, 64, 760, 420
RADIUS, LEGEND = 5, 132
TEXT = 'font-family="ui-monospace, Menlo, Consolas, monospace" font-size="12" fill="#222"'
COLOURS = {
    "f32": "#1f4e9c", "f64": "#7a3e9d", "i32": "#2e8b57",
    "bf16": "#c2571a", "f16": "#b8860b", "i8": "#b22245",
}  # fmt: skip
HEADROOM = 1.3  # of each axis beyond the last thing on it


@dataclass(frozen=True)
class Dot:
    """One problem: where it lies, and how fast ours and the best peer are (None: absent)."""

    name: str
    dtype: str
    intensity: float
    ours: float | None
    oracle: float | None
    peer: str


@dataclass(frozen=True)
class Axis:
    """A logarithmic axis from value to pixel."""

    low: float
    high: float
    start: float
    length: float

    def at(self, value: float) -> float:
        """The pixel of a value."""
        share = (log10(value) - log10(self.low)) / (log10(self.high) - log10(self.low))
        return self.start + self.length * share

    def ticks(self) -> list[float]:
        """1, 2 and 5 of every decade inside."""
        decades = range(floor(log10(self.low)), ceil(log10(self.high)) + 1)
        values = [step * 10.0**decade for decade in decades for step in (1, 2, 5)]
        return [value for value in values if self.low <= value <= self.high]


def draw(found: Json) -> str:
    """The whole picture as SVG, from what `tilewise bench --json` prints."""
    dots = [dot for row in found["problems"] if (dot := _dot(row)) is not None]
    peaks, slope = found["machine"]["peak_gflops"], found["machine"]["bandwidth_gbs"]
    x, y = _axes(dots, peaks, slope)
    bottom = TOP + HEIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 24} {bottom + 62}">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{LEFT}" y="20" {TEXT}>{escape(_title(found))}</text>',
        *_legend(sorted({dot.dtype for dot in dots} | set(peaks)), peaks),
        *_grid(x, y),
        *_roofs(x, y, peaks, slope),
        *(part for dot in dots for part in _marks(dot, x, y)),
        f'<text x="{LEFT}" y="{bottom + 40}" {TEXT}>GFLOP/s over flops per byte of operands; '
        f"slope: memory {slope:.1f} GB/s; filled: ours, hollow: the best peer</text>",
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _dot(row: Json) -> Dot | None:
    """None for a problem that nobody computed."""
    problem = parse_problem(row["problem"])
    ours, oracle = row["ours"], row["oracle"]
    if ours is None and oracle is None:
        return None
    return Dot(
        name=row["problem"],
        dtype=problem.element.name,
        intensity=problem.flops / problem.bytes,
        ours=ours and ours["gflops"],
        oracle=oracle and oracle["gflops"],
        peer=oracle["peer"] if oracle else "",
    )


def _title(found: Json) -> str:
    machine = found["machine"]
    title = f"{found['suite']}: {machine['processor']} ({machine['target']})"
    if found["geomean_ratio"] is not None:
        title += f"; geometric mean {found['geomean_ratio']:.2f}x the best peer"
    return title


def _axes(dots: list[Dot], peaks: dict[str, float], slope: float) -> tuple[Axis, Axis]:
    """Axes that hold every dot, every roof, and every corner between roof and slope."""
    speeds = [speed for dot in dots for speed in (dot.ours, dot.oracle) if speed]
    speeds += peaks.values() or [slope]
    places = [dot.intensity for dot in dots] + [speed / slope for speed in peaks.values()]
    places = places or [1.0]
    x = Axis(min(places) / HEADROOM, max(places) * HEADROOM, LEFT, WIDTH)
    y = Axis(min(speeds) / HEADROOM, max(speeds) * HEADROOM, TOP + HEIGHT, -HEIGHT)
    return x, y


def _legend(dtypes: list[str], peaks: dict[str, float]) -> list[str]:
    """A colour per dtype, with the roof of that colour."""
    parts = []
    for index, dtype in enumerate(dtypes):
        x = LEFT + LEGEND * index
        roof = f", peak {peaks[dtype]:.0f}" if dtype in peaks else ""
        parts.append(
            f'<circle cx="{x + 6}" cy="40" r="{RADIUS}" fill="{COLOURS[dtype]}"/>'
            f'<text x="{x + 18}" y="44" {TEXT}>{dtype}{roof}</text>'
        )
    return parts


def _grid(x: Axis, y: Axis) -> list[str]:
    bottom, right = TOP + HEIGHT, LEFT + WIDTH
    parts = [
        f'<line x1="{x.at(tick):.1f}" x2="{x.at(tick):.1f}" y1="{TOP}" y2="{bottom}" '
        f'stroke="#e4e4e4"/><text x="{x.at(tick):.1f}" y="{bottom + 18}" text-anchor="middle" '
        f"{TEXT}>{tick:g}</text>"
        for tick in x.ticks()
    ]
    return parts + [
        f'<line x1="{LEFT}" x2="{right}" y1="{y.at(tick):.1f}" y2="{y.at(tick):.1f}" '
        f'stroke="#e4e4e4"/><text x="{LEFT - 8}" y="{y.at(tick) + 4:.1f}" text-anchor="end" '
        f"{TEXT}>{tick:g}</text>"
        for tick in y.ticks()
    ]


def _roofs(x: Axis, y: Axis, peaks: dict[str, float], slope: float) -> list[str]:
    """The slope of the memory up to the highest peak, and each dtype's peak from it on."""
    top = max(peaks.values(), default=y.high)
    start = max(x.low, y.low / slope)
    end = max(start, min(top / slope, x.high))
    parts = [_line(x, y, (start, start * slope), (end, end * slope), "#555")]
    for dtype, peak in peaks.items():
        corner = min(max(peak / slope, x.low), x.high)
        parts.append(_line(x, y, (corner, peak), (x.high, peak), COLOURS[dtype]))
    return parts


def _line(
    x: Axis, y: Axis, start: tuple[float, float], end: tuple[float, float], colour: str
) -> str:
    return (
        f'<line x1="{x.at(start[0]):.1f}" y1="{y.at(start[1]):.1f}" x2="{x.at(end[0]):.1f}" '
        f'y2="{y.at(end[1]):.1f}" stroke="{colour}" stroke-width="1.5"/>'
    )


def _marks(dot: Dot, x: Axis, y: Axis) -> list[str]:
    """Ours filled, the best peer hollow, and a thread between the two."""
    colour, parts = COLOURS[dot.dtype], []
    if dot.ours and dot.oracle:
        ends = ((dot.intensity, dot.ours), (dot.intensity, dot.oracle))
        parts.append(_line(x, y, *ends, "#bbb"))
    for speed, fill, who in ((dot.oracle, "white", dot.peer), (dot.ours, colour, "ours")):
        if speed:
            says = escape(f"{dot.name}: {who} {speed:.1f} GFLOP/s")
            parts.append(
                f'<circle class="{"ours" if who == "ours" else "peer"}" '
                f'cx="{x.at(dot.intensity):.1f}" cy="{y.at(speed):.1f}" r="{RADIUS}" '
                f'fill="{fill}" stroke="{colour}" stroke-width="1.5">'
                f"<title>{says}</title></circle>"
            )
    return parts
