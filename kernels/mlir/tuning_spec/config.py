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
    """The size of a loop's tiles at one level of IREE's code generation for CPUs."""

    at: LevelName
    dim: str
    size: int

    def __str__(self) -> str:
        return f"{LEVEL} at={self.at} dim={self.dim} size={self.size}"


@dataclass(frozen=True)
class Configuration:
    """IREE's configuration of an op, `#iree_codegen.compilation_info`.

    It is stored like a schedule: an array of steps, a `level` per tile size and a final `pipeline`.

    Attributes:
        tiles: the lists of `#iree_cpu.lowering_config`, outermost first; the order of a level's
            tiles is its interchange.
        passes: the pipeline, `#iree_cpu.pipeline`.
        remainders: masked, or peeled by the pipeline's `enable_loop_peeling`.
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
        """Read an array of steps; raise ScheduleError if it is not a configuration."""
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
        """The hash of the steps, as for a schedule."""
        return steps_hash(self.to_json())

    def __str__(self) -> str:
        pipeline = f"{PIPELINE} passes={self.passes} remainders={self.remainders}"
        return "\n".join([*map(str, self.tiles), pipeline])


AnySchedule = Schedule | Configuration
"""The choice of a search: the loops of our own code, or the configuration of IREE's."""


def read_steps(source: object) -> AnySchedule:
    """Read stored steps as a schedule or a configuration; raise ScheduleError if neither fits."""
    if {LEVEL, PIPELINE}.isdisjoint(_names(source)):
        return Schedule.from_json(source)
    return Configuration.from_json(source)


def _names(source: object) -> list[str]:
    """Return the names of steps, `None` for a step without a name."""
    steps = source if isinstance(source, list | tuple) else ()
    return [str(step.get("step")) if isinstance(step, dict) else "None" for step in steps]
