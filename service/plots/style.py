"""How every plot looks: sizes, fonts, and colours that hold on light and on dark pages."""

from collections.abc import Sequence
from typing import Any, Literal

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
    """Vega-Lite's `config` for a page of this kind."""
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
    """A specification with what all have.

    Args:
        title: its first line, or the first and those below it.
        says: in words what it shows, for those who do not see it.
        parts: the rest of it.
    """
    first, *others = [title] if isinstance(title, str) else title
    heading: Any = {"text": first, **({"subtitle": others} if others else {})}
    return {"$schema": SCHEMA, "title": heading, "description": says, **parts}


def sized(spec: Spec, width: int = WIDTH) -> Spec:
    """The specification as a picture of its own: a plot without a width gets one."""
    if "vconcat" in spec:
        return {**spec, "vconcat": [sized(part, width) for part in spec["vconcat"]]}
    return {"width": width, "height": HEIGHT, **spec}


def themed(spec: Spec, theme: Theme = "light") -> Spec:
    """The specification with the colours of a page."""
    return {**spec, "config": config(theme)}


def state_scale() -> Spec:
    """How a trial ended, by colour and shape: who cannot tell the one sees the other."""
    scale = {"domain": list(STATES)}
    return {
        "color": {"field": "state", "type": "nominal", "scale": scale},
        "shape": {
            "field": "state", "type": "nominal", "scale": {**scale, "range": list(STATE_SHAPES)},
        },
    }  # fmt: skip


def tooltip(*fields: str) -> list[Spec]:
    """What is told of the thing under the pointer."""
    return [{"field": name, "title": name} for name in fields]
