"""Steps as JSON has them, with errors that name the field."""

from dataclasses import fields

from tilewise.kernels.errors import ScheduleError
from tilewise.kernels.schedule.steps.algorithms import Strassen, Winograd
from tilewise.kernels.schedule.steps.base import Step
from tilewise.kernels.schedule.steps.copies import Pack, Prefetch
from tilewise.kernels.schedule.steps.levels import LEVELS, PIPELINES, REMAINDERS, Level, Pipeline
from tilewise.kernels.schedule.steps.loops import Parallel, Stream, Tile
from tilewise.kernels.schedule.steps.register import (
    Instruction,
    Interleave,
    Jam,
    Register,
    Split,
    Sweep,
    Unroll,
)
from tilewise.kernels.schedule.steps.retired import RETIRED, Retired
from tilewise.kernels.schedule.steps.stores import Nontemporal
from tilewise.kernels.target.instructions import NAMES

STEPS: dict[str, type[Step]] = {
    cls.name: cls
    for cls in (
        *(Winograd, Strassen, Parallel, Tile, Stream, Pack, Prefetch),
        *(Instruction, Register, Jam, Sweep, Interleave, Split, Unroll, Nontemporal),
        *(Level, Pipeline),
    )
}
_WORDS: dict[str, tuple[str, ...]] = {
    "operand": ("A", "B"),
    "outer": ("rows", "cols"),
    "at": LEVELS,
    "passes": PIPELINES,
    "remainders": REMAINDERS,
    "op": NAMES,
}
_OWN_WORDS: dict[tuple[type[Step], str], tuple[str, ...]] = {(Nontemporal, "operand"): ("C",)}


def step_from_json(source: object) -> Step:
    """Read one step back.

    Raises:
        ScheduleError: not an object, an unknown step, or a missing, unknown or bad field.
    """
    if not isinstance(source, dict):
        raise ScheduleError(f"step {source!r} is not an object")
    values = dict(source)
    name = str(values.pop("step", None))
    kind = STEPS.get(name, Retired if name in RETIRED else None)
    if kind is None:
        raise ScheduleError(f"step {source!r}: unknown; known are {', '.join(STEPS)}")
    names = RETIRED.get(name) or tuple(f.name for f in fields(kind))
    if set(values) != set(names):
        raise ScheduleError(f"step {source!r}: {name} has the fields {sorted(names)}")
    for field, value in values.items():
        _check_field(source, kind, field, value)
    if kind is Retired:
        return Retired(name, tuple((field, values[field]) for field in names))
    return kind(**values)


def _check_field(source: object, kind: type[Step], name: str, value: object) -> None:
    words = _OWN_WORDS.get((kind, name)) or _WORDS.get(name)
    if words:
        if value not in words:
            raise ScheduleError(f"step {source!r}: {name} is one of {words}")
    elif name == "dim":
        if not isinstance(value, str):
            raise ScheduleError(f"step {source!r}: dim is a name")
    elif isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ScheduleError(f"step {source!r}: {name} is a whole number of at least 1")
