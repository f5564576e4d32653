"""K-streaming: the loops of a matmul that MLIR-AIR's users want, as one frozen value.

Two levels of tiles with hardware mappings, the reduction streamed on two levels, and packs of A, B
and C. Any other order of these steps breaks a requirement of `inspection`, so the sizes are fields
of a fixed recipe, `steps`.
"""

from dataclasses import asdict, dataclass, fields, replace
from itertools import pairwise
from typing import Any, Literal, get_args

from tilewise.kernels.errors import ScheduleError, UnsupportedError
from tilewise.kernels.mlir.cpu.loops import largest_divisor
from tilewise.kernels.problem import Matmul, Problem

Result = Literal["l3", "l2"]


@dataclass(frozen=True, kw_only=True)
class KStreaming:
    """The sizes of a K-streaming schedule, all in elements.

    Attributes:
        block_m, block_n: the tile of C of one block, a grid of cores.
        thread_m, thread_n: the tile of C of one thread, a core; it stays in L1.
        outer_k, inner_k: depth of chunks of A and B copied from L3 to L2, and packed to L1.
        pack_m, pack_n, pack_k: the innermost matmul m0 x n0 x k0.
        result: whether the unpack writes to C (`l3`), or to a block's tile in L2 that is copied to
            C after its threads (`l2`).
    """

    block_m: int
    block_n: int
    thread_m: int
    thread_n: int
    outer_k: int
    inner_k: int
    pack_m: int
    pack_n: int
    pack_k: int
    result: Result = "l3"

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "result":
                if value not in get_args(Result):
                    raise ScheduleError(f"result={value!r} is not one of l3, l2")
            elif isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ScheduleError(f"{field.name}={value!r}: give a whole number of at least 1")

    @property
    def threads(self) -> tuple[int, int]:
        """The threads of a block along m and n."""
        return self.block_m // self.thread_m, self.block_n // self.thread_n

    @property
    def steps(self) -> tuple[str, ...]:
        """The recipe, outermost first; each line is a comment of the script."""
        m0, n0, k0 = self.pack_m, self.pack_n, self.pack_k
        through = f"L2 {self.block_m}x{self.block_n} to " if self.result == "l2" else ""
        return (
            f"tile   m={self.block_m} n={self.block_n} on block",
            f"tile   m={self.thread_m} n={self.thread_n} on thread",
            f"pack   A {m0}x{k0}, B {k0}x{n0}, C {m0}x{n0}, outer and inner permutation",
            f"stream k={self.outer_k} to L2 (copies of A and B)",
            f"stream k={self.inner_k} to L1 (packs of A and B)",
            f"init   fill in L1, packed; result L1 to {through}L3",
        )

    def __str__(self) -> str:
        return "\n".join(self.steps)

    def to_json(self) -> dict[str, str | int]:
        """Return a JSON object with every field."""
        return asdict(self)

    @classmethod
    def from_json(cls, source: object) -> "KStreaming":
        """Read the object of `to_json`; raise ScheduleError for a missing or unknown key."""
        if not isinstance(source, dict):
            raise ScheduleError(f"a K-streaming schedule is an object, not {source!r}")
        values: dict[str, Any] = {"result": "l3", **source}
        names = [f.name for f in fields(cls)]
        for name in {*names} ^ {*values}:
            what = "is missing" if name in names else f"is unknown; known are {', '.join(names)}"
            raise ScheduleError(f"K-streaming schedule: {name} {what}")
        return cls(**values)


def require_streamed(problem: Problem) -> Matmul:
    """Return the problem if K-streaming covers it, else raise UnsupportedError with the key."""
    if not isinstance(problem, Matmul):
        raise UnsupportedError(
            f"{problem}: K-streaming is of a matmul; no air script covers {problem.op} yet", "op"
        )
    if problem.batch > 1:
        raise UnsupportedError(
            f"{problem}: batch={problem.batch} has no air script yet; ask for one matrix "
            "and repeat it",
            "batch",
        )
    plain = {"transpose_a": False, "transpose_b": False, "init": "zero", "bias": False,
             "epilogue": "none", "out": "", "add": False, "requant": "",
             "b": "", "zero": ""}  # fmt: skip
    given = {field: getattr(problem, field) for field in plain}
    if problem.dtype == "u8":
        given["dtype"] = "u8"
    if problem.has_constant_weights:
        given["weights"] = "constant"
    for field, value in given.items():
        if value != plain.get(field):
            raise UnsupportedError(
                f"{problem}: {field}={value} has no air script yet; leave it out", field
            )
    return problem


def padded(problem: Matmul, schedule: KStreaming) -> Matmul:
    """Return the problem in whole blocks and chunks, to which operands are padded in L3."""
    m, n, k = schedule.block_m, schedule.block_n, schedule.outer_k
    return replace(
        problem, m=-(-problem.m // m) * m, n=-(-problem.n // n) * n, k=-(-problem.k // k) * k
    )


def check_streaming(problem: Matmul, schedule: KStreaming) -> None:
    """Raise ScheduleError unless every size divides the one around it, so shapes are static.

    Blocks and outer chunks need not divide the problem, which is padded.
    """
    chains = {
        "m": ("block_m", "thread_m", "pack_m"),
        "n": ("block_n", "thread_n", "pack_n"),
        "k": ("outer_k", "inner_k", "pack_k"),
    }
    for dim, chain in chains.items():
        for outer, inner in pairwise(chain):
            whole, part = getattr(schedule, outer), getattr(schedule, inner)
            if whole % part:
                raise ScheduleError(
                    f"{problem}: {inner}={part} does not divide {outer}={whole}, and remainders "
                    f"along {dim} would need shapes that are not static; give a divisor of "
                    f"{whole}, such as {largest_divisor((whole,), part)}"
                )
