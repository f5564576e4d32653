"""What a pass over rows computes: reads, operations, reductions along a row, writes."""

from dataclasses import dataclass, field
from math import copysign

from tilewise.kernels.errors import LoweringError

REDUCTIONS = {f"row {name}": name for name in ("sum", "max", "maxnum", "min", "minnum")}
"""Operations that make one value of a row, and how they combine two elements."""
COMPARE, SELECT, READ, NUMBER = "compare", "select", "read", "number"


@dataclass(frozen=True)
class Source:
    """A tensor that is read.

    Attributes:
        dtype: f32 or bf16.
        is_wide: whether each column has its own element; else a row has one.
        row: elements from where a row begins to where the next one does; None where a table of
            i64s tells the beginning of each.
    """

    dtype: str
    is_wide: bool
    row: int | None


@dataclass(frozen=True)
class Operation:
    """One value, of each element or of each row.

    Attributes:
        name: `read` of a source, `number`, one of `REDUCTIONS`, or one of
            `tilewise.kernels.native.passes.rows.functions`.
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
class Target:
    """A tensor that is written, row behind row.

    Attributes:
        dtype: f32 or bf16.
        value: the operation that is written.
        is_wide: whether each column has an element; one value of a row is then in all of them.
    """

    dtype: str
    value: int
    is_wide: bool


@dataclass(frozen=True)
class RowProgram:
    """A pass over rows of as many columns.

    Its parameters are two words that nothing reads, first and end of the rows; of each source the
    address, and that of its table; of each target the address.

    Attributes:
        operations: in an order in which they can be computed.
    """

    columns: int
    sources: tuple[Source, ...]
    operations: tuple[Operation, ...]
    targets: tuple[Target, ...]


@dataclass(frozen=True)
class Phases:
    """When each value is computed: phase p comes behind the reductions of phase p - 1.

    Attributes:
        is_wide: of each operation, whether it has a value for each column.
        phase: of each wide operation, and of each reduction the phase in which it is summed up.
        kept: wide operations that a later phase reads again.
    """

    is_wide: tuple[bool, ...]
    phase: tuple[int, ...]
    count: int
    kept: frozenset[int]


def operands(program: RowProgram, number: int) -> tuple[int, ...]:
    """What an operation needs: a choice needs what its condition compares, which is no float."""
    operation = program.operations[number]
    if operation.name != SELECT:
        return operation.of
    condition, *values = operation.of
    compared = program.operations[condition]
    if compared.name != COMPARE:
        raise LoweringError("a choice is made by something else than a comparison")
    return (*compared.of, *values)


def phases_of(program: RowProgram) -> Phases:
    """The phases of a program."""
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
    """The phase of each: reductions and what is written as early, others as late as can be."""
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
