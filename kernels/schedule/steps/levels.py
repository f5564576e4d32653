"""Steps of IREE's own schedules: what its compiler tiles at which level, and by which pipeline."""

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from tilewise.kernels.nest import Nest
from tilewise.kernels.steps.base import Phase, Place, Step, register_step

LevelName = Literal[
    "distribution",
    "cache_parallel",
    "cache_reduction",
    "vector_common_parallel",
    "vector_reduction",
]
LEVELS: tuple[LevelName, ...] = get_args(LevelName)
PipelineName = Literal["DoubleTilingExpert", "ConvTileAndDecomposeExpert"]
PIPELINES: tuple[PipelineName, ...] = get_args(PipelineName)
Remainders = Literal["masked", "peeled"]
REMAINDERS: tuple[Remainders, ...] = get_args(Remainders)


@dataclass(frozen=True)
class OfIree(Step):
    """A step of IREE's own code, which no nest here has."""

    place: ClassVar[Place] = Place.ANYWHERE
    phase: ClassVar[Phase] = Phase.ALGORITHM

    def check(self, nest: Nest) -> None:
        """Raise: no kernel here has it."""
        why = "it is of IREE's own code; give a schedule for a target cpu:NAME"
        raise self.refused(nest, why)


@register_step
@dataclass(frozen=True)
class Level(OfIree):
    """Tile a loop at one of the levels of IREE's code generation for processors.

    A list of `#iree_cpu.lowering_config`. The steps of a level stand in the order of its loops,
    which is the level's interchange. Flavor iree-spec alone: no native kernel has it.

        level at=distribution dim=m size=64
    before                          after
        for m, n:                       for m0 by 64 among the workgroups:
            C = ...                         for m in m0: for n:
                                                C = ...
    """

    name: ClassVar[str] = "level"
    words: ClassVar[dict[str, tuple[str, ...]]] = {"at": LEVELS}
    at: LevelName
    dim: str
    size: int


@register_step
@dataclass(frozen=True)
class Pipeline(OfIree):
    """The passes that IREE lowers the loops by, and what becomes of what tiles do not divide.

    `#iree_cpu.pipeline`; `peeled` is its option `enable_loop_peeling`. Flavor iree-spec alone.
    """

    name: ClassVar[str] = "pipeline"
    words: ClassVar[dict[str, tuple[str, ...]]] = {"passes": PIPELINES, "remainders": REMAINDERS}
    passes: PipelineName
    remainders: Remainders
