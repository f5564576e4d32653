"""What C sees of an object: its names, the arguments of its functions, sizes and return codes."""

from dataclasses import dataclass
from math import prod

from tilewise.kernels.native.export.public_function import operand_names
from tilewise.kernels.native.ir.vectors import LINE_BYTES
from tilewise.kernels.native.microkernels.skinny_products import SkinnyGemmSpec
from tilewise.kernels.native.plan import Plan
from tilewise.kernels.oracle.operands import operand_type
from tilewise.kernels.problem import DTYPES, Problem, stem
from tilewise.kernels.schedule import Schedule
from tilewise.kernels.target.model import Target

PREFIX = "tilewise_"
OK, NULL, MISALIGNED, NO_SUCH_PART = 0, 1, 2, 3
"""What the functions return."""

C_TYPES = {"f32": "float", "f64": "double", "i32": "int32_t", "i8": "int8_t",
           "bf16": "uint16_t", "f16": "uint16_t"}  # fmt: skip


@dataclass(frozen=True)
class Argument:
    """A pointer that a function takes.

    Attributes:
        name: in C.
        operand: A, B, C or bias of the problem; empty for memory.
        type: C's, of what it points to.
        alignment: of the address, in bytes.
        is_const: whether it is only read.
    """

    name: str
    operand: str
    type: str
    alignment: int
    is_const: bool = True


@dataclass(frozen=True)
class Interface:
    """The C interface of a kernel.

    Attributes:
        name: of its function, with the processor and the schedule's hash.
        alias: the same without them, for programs that are compiled against another schedule.
        arguments: of the function, in their order; the memory for panels is the last.
        weights: what `prepare` takes, where the weights are constant.
        packed_bytes: of the weights that `prepare` writes, in whole lines; 0 where there are none.
        weight_bytes: of the weights as they are.
        scratch_bytes: of the memory for panels, of all parts.
        scratch_of_a: those in front of the panels of B.
        parts: into which the work is cut.
    """

    name: str
    alias: str
    arguments: tuple[Argument, ...]
    weights: Argument | None
    packed_bytes: int
    weight_bytes: int
    scratch_bytes: int
    scratch_of_a: int
    parts: int

    @property
    def short_name(self) -> str:
        """The name as the language of drivers has it, which puts the prefix in front."""
        return self.name.removeprefix(PREFIX)

    @property
    def functions(self) -> tuple[str, ...]:
        """The names of all that C calls."""
        endings = ("", "_part", "_supported", *(("_prepare",) if self.weights else ()))
        return tuple(f"{self.name}{ending}" for ending in endings)

    @classmethod
    def of(cls, problem: Problem, schedule: Schedule, target: Target, planned: Plan) -> "Interface":
        """That of a planned kernel."""
        alias = problem_name(problem)
        processor = "".join(c if c.isalnum() else "_" for c in target.cpu)
        a, b = scratch_of(planned, "A"), scratch_of(planned, "B")
        return cls(
            name=f"{alias}_{processor}_{schedule.hash}",
            alias=alias,
            arguments=_arguments(problem),
            weights=_operand(problem, "B") if problem.has_constant_weights else None,
            packed_bytes=_packed_bytes(problem, planned),
            weight_bytes=_bytes_of(problem, "B"),
            scratch_bytes=a + (0 if planned.is_ahead else b),
            scratch_of_a=a,
            parts=len(planned.nest.parts),
        )


def problem_name(problem: Problem) -> str:
    """Such as `tilewise_matmul_m64_n48_k32_f32`."""
    return PREFIX + "".join(c if c.isalnum() else "_" for c in stem(problem))


def scratch_of(planned: Plan, role: str) -> int:
    """Bytes of panels of A or B for all parts, to the end of a line; 0 for one read in place.

    Sums of a sweep that lie in panels have the place of A's.
    """
    spec = planned.spec
    in_panels = isinstance(spec, SkinnyGemmSpec) and spec.shares_words
    has_sums = role == "A" and in_panels
    if not has_sums and not planned.nest.stage(role):
        return 0
    return _in_lines(planned.scratch[role].total)


def _arguments(problem: Problem) -> tuple[Argument, ...]:
    second = _operand(problem, "B")
    if problem.has_constant_weights:
        second = Argument("packed", "B", "void", LINE_BYTES)
    bias = (_operand(problem, "bias"),) if problem.has_bias else ()
    scratch = Argument("scratch", "", "void", LINE_BYTES, is_const=False)
    return (_operand(problem, "A"), second, *bias, _operand(problem, "C"), scratch)


def _operand(problem: Problem, operand: str) -> Argument:
    names = dict(zip("AB", operand_names(problem), strict=True)) | {"C": "out", "bias": "bias"}
    dtype = operand_type(problem, operand)
    return Argument(
        name=names[operand],
        operand=operand,
        type=C_TYPES[dtype],
        alignment=DTYPES[dtype].bytes,
        is_const=operand != "C",
    )


def _packed_bytes(problem: Problem, planned: Plan) -> int:
    """Of the panels that are made ahead, or of a copy of weights that are read in place."""
    if not problem.has_constant_weights:
        return 0
    size = planned.scratch["B"].total if planned.is_ahead else _bytes_of(problem, "B")
    return _in_lines(size)


def _bytes_of(problem: Problem, operand: str) -> int:
    return prod(problem.operand_shapes[operand]) * DTYPES[operand_type(problem, operand)].bytes


def _in_lines(size: int) -> int:
    return -(-size // LINE_BYTES) * LINE_BYTES
