"""A pass over rows: reads, operations, reductions along a row, writes."""

from dataclasses import dataclass, field
from math import copysign

from tilewise.kernels.errors import LoweringError

REDUCTIONS = {f"row {name}": name for name in ("sum", "max", "maxnum", "min", "minnum")}
"""Operations that make one value of a row, and how they combine two elements."""
COMPARE, SELECT, READ, NUMBER = "compare", "select", "read", "number"


@dataclass(frozen=True)
class Source:
    """A tensor that is read, as f32 or bf16.

    `is_wide` if each column has an element, else one per row. `row` is the step between rows; None
    if a table has the start of each.
    """

    dtype: str
    is_wide: bool
    row: int | None


@dataclass(frozen=True)
class Operation:
    """One value, per element or per row.

    Attributes:
        name: `read`, `number`, one of `REDUCTIONS`, or a function of
            `tilewise.kernels.native.ir.functions`.
        of: numbers of earlier operations.
        number: of the source, the constant, or MLIR's predicate of a comparison.
    """

    name: str
    of: tuple[int, ...] = ()
    number: float = 0.0
    _sign: float = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Keep the sign, by which 0.0 and -0.0 are two constants: as numbers they are equal."""
        object.__setattr__(self, "_sign", copysign(1.0, self.number))


@dataclass(frozen=True)
class WrittenTensor:
    """A tensor that is written row by row, as f32 or bf16.

    `is_wide` if each column has an element; a value per row is then repeated.
    """

    dtype: str
    value: int
    is_wide: bool


@dataclass(frozen=True)
class RowProgram:
    """A pass over rows of equal length, with operations in executable order.

    Parameters: two unused words, first and end of the rows; address and table of each source;
    address of each target.
    """

    columns: int
    sources: tuple[Source, ...]
    operations: tuple[Operation, ...]
    targets: tuple[WrittenTensor, ...]


@dataclass(frozen=True)
class Phases:
    """When each value is computed: phase p follows the reductions of phase p - 1.

    Attributes:
        is_wide: of each operation, whether it has a value per column.
        phase: of each wide operation, and that in which each reduction is accumulated.
        count: number of phases.
        kept: wide operations that a later phase reads.
    """

    is_wide: tuple[bool, ...]
    phase: tuple[int, ...]
    count: int
    kept: frozenset[int]


def operands(program: RowProgram, number: int) -> tuple[int, ...]:
    """Return the operands of an operation; a select needs those of its comparison."""
    operation = program.operations[number]
    if operation.name != SELECT:
        return operation.of
    condition, *values = operation.of
    compared = program.operations[condition]
    if compared.name != COMPARE:
        raise LoweringError("a choice is made by something else than a comparison")
    return (*compared.of, *values)


def phases_of(program: RowProgram) -> Phases:
    """Return the phases of a program."""
    is_wide, depth = list[bool](), list[int]()
    for number, operation in enumerate(program.operations):
        of = operands(program, number)
        reduces = operation.name in REDUCTIONS
        own = operation.name == READ and program.sources[int(operation.number)].is_wide
        is_wide.append(own or (not reduces and any(is_wide[one] for one in of)))
        depth.append(max((depth[one] for one in of), default=0) + reduces)
    phase = _late(program, is_wide, depth)
    kept = set()
    for number in range(len(phase)):
        if not is_wide[number] and program.operations[number].name not in REDUCTIONS:
            continue
        kept |= {one for one in operands(program, number)
                 if is_wide[one] and phase[one] < phase[number]
                 and program.operations[one].name != READ}  # fmt: skip
    return Phases(tuple(is_wide), tuple(phase), max(depth, default=0) + 1, frozenset(kept))


def _late(program: RowProgram, is_wide: list[bool], depth: list[int]) -> list[int]:
    """Return phases: reductions and written values as early, others as late as possible."""
    phase = list(depth)
    written = {target.value for target in program.targets}
    first: dict[int, int] = {}
    for number in reversed(range(len(phase))):
        reduces = program.operations[number].name in REDUCTIONS
        if reduces:
            phase[number] = depth[number] - 1
        elif is_wide[number] and number not in written:
            phase[number] = first.get(number, phase[number])
        if reduces or is_wide[number]:
            for one in operands(program, number):
                first[one] = min(first.get(one, phase[number]), phase[number])
    return phase
