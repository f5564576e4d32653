"""IREE's configuration of an op: the tile sizes of its levels, and the passes that lower them."""

from dataclasses import dataclass
from typing import Any, Literal, get_args

from tilewise.kernels.errors import ScheduleError
from tilewise.kernels.schedule.model import Schedule, steps_hash
from tilewise.kernels.steps import StepJson

LevelName = Literal[
    "distribution",
    "cache_parallel",
    "cache_reduction",
    "vector_common_parallel",
    "vector_reduction",
]
LEVELS: tuple[LevelName, ...] = get_args(LevelName)
PipelineName = Literal["DoubleTilingExpert", "ConvTileAndDecomposeExpert"]
Remainders = Literal["masked", "peeled"]

LEVEL, PIPELINE = "level", "pipeline"
_FIELDS = {LEVEL: ("at", "dim", "size"), PIPELINE: ("passes", "remainders")}
_WORDS: dict[str, tuple[str, ...]] = {
    "at": LEVELS,
    "passes": get_args(PipelineName),
    "remainders": get_args(Remainders),
}


@dataclass(frozen=True)
class TileSize:
    """The size of a loop's tiles at one of the levels of IREE's code generation for processors."""

    at: LevelName
    dim: str
    size: int

    def __str__(self) -> str:
        return f"{LEVEL} at={self.at} dim={self.dim} size={self.size}"


@dataclass(frozen=True)
class Configuration:
    """What IREE's code generation takes for an op: `#iree_codegen.compilation_info`.

    It is stored as schedules are: as an array of steps, a `level` for each tile size and the
    `pipeline` at the end.

    Attributes:
        tiles: the lists of `#iree_cpu.lowering_config`, outermost first. The tiles of a level are
            in the order of its loops, which is the level's interchange.
        passes: that lower the loops, `#iree_cpu.pipeline`.
        remainders: what becomes of what tiles do not divide; `peeled` is the pipeline's option
            `enable_loop_peeling`.
    """

    tiles: tuple[TileSize, ...]
    passes: PipelineName
    remainders: Remainders

    def tiles_at(self, level: LevelName) -> list[TileSize]:
        """Return the tiles of one level, in the order of its loops."""
        return [tile for tile in self.tiles if tile.at == level]

    def to_json(self) -> list[StepJson]:
        """Return the array of steps."""
        return [
            *({"step": LEVEL, **vars(tile)} for tile in self.tiles),
            {"step": PIPELINE, "passes": self.passes, "remainders": self.remainders},
        ]

    @classmethod
    def from_json(cls, source: object) -> "Configuration":
        """Read an array of steps.

        Raises:
            ScheduleError: names the step that is not one of a configuration, or its field.
        """
        if not isinstance(source, list | tuple):
            raise ScheduleError(f"a configuration is an array of steps, not {source!r:.40}")
        steps = [_fields_of(step) for step in source]
        if [at for at, (name, _) in enumerate(steps) if name == PIPELINE] != [len(steps) - 1]:
            raise ScheduleError("a configuration has one pipeline step, which is its last step")
        tiles = tuple(TileSize(**values) for name, values in steps if name == LEVEL)
        return cls(tiles, **steps[-1][1])

    @property
    def hash(self) -> str:
        """The hash of the steps, as a schedule has it."""
        return steps_hash(self.to_json())

    def __str__(self) -> str:
        pipeline = f"{PIPELINE} passes={self.passes} remainders={self.remainders}"
        return "\n".join([*map(str, self.tiles), pipeline])


def _fields_of(step: object) -> tuple[str, dict[str, Any]]:
    """Return the name of a step and its fields, once they are known to be right."""
    values = dict(step) if isinstance(step, dict) else {}
    name = str(values.pop("step", None))
    if name not in _FIELDS:
        raise ScheduleError(f"step {step!r}: no step of a tuning spec; give level and pipeline")
    if set(values) != set(_FIELDS[name]):
        raise ScheduleError(f"step {step!r}: {name} has the fields {sorted(_FIELDS[name])}")
    for field, value in values.items():
        if field == "dim":
            if not isinstance(value, str):
                raise ScheduleError(f"step {step!r}: dim is a name")
        elif field == "size":
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ScheduleError(f"step {step!r}: size is a whole number of at least 1")
        elif value not in _WORDS[field]:
            raise ScheduleError(f"step {step!r}: {field} is one of {_WORDS[field]}")
    return name, values


AnySchedule = Schedule | Configuration
"""What a search chooses: the loops of our own code, or the configuration of IREE's."""


def read_steps(source: object) -> AnySchedule:
    """Read an array of stored steps, whoever generates the code of it.

    Raises:
        ScheduleError: it is neither a schedule nor a configuration.
    """
    steps = source if isinstance(source, list | tuple) else ()
    names = [step.get("step") for step in steps if isinstance(step, dict)]
    if LEVEL in names or PIPELINE in names:
        return Configuration.from_json(source)
    return Schedule.from_json(source)
