"""A search parameter: square blocks of register tiles, visited by rows, multiplied by `fmuladd`."""

from tests.extension.reorder import Reorder
from tilewise.kernels.instructions import Form, instructions
from tilewise.kernels.problem import Matmul
from tilewise.kernels.schedule import Schedule, loop_nest
from tilewise.kernels.steps import InstructionChoice, Pack, Parallel, Register, Tile, Unroll
from tilewise.search.space.parameters import Parameter
from tilewise.search.space.points import Value
from tilewise.search.space.workload import Workload

NAME = "blocks"


def blocks(workload: Workload) -> Parameter | None:
    """Return how many register tiles a block has each way, for products of f32 matrices."""
    problem = workload.problem
    is_plain = isinstance(problem, Matmul) and problem.batch == 1
    return Parameter(NAME, (2, 3)) if is_plain and problem.dtype == "f32" else None


def in_blocks(workload: Workload, schedule: Schedule, count: Value) -> Schedule:
    """Return a schedule with such blocks instead of its own; one of another form as it is."""
    nest = loop_nest(workload.problem, schedule)
    if nest.algorithm or nest.is_macro or nest.compute.lanes > 1:
        return schedule
    fmuladd = next(
        one.name
        for one in instructions("f32", workload.target, Form.OUTER_PRODUCT)
        if one.mnemonic == "fmuladd.f32"
    )
    kept = [step for step in schedule.steps if isinstance(step, Pack | Parallel)]
    behind = [step for step in schedule.steps if isinstance(step, Register | Unroll)]
    sizes = {dim: int(str(count)) * nest.unit(dim) for dim in (nest.col, nest.row)}
    tiles = [Tile(dim, size) for dim, size in sizes.items()]
    steps = (*kept, *tiles, Reorder(nest.col), InstructionChoice(fmuladd), *behind)
    return Schedule(steps)
