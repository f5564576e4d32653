"""IREE's configuration of an op: the tile sizes of its levels, and the passes that lower them."""

from dataclasses import dataclass
from typing import Any, Literal, get_args

from tilewise.kernels.errors import ScheduleError
from tilewise.kernels.schedule import Schedule, steps_hash
from tilewise.kernels.steps import StepJson
from tilewise.kernels.system import typed_json

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
    def from_json(cls, source: Any) -> "Configuration":
        """Read an array of steps; ScheduleError when it is none of a configuration."""
        names = _names(source)
        if names[-1:] != [PIPELINE] or set(names[:-1]) - {LEVEL}:
            found = ", ".join(names) or "none"
            raise ScheduleError(f"a tuning spec takes steps level, then one pipeline; not {found}")
        parts = [{k: v for k, v in step.items() if k != "step"} for step in source]
        try:
            return typed_json.from_json(cls, {"tiles": parts[:-1], **parts[-1]})
        except ValueError as error:
            raise ScheduleError(str(error)) from error

    @property
    def hash(self) -> str:
        """The hash of the steps, as a schedule has it."""
        return steps_hash(self.to_json())

    def __str__(self) -> str:
        pipeline = f"{PIPELINE} passes={self.passes} remainders={self.remainders}"
        return "\n".join([*map(str, self.tiles), pipeline])


AnySchedule = Schedule | Configuration
"""What a search chooses: the loops of our own code, or the configuration of IREE's."""


def read_steps(source: object) -> AnySchedule:
    """Read an array of stored steps, whoever generates the code of it.

    Raises:
        ScheduleError: it is neither a schedule nor a configuration.
    """
    if {LEVEL, PIPELINE}.isdisjoint(_names(source)):
        return Schedule.from_json(source)
    return Configuration.from_json(source)


def _names(source: object) -> list[str]:
    """Return the names of steps, `None` for what has no name."""
    steps = source if isinstance(source, list | tuple) else ()
    return [str(step.get("step")) if isinstance(step, dict) else "None" for step in steps]
