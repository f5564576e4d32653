"""What C sees of an object: names, arguments, sizes and return codes."""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from math import prod

from tilewise.kernels.native.export.description import operand_names
from tilewise.kernels.native.ir.vectors import LINE_BYTES
from tilewise.kernels.native.microkernels.skinny_products import SkinnyGemmSpec
from tilewise.kernels.native.plan import KernelPlan
from tilewise.kernels.oracle.operands import operand_type
from tilewise.kernels.problem import STORED, Problem, ProblemRange, stem
from tilewise.kernels.target.model import Target

PREFIX = "tilewise_"
OK, NULL, MISALIGNED, NO_SUCH_PART, NO_SUCH_SIZE = 0, 1, 2, 3, 4
"""What the functions return."""

C_TYPES = {"f32": "float", "f64": "double", "i32": "int32_t", "i8": "int8_t", "u8": "uint8_t",
           "bf16": "uint16_t", "f16": "uint16_t", "i4": "int8_t", "u4": "uint8_t"}  # fmt: skip


@dataclass(frozen=True)
class Pointer:
    """A pointer that a function takes.

    Attributes:
        name: in C.
        operand: one of the problem; empty for memory.
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
class SizeArgument:
    """A size that a function takes of a range of problems, behind its pointers.

    Attributes:
        name: in C: the key of the problem.
        first, last, step: which there are.
    """

    name: str
    first: int
    last: int
    step: int

    @property
    def values(self) -> range:
        """Which there are."""
        return range(self.first, self.last + 1, self.step)


@dataclass(frozen=True)
class Interface:
    """The C interface of a kernel.

    Attributes:
        name: of its function, with the processor and the schedule's hash.
        alias: the same without them, for programs that are compiled against another schedule.
        arguments: of the function, in their order; the memory for panels is the last.
        weights: what `prepare` takes, where the weights are constant: B, and its scales.
        packed_bytes: of the weights that `prepare` writes, in whole lines; 0 where there are none.
        weight_bytes: of the weights as they are.
        scratch_bytes: of the memory for panels and sums, of all parts: panels of A, sums, and
            panels of B.
        parts: into which the work is cut.
        sizes: of a range of problems.
    """

    name: str
    alias: str
    arguments: tuple[Pointer, ...]
    weights: tuple[Pointer, ...]
    packed_bytes: int
    weight_bytes: int
    scratch_bytes: int
    parts: int
    sizes: tuple[SizeArgument, ...] = ()

    @property
    def short_name(self) -> str:
        """The name as the language of macro-kernels has it, which puts the prefix in front."""
        return self.name.removeprefix(PREFIX)

    @property
    def functions(self) -> tuple[str, ...]:
        """The names of all that C calls."""
        endings = ("", "_part", "_supported", *(("_prepare",) if self.weights else ()))
        return tuple(f"{self.name}{ending}" for ending in endings)

    @classmethod
    def of(
        cls,
        problems: Problem | ProblemRange,
        digest: str,
        target: Target,
        plans: Sequence[KernelPlan],
        packed_bytes: int | None = None,
    ) -> "Interface":
        """Return that of planned kernels.

        Args:
            problems: what they compute.
            digest: the hash of how.
            target: for which processor.
            plans: the kernels; several where they share the sizes of a range.
            packed_bytes: of the weights in all their formats; None for those of one kernel.
        """
        sizes = tuple[SizeArgument, ...]()
        if isinstance(problems, ProblemRange):
            problem, dims = problems.smallest, zip(problems.dims, problems.ranges, strict=True)
            sizes = tuple(SizeArgument(dim, one[0], one[-1], one.step) for dim, one in dims)
        else:
            problem = problems
        processor = "".join(c if c.isalnum() else "_" for c in target.cpu)
        if differing := ":".join(target.named.differences):
            processor += f"_{sha256(differing.encode()).hexdigest()[:6]}"
        if packed_bytes is None:
            packed_bytes = packed_size(problem, plans[0])
        alias = problem_name(problems)
        return cls(
            name=f"{alias}_{processor}_{digest}",
            alias=alias,
            arguments=_arguments(problem),
            weights=tuple(_operand(problem, name) for name in problem.constants),
            packed_bytes=packed_bytes,
            weight_bytes=sum(_bytes_of(problem, name) for name in problem.constants or ("B",)),
            scratch_bytes=max(map(_scratch_bytes, plans)),
            parts=len(plans[0].nest.parts),
            sizes=sizes,
        )


def problem_name(problem: Problem | ProblemRange) -> str:
    """Return a name such as `tilewise_matmul_m64_n48_k32_f32`."""
    return PREFIX + "".join(c if c.isalnum() else "_" for c in stem(problem))


def scratch_of(planned: KernelPlan, role: str) -> int:
    """Return the bytes of panels of A or B for all parts, in whole lines; 0 for one read in place.

    Sums of a skinny GEMM that are in panels have the place of A's. For C return those of sums that
    are rounded to it.
    """
    if role == "C":
        return _in_lines(planned.scratch[role].total)
    spec = planned.spec
    has_sums = role == "A" and isinstance(spec, SkinnyGemmSpec) and spec.shares_words
    is_used = has_sums or planned.nest.stage(role)
    return _in_lines(planned.scratch[role].total) if is_used else 0


def _scratch_bytes(planned: KernelPlan) -> int:
    roles = ("A", "C") if planned.is_ahead else ("A", "C", "B")
    return sum(scratch_of(planned, role) for role in roles)


def _arguments(problem: Problem) -> tuple[Pointer, ...]:
    second = _operand(problem, "B")
    if problem.has_constant_weights:
        second = Pointer("packed", "B", "void", LINE_BYTES)
    others = (name for name in problem.extras if name not in problem.constants)
    more = (_operand(problem, name) for name in others)
    scratch = Pointer("scratch", "", "void", LINE_BYTES, is_const=False)
    return (_operand(problem, "A"), second, *more, _operand(problem, "C"), scratch)


def _operand(problem: Problem, operand: str) -> Pointer:
    name, dtype = operand_names(problem)[operand], operand_type(problem, operand)
    return Pointer(name, operand, C_TYPES[dtype], STORED[dtype].bytes, is_const=operand != "C")


def packed_size(problem: Problem, planned: KernelPlan) -> int:
    """Return the bytes of panels that are made ahead, or of a copy of weights as they are.

    They are whole lines, and 0 where weights are not constant.
    """
    if not problem.has_constant_weights:
        return 0
    size = planned.scratch["B"].total if planned.is_ahead else _bytes_of(problem, "B")
    return _in_lines(size)


def _bytes_of(problem: Problem, operand: str) -> int:
    return prod(problem.operand_shapes[operand]) * STORED[operand_type(problem, operand)].bytes


def _in_lines(size: int) -> int:
    return -(-size // LINE_BYTES) * LINE_BYTES
