"""Specifications as pictures and pages of their own, by vl-convert, without a browser.

The renderer is a JavaScript engine of some hundred megabytes: it is loaded by whoever draws a
file, and by a child process of the service, once, for the bundle that pages load.
"""

import sys
from html import escape
from types import ModuleType
from typing import Literal

from tilewise.service.errors import DrawingError
from tilewise.service.plots.style import VEGA_LITE, Spec, Theme, sized, themed

Format = Literal["svg", "png", "html"]
FORMATS: tuple[Format, ...] = ("svg", "png", "html")
PNG_SCALE = 2.0

ENTRY = "export { vegaEmbed, vega };"
"""What pages take from the bundle."""


def draw(spec: Spec, kind: Format, theme: Theme = "light") -> bytes:
    """The picture of a specification.

    Args:
        spec: of Vega-Lite, from one of the modules beside this one.
        kind: `html` is a page that loads nothing from elsewhere.
        theme: of the page that it stands on.

    Raises:
        DrawingError: the renderer is not installed, or refuses the specification.
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
    """A drawing that is SVG already, as the others.

    Raises:
        DrawingError: as `draw`.
    """
    if kind == "svg":
        return svg.encode()
    if kind == "html":
        return (
            f"<!doctype html><meta charset=utf-8><title>{escape('Loop nest')}</title>{svg}".encode()
        )
    try:
        return bytes(_renderer().svg_to_png(svg, scale=PNG_SCALE))
    except ValueError as error:
        raise DrawingError(f"the drawing cannot be made a picture: {error}") from error


def bundle() -> str:
    """Vega, Vega-Lite and Vega-Embed as one module of JavaScript, about 900 KB.

    Raises:
        DrawingError: the renderer is not installed.
    """
    return str(_renderer().javascript_bundle(ENTRY, vl_version=VEGA_LITE))


def _renderer() -> ModuleType:
    try:
        import vl_convert
    except ImportError as error:
        raise DrawingError("drawing needs vl-convert-python; install tilewise[service]") from error
    return vl_convert


if __name__ == "__main__":
    sys.stdout.write(bundle())
