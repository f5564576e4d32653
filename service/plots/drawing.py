"""The style of all plots, and their conversion to SVG and PNG."""

from collections.abc import Iterable, Sequence
from html import escape
from types import ModuleType
from typing import Any, Literal

from tilewise.service.errors import DrawingError

Spec = dict[str, Any]
Row = dict[str, Any]
Theme = Literal["light", "dark"]

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
VEGA_LITE = "6.4"
TRIALS = "trials"
"""Name of the data set that a page inserts new trials into."""

WIDTH, HEIGHT = 640, 300
SPEED = "GFLOP/s"
FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace"

STATES = ("timed", "pruned", "failed")
STATE_SHAPES = ("circle", "triangle-up", "cross")
DTYPES = ("f32", "f64", "i32", "bf16", "f16", "i8")

# Okabe and Ito's colours, which people with any colour vision tell apart, darker on white and
# lighter on black until each has a contrast of 3 to its page (WCAG 2.2, 1.4.11).
COLOURS: dict[Theme, dict[str, Any]] = {
    "light": {
        "page": "#ffffff", "ink": "#1f2328", "faint": "#6a7280", "grid": "#e5e7eb",
        "category": ["#0067b0", "#b3630a", "#00805c", "#a8407f", "#7a6a00", "#3f7fa6"],
        "ramp": ["#b9d3ea", "#003d73"],
    },
    "dark": {
        "page": "#14171c", "ink": "#e6e9ee", "faint": "#9aa4b2", "grid": "#2b313b",
        "category": ["#5fb0f0", "#f0a34a", "#3fcf9f", "#e08abf", "#d8c440", "#8fd0f0"],
        "ramp": ["#2b4258", "#a9d8ff"],
    },
}  # fmt: skip


def config(theme: Theme) -> Spec:
    """Return Vega-Lite's `config` for a page of this theme."""
    colours = COLOURS[theme]
    text = {"labelColor": colours["ink"], "titleColor": colours["ink"], "labelFontSize": 11}
    return {
        "background": colours["page"],
        "font": FONT,
        "view": {"stroke": None},
        "axis": {
            **text,
            "gridColor": colours["grid"],
            "domainColor": colours["faint"],
            "tickColor": colours["faint"],
            "titleFontWeight": "normal",
        },
        "legend": {
            **text,
            "symbolStrokeColor": colours["ink"],
            "symbolBaseFillColor": colours["ink"],
            "symbolBaseStrokeColor": colours["ink"],
            "orient": "top",
            "title": None,
            "titleFontWeight": "normal",
        },
        "title": {
            "color": colours["ink"], "subtitleColor": colours["faint"], "anchor": "start",
            "fontSize": 13, "subtitleFontSize": 11, "fontWeight": "normal",
        },
        "text": {"color": colours["ink"], "fontSize": 11},
        "rule": {"color": colours["faint"]},
        "point": {"size": 36},
        "line": {"color": colours["category"][1], "strokeWidth": 1.8},
        "bar": {"color": colours["category"][0]},
        "range": {"category": colours["category"], "ramp": colours["ramp"]},
    }  # fmt: skip


def plot(title: str | Sequence[str], says: str, **parts: Any) -> Spec:
    """Return a specification with common parts; `says` describes it for screen readers."""
    first, *others = [title] if isinstance(title, str) else title
    heading: Any = {"text": first, **({"subtitle": others} if others else {})}
    return {"$schema": SCHEMA, "title": heading, "description": says, **parts}


def sized(spec: Spec, width: int = WIDTH) -> Spec:
    """Return the specification for a separate file, with a width."""
    if "vconcat" in spec:
        return {**spec, "vconcat": [sized(part, width) for part in spec["vconcat"]]}
    return {"width": width, "height": HEIGHT, **spec}


def themed(spec: Spec, theme: Theme = "light") -> Spec:
    """Return the specification with the colours of a page."""
    return {**spec, "config": config(theme)}


