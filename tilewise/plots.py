"""Plots of what is stored, for files and notebooks; the dashboard draws the same ones.

    from tilewise import Client
    from tilewise.plots import convergence

    with Client("http://localhost:8000") as client:
        convergence([trial.document for trial in client.trials(1)]).save("search.svg")

In a notebook a plot shows itself.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tilewise.errors import BadInputError, MissingError, TilewiseError
from tilewise.schema.base import Json
from tilewise.service.errors import DrawingError
from tilewise.service.plots import convergence as searches
from tilewise.service.plots import nest, ranges, roofline
from tilewise.service.plots.drawing import FORMATS, Format, Spec, Theme, draw, draw_svg, trial_row

VEGA_LITE_MIME = "application/vnd.vegalite.v6+json"


class Picture(ABC):
    """A drawing that notebooks display."""

    def draw(self, kind: Format, theme: Theme = "light") -> bytes:
        """Return the content of a file of this kind; raise TilewiseError if drawing fails."""
        try:
            return self._drawn(kind, theme)
        except DrawingError as error:
            raise TilewiseError(str(error)) from error

    @abstractmethod
    def _drawn(self, kind: Format, theme: Theme) -> bytes: ...

    def save(self, path: str | Path, theme: Theme = "light") -> None:
        """Write a `.svg`, `.png` or `.html` file."""
        data = self.draw(format_of(path), theme)
        Path(path).write_bytes(data)

    def _repr_svg_(self) -> str:
        return self.draw("svg").decode()


@dataclass(frozen=True)
class Plot(Picture):
    """A Vega-Lite 6 specification with its data."""

    spec: Spec

    def _drawn(self, kind: Format, theme: Theme) -> bytes:
        return draw(self.spec, kind, theme)

    def _repr_mimebundle_(self, **_: Any) -> Json:
        """Return the specification, and a picture for notebooks without Vega."""
        return {VEGA_LITE_MIME: self.spec, "image/svg+xml": self._repr_svg_()}


@dataclass(frozen=True)
class NestPlot(Picture):
    """The loop nest of a schedule; `caches` are bytes by level, `l1` and so on."""

    problem: str
    steps: Sequence[Json]
    caches: dict[str, int] | None = None

    def _drawn(self, kind: Format, theme: Theme) -> bytes:
        return draw_svg(nest.draw(self.problem, list(self.steps), self.caches, theme), kind)


def convergence(
    trials: Sequence[Json], problem: str | None = None, peak: float | None = None
) -> Plot:
    """Plot each trial, the best so far, the machine's speed factor, and the proposers.

    `trials` are those of one search, as the API returns them; `peak` is drawn as a line.

    Raises MissingError without trials.
    """
    if not trials:
        raise MissingError("there are no trials to plot")
    rows = [trial_row(trial) for trial in trials]
    return Plot(searches.search(problem or trials[0].get("problem", "search"), rows, peak))


def roofline_of(
    result: Json, trials: Sequence[Json] = (), bandwidth_gbs: float | None = None
) -> Plot:
    """Plot a result under the peak of its machine, with trials, peers and script.

    `bandwidth_gbs` overrides the memory bandwidth of the result.
    """
    limits = roofline.limits_of(result)
    if bandwidth_gbs is not None:
        limits = replace(limits, bandwidth_gbs=bandwidth_gbs)
    rows = [trial_row(trial) for trial in trials]
    return Plot(roofline.of_problem(result["problem"], result, rows, limits))


def roofline_of_report(found: Json) -> Plot:
    """Plot all problems of a suite, as `tilewise bench --json` prints them."""
    return Plot(roofline.of_report(found))


def speed_over_sizes(found: Json, results: Sequence[Json | None] = ()) -> Plot:
    """Plot the variants of a tuned range at its samples, as `tilewise show RANGE --json` has them.

    The peers of `results` of its samples are drawn, too.
    """
    return Plot(ranges.over_sizes(found, results))


def loop_nest(result: Json, caches: dict[str, int] | None = None) -> NestPlot:
    """Draw the loop nest of a result's schedule."""
    return NestPlot(result["problem"], result["best"]["steps"], caches)


def format_of(path: str | Path) -> Format:
    """Return the format that a file's ending names; raise BadInputError for another."""
    for known in FORMATS:
        if Path(path).suffix.lower() == f".{known}":
            return known
    raise BadInputError(f"{str(path)!r} ends in none of {', '.join(f'.{one}' for one in FORMATS)}")
