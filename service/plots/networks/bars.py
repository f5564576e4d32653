"""A plan's times as bars of one scale: what was planned, part by part, and the two others."""

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape

from tilewise.search.networks.plan import Totals
from tilewise.service.plots.networks.picture import Box, Picture
from tilewise.service.plots.networks.words import told_us

HEIGHT = 22
DIRECT = "direct"


@dataclass(frozen=True)
class Bar:
    """One total.

    Attributes:
        name: what it is the time of.
        time_us: the total.
        ratio: over the planned time.
        svg: the bar, as wide as its place; for the eye alone.
    """

    name: str
    time_us: float
    ratio: float
    svg: str


def bars(picture: Picture, totals: Totals) -> list[Bar]:
    """The planned time in its parts, and the two others; none where nothing was timed."""
    times = {
        "planned": totals.chosen_us,
        "all as the model has it": totals.plain_us,
        "each layer on its own": totals.alone_us,
    }
    longest = max(times.values())
    if not totals.chosen_us:
        return []
    made = []
    for name, time_us in times.items():
        if name == "planned":
            inside = "".join(_parts(picture, longest))
        else:
            inside = (
                f'<rect class="bar-other" width="{_percent(time_us / longest)}" height="100%"/>'
            )
        svg = (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="bar" aria-hidden="true" '
            f'width="100%" height="{HEIGHT}">{inside}</svg>'
        )
        made.append(Bar(name, time_us, time_us / totals.chosen_us, svg))
    return made


def kind_of(box: Box) -> str:
    """By which a part of a bar is coloured."""
    if box.kind != "layer":
        return "copy" if box.kind == "copy" else "pass"
    return "direct" if box.algorithm == DIRECT else "other-algorithm"


def _parts(picture: Picture, longest: float) -> Iterator[str]:
    """Each box that is timed, as wide as its time is long."""
    passed = 0.0
    for box in picture.in_order:
        if box.time_us is None:
            continue
        number = "" if box.node is None else f"{box.node} "
        told = f"{number}{box.title} {box.detail}: {told_us(box.time_us)}"
        part = (
            f'<rect class="bar-{kind_of(box)}" x="{_percent(passed / longest)}" '
            f'width="{_percent(box.time_us / longest)}" height="100%">'
            f"<title>{escape(told)}</title></rect>"
        )
        # Those who cannot see the bar have the table.
        leads = "" if box.node is None else f' href="#node-{box.node}"'
        yield f'<a tabindex="-1"{leads}>{part}</a>' if leads else part
        passed += box.time_us


def _percent(share: float) -> str:
    return f"{100 * share:.3f}%"
