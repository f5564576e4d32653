"""Schedules from the text of their steps, as they are printed."""

from tilewise.kernels.schedule import Schedule


def schedule(*steps: str) -> Schedule:
    """A schedule from lines such as `tile dim=m size=8`."""
    return Schedule.from_json([_step(text) for text in steps])


def _step(text: str) -> dict[str, str | int]:
    name, *pairs = text.split()
    out: dict[str, str | int] = {"step": name}
    for pair in pairs:
        key, value = pair.split("=")
        out[key] = int(value) if value.isdigit() else value
    return out


PACKED = (
    "tile dim=n size=32", "stream dim=k depth=16", "pack operand=B", "tile dim=m size=8",
    "pack operand=A",
    "register rows=4 cols=16 outer=cols",
    "unroll factor=4",
)  # fmt: skip
IN_PLACE = ("register rows=4 cols=16 outer=rows", "unroll factor=2")
IMAGE = (
    "tile dim=co size=16", "pack operand=B", "tile dim=n size=1", "tile dim=oh size=3",
    "pack operand=A",
    "register rows=4 cols=16 outer=cols",
    "unroll factor=2",
)  # fmt: skip
PIXELS = (
    "tile dim=n size=1", "tile dim=p size=16", "stream dim=k depth=4", "pack operand=B",
    "tile dim=co size=8", "pack operand=A",
    "register rows=4 cols=16 outer=cols",
    "unroll factor=2",
)  # fmt: skip