def state_scale() -> Spec:
    """Return the scale of trial states by colour and shape."""
    scale = {"domain": list(STATES)}
    return {
        "color": {"field": "state", "type": "nominal", "scale": scale},
        "shape": {
            "field": "state", "type": "nominal", "scale": {**scale, "range": list(STATE_SHAPES)},
        },
    }  # fmt: skip


def tooltip(*fields: str) -> list[Spec]:
    """Return the tooltip of a mark."""
    return [{"field": name, "title": name} for name in fields]


MOST = 1500


def trial_row(trial: Row) -> Row:
    """Return a trial of the API as a row for plots, as `live.js` does for events."""
    low, high = trial["interval"] or (None, None)
    return {
        "number": trial["number"],
        "state": trial["state"],
        "origin": trial["origin"],
        "failure": trial["failure"],
        "gflops": _rounded(trial["gflops"]),
        "low": _rounded(low),
        "high": _rounded(high),
        "pace": _rounded(trial["pace"]),
        "hash": trial["hash"],
    }


def thinned(rows: Sequence[Row], most: int = MOST) -> list[Row]:
    """Return about `most` rows in their order, and all improvements."""
    best = improvements(rows)
    others = [row for row in rows if row["number"] not in best]
    step = max(1, -(-len(others) // most))
    kept = best | {row["number"] for row in others[::step]}
    return [row for row in rows if row["number"] in kept]


def improvements(rows: Iterable[Row]) -> set[int]:
    """Return the numbers of the trials that were faster than all earlier ones."""
    found, best = set(), 0.0
    for row in rows:
        if row["state"] == "timed" and (row["gflops"] or 0.0) > best:
            best = row["gflops"]
            found.add(row["number"])
    return found


def shown_of(shown: int, total: int) -> list[str]:
    """Return a line that says how many trials are shown, unless all are."""
    return [] if shown == total else [f"{shown} of {total} trials: every improvement, some others"]


def _rounded(value: Any) -> float | None:
    return None if value is None else float(f"{value:.5g}")


Format = Literal["svg", "png", "html"]
FORMATS: tuple[Format, ...] = ("svg", "png", "html")
PNG_SCALE = 2.0

ENTRY = "export { vegaEmbed, vega };"
"""What pages take from the bundle."""


def draw(spec: Spec, kind: Format, theme: Theme = "light") -> bytes:
    """Draw a specification of Vega-Lite; `html` is a self-contained page.

    Raises DrawingError if the renderer is missing or refuses it.
    """
    shown = themed(sized(spec), theme)
    renderer = _renderer()
    try:
        if kind == "png":
            return bytes(renderer.vegalite_to_png(shown, vl_version=VEGA_LITE, scale=PNG_SCALE))
        if kind == "svg":
            return str(renderer.vegalite_to_svg(shown, vl_version=VEGA_LITE)).encode()
        page = renderer.vegalite_to_html(shown, vl_version=VEGA_LITE, bundle=True)
        return str(page).encode()
    except ValueError as error:
        raise DrawingError(f"the plot cannot be drawn: {error}") from error


def draw_svg(svg: str, kind: Format) -> bytes:
    """Return an SVG in another format; raise DrawingError as `draw`."""
    if kind == "svg":
        return svg.encode()
    if kind == "html":
        return (
            f"<!doctype html><meta charset=utf-8><title>{escape('Loop nest')}</title>{svg}".encode()
        )
    try:
        return bytes(_renderer().svg_to_png(svg, scale=PNG_SCALE))
    except ValueError as error:
        raise DrawingError(f"the drawing cannot be rendered: {error}") from error


def bundle() -> str:
    """Return Vega, Vega-Lite and Vega-Embed as one JavaScript module; raise DrawingError."""
    return str(_renderer().javascript_bundle(ENTRY, vl_version=VEGA_LITE))


def _renderer() -> ModuleType:
    try:
        import vl_convert
    except ImportError as error:
        raise DrawingError("drawing needs vl-convert-python; install tilewise[service]") from error
    return vl_convert
