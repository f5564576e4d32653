"""The steps a schedule is made of. Read from the top, a schedule is the loop nest.

Each docstring shows the nest before and after the step, for C[m,n] += A[m,k] B[k,n],
and the name that Halide, TVM and MLIR's transform dialect use for it.
"""

from dataclasses import dataclass, fields
from typing import ClassVar, Literal

from kernels.errors import ScheduleError

Operand = Literal["A", "B"]
Axis = Literal["rows", "cols"]
StepJson = dict[str, str | int]


@dataclass(frozen=True)
class Step:
    """One step; subclasses are frozen values with a JSON form."""

    name: ClassVar[str]

    def to_json(self) -> StepJson:
        """`{"step": name, ...fields}`."""
        return {"step": self.name, **vars(self)}

    def __str__(self) -> str:
        pairs = " ".join(f"{f.name}={getattr(self, f.name)}" for f in fields(self))
        return f"{self.name} {pairs}"


@dataclass(frozen=True)
class Parallel(Step):
    """Divide a parallel dim among threads, in equal parts of whole register tiles.

    Halide parallel, TVM parallel, transform structured.tile_using_forall.

        parallel dim=n parts=2
    before                          after
        for n in N: body                forall t in 0..2:
                                            for n in t*N/2..(t+1)*N/2: body

    Each thread runs the rest of the nest on its own part, with its own panels; two such
    steps divide a plane. No thread waits for another before the end.
    """

    name: ClassVar[str] = "parallel"
    dim: str
    parts: int


@dataclass(frozen=True)
class Tile(Step):
    """Visit a parallel dim in blocks of `size`. Halide split, TVM split, tile_using_for.

        tile dim=n size=64
    before                          after
        for n in N: body                for n0 in N step 64:
                                            for n in n0..n0+64: body
    """

    name: ClassVar[str] = "tile"
    dim: str
    size: int


@dataclass(frozen=True)
class Stream(Step):
    """Visit the reduction in chunks of `depth`; C accumulates across chunks.

    Halide split of an RVar, TVM split of a reduce axis, tile_using_for on the
    reduction; MLIR-AIR's K-streaming.

        stream dim=k depth=256
    before                          after
        for k in K: body                for k0 in K step 256:
                                            for k in k0..k0+256: body
    """

    name: ClassVar[str] = "stream"
    dim: str
    depth: int


@dataclass(frozen=True)
class Pack(Step):
    """Copy the operand's current block to contiguous panels. Halide compute_at,
    TVM cache_read, transform structured.pack.

        pack operand=B
    before                          after
        for n0, k0:                     for n0, k0:
            body reads B                    Bp[n/NR][k][NR] = B[k0.., n0..]
                                            body reads Bp

    B is packed to panels [col/NR][taps][depth][NR], zero-filled past the last column;
    A to rows of `depth` elements, for an nhwc image with the halo and the zero padding.
    A is the factor with the rows of the result and B the one with its columns, so for
    nchw A is the filter and B the image's patches, which come to be as they are packed.

    Natively a panel of f32, f64 or i32 is filled while its first tile of rows is computed,
    from the rows of B that the micro-kernel has loaded; so its packing costs stores alone.
    """

    name: ClassVar[str] = "pack"
    operand: Operand


@dataclass(frozen=True)
class Prefetch(Step):
    """Fetch the next block of a packed operand into L2 while the present one is computed on.

    Halide prefetch, TVM software_pipeline. The native lowering alone: scripts say it in a
    comment.

        prefetch operand=B
    before                          after
        for n0, k0:                     for n0, k0:
            Bp = B[k0.., n0..]              Bp = B[k0.., n0..]
            for m, k: body                  for m, k: body; prefetch a row of B's next block

    A block is read along its rows, a cache line or a few at a time, where no hardware
    prefetcher follows; the micro-kernel has loads to spare.
    """

    name: ClassVar[str] = "prefetch"
    operand: Operand


@dataclass(frozen=True)
class Register(Step):
    """The micro-kernel's tile, held in registers over the whole chunk of the reduction.

    Halide unroll + vectorize of the inner tile, TVM tensorize, vectorisation of the
    tiled linalg op and hoisting of its accumulator.

        register rows=6 cols=64 outer=cols
    before                          after
        for n, m, k: body               for n1 in step 64: for m1 in step 6:
                                            acc[6][64] in registers
                                            for k: acc += A[m1.., k] * B[k, n1..]

    `outer` says which of the two micro-tile loops is outermost.
    """

    name: ClassVar[str] = "register"
    rows: int
    cols: int
    outer: Axis = "cols"


@dataclass(frozen=True)
class Split(Step):
    """Sum the reduction in `lanes` partial sums, added up at the end: vectors along k.

    For results too narrow to fill a vector. Halide and TVM rfactor,
    structured.split_reduction.

        split dim=k lanes=16
    before                          after
        for k in K: acc += A[k] B[k]    for k in K step 16:
                                            part[0..16] += A[k..k+16] * B[k..k+16]
                                        acc = sum of part[0..16]

    The register tile's cols are then single columns. A lane may sum neighbours in
    pairs, where the processor has products of pairs.
    """

    name: ClassVar[str] = "split"
    dim: str
    lanes: int


@dataclass(frozen=True)
class Unroll(Step):
    """Unroll the micro-kernel's reduction loop. Halide unroll, TVM unroll, loop.unroll.

        unroll factor=4
    before                          after
        for k in K: fma                 for k in K step 4: fma; fma; fma; fma
    """

    name: ClassVar[str] = "unroll"
    factor: int


STEPS: dict[str, type[Step]] = {
    cls.name: cls for cls in (Parallel, Tile, Stream, Pack, Prefetch, Register, Split, Unroll)
}
_WORDS = {"operand": ("A", "B"), "outer": ("rows", "cols")}


def step_from_json(source: object) -> Step:
    """Read one step back.

    Raises:
        ScheduleError: not an object, an unknown step, or a missing, unknown or bad field.
    """
    if not isinstance(source, dict):
        raise ScheduleError(f"step {source!r} is not an object")
    values = dict(source)
    kind = STEPS.get(str(values.pop("step", None)))
    if kind is None:
        raise ScheduleError(f"step {source!r}: unknown; known are {', '.join(STEPS)}")
    names = {f.name for f in fields(kind)}
    if set(values) != names:
        raise ScheduleError(f"step {source!r}: {kind.name} has the fields {sorted(names)}")
    for name, value in values.items():
        _check_field(source, name, value)
    return kind(**values)


def _check_field(source: object, name: str, value: object) -> None:
    if name in _WORDS:
        if value not in _WORDS[name]:
            raise ScheduleError(f"step {source!r}: {name} is one of {_WORDS[name]}")
    elif name == "dim":
        if not isinstance(value, str):
            raise ScheduleError(f"step {source!r}: dim is a name")
    elif isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ScheduleError(f"step {source!r}: {name} is a whole number of at least 1")
