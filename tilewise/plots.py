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
from typing import Any, get_args

from tilewise.errors import BadInputError, MissingError, TilewiseError
from tilewise.service.errors import DrawingError
from tilewise.service.plots import convergence as searches
from tilewise.service.plots import nest, parameters, roofline, speeds
from tilewise.service.plots.drawing import FORMATS, Format, Spec, Theme, draw, draw_svg, trial_row

Json = dict[str, Any]

THEMES: tuple[Theme, ...] = get_args(Theme)
VEGA_LITE_MIME = "application/vnd.vegalite.v6+json"


class Picture(ABC):
    """Something that can be drawn; a notebook shows it by itself."""

    @abstractmethod
    def draw(self, kind: Format, theme: Theme = "light") -> bytes:
        """The picture as a file of this kind holds it; TilewiseError if it cannot be drawn."""

    def save(self, path: str | Path, theme: Theme = "light") -> None:
        """Write a file, whose name says of which kind it is.

        Raises:
            BadInputError: it is none of `.svg`, `.png`, `.html`.
            TilewiseError: it cannot be drawn.
        """
        data = self.draw(format_of(path), theme)
        Path(path).write_bytes(data)

    def _repr_svg_(self) -> str:
        return self.draw("svg").decode()


@dataclass(frozen=True)
class Plot(Picture):
    """A specification of Vega-Lite.

    Attributes:
        spec: of version 6, with its data, without colours of a page.
    """

    spec: Spec

    def draw(self, kind: Format, theme: Theme = "light") -> bytes:
        """Draw the specification."""
        try:
            return draw(self.spec, kind, theme)
        except DrawingError as error:
            raise TilewiseError(str(error)) from error

    def _repr_mimebundle_(self, **_: Any) -> Json:
        """What notebooks take: the specification, and a picture for those that know none."""
        return {VEGA_LITE_MIME: self.spec, "image/svg+xml": self._repr_svg_()}


@dataclass(frozen=True)
class Drawing(Picture):
    """The loop nest of a schedule.

    Attributes:
        problem: its canonical string.
        steps: of the schedule.
        caches: bytes by level, `l1` and so on, where they are known.
    """

    problem: str
    steps: Sequence[Json]
    caches: dict[str, int] | None = None

    def draw(self, kind: Format, theme: Theme = "light") -> bytes:
        """Draw the nest."""
        try:
            svg = nest.draw(self.problem, list(self.steps), self.caches, theme)
            return draw_svg(svg, kind)
        except DrawingError as error:
            raise TilewiseError(str(error)) from error


def convergence(
    trials: Sequence[Json], problem: str | None = None, peak: float | None = None
) -> Plot:
    """Each trial, the best so far, the machine's pace, and who proposed what.

    Args:
        trials: of one search, as `GET /v1/trials` or `GET /v1/jobs/{id}/trials` gives them.
        problem: whose search it is; None takes it from the trials.
        peak: of the machine, in GFLOP/s, as a line; None draws none.

    Raises:
        MissingError: there are no trials.
    """
    rows = [trial_row(trial) for trial in _some(trials)]
    return Plot(searches.search(problem or trials[0].get("problem", "search"), rows, peak))


def importance(trials: Sequence[Json]) -> Plot:
    """How much of the time depends on each parameter; MissingError for too few trials."""
    found = parameters.importances(_some(trials))
    if not found:
        raise MissingError(
            f"{len(trials)} trials tell nothing of parameters; "
            f"{parameters.FEWEST} timed ones are needed"
        )
    return Plot(parameters.importance(found, len(trials)))


def parallel(trials: Sequence[Json]) -> Plot:
    """A line through the parameters of each timed trial; MissingError without trials."""
    return Plot(parameters.parallel(_some(trials), list(parameters.importances(trials))))


def roofline_of(
    result: Json, trials: Sequence[Json] = (), bandwidth_gbs: float | None = None
) -> Plot:
    """A result under the peak of its machine, with its trials, its peers and its script.

    Args:
        result: as `GET /v1/schedules` gives it.
        trials: of the search.
        bandwidth_gbs: of the memory, for the slope; None takes what the result says, if it does.
    """
    limits = roofline.limits_of(result)
    if bandwidth_gbs is not None:
        limits = replace(limits, bandwidth_gbs=bandwidth_gbs)
    rows = [trial_row(trial) for trial in trials]
    return Plot(roofline.of_problem(result["problem"], result, rows, limits))


def roofline_of_report(found: Json) -> Plot:
    """All problems of a suite, as `tilewise bench --json` prints them."""
    return Plot(roofline.of_report(found))


def shares_of_peak(found: Json) -> Plot:
    """Bars for the problems of a run of `benchmarks.peers.main_job`."""
    return Plot(speeds.shares_of_peak(found))


def loop_nest(result: Json, caches: dict[str, int] | None = None) -> Drawing:
    """The loop nest of a result's schedule."""
    return Drawing(result["problem"], result["best"]["steps"], caches)


def format_of(path: str | Path) -> Format:
    """What the name of a file says that it holds; BadInputError for another ending."""
    ending = Path(path).suffix.lower().removeprefix(".")
    for known in FORMATS:
        if ending == known:
            return known
    raise BadInputError(f"{str(path)!r} ends in none of {', '.join(f'.{one}' for one in FORMATS)}")


def _some(trials: Sequence[Json]) -> Sequence[Json]:
    if not trials:
        raise MissingError("there are no trials to plot")
    return trials
