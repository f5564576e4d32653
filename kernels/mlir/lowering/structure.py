"""Looking at what a script made: loops, vectors, and where the reduction ended up.

What a transformed module looks like from afar: loops, trips, copies, buffers, vectors.

Read from the IR itself, so it says what the script did and not what it was meant to do.

"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from iree.compiler import ir

from tilewise.kernels.mlir.lowering.apply import StageError

LOOPS = ("scf.for", "scf.forall", "scf.parallel")
MULTIPLICATIONS = ("arith.mulf", "arith.muli", "math.fma", "vector.fma")


def walk(operation: Any, depth: int = 0) -> Iterator[tuple[Any, int]]:
    """Every operation below `operation` with the number of loops around it."""
    for region in operation.regions:
        for block in region.blocks:
            for op in block.operations:
                inner = op.operation
                yield inner, depth
                yield from walk(inner, depth + (inner.name in LOOPS))


def check_structure(module: Any, columns: int, lanes: int = 0) -> bool:
    """Check that the code is fast by construction: vectors inside, nothing dynamic.

    Args:
        module: the transformed module.
        columns: that vectors can run along; with one there need not be any vector.
        lanes: what the schedule makes of them; a vector along another dim is as a rule
            shorter, and a shorter one will not do; 0 for code that need not multiply.

    Returns:
        Whether vectors are multiplied.

    Raises:
        StageError: `structure`, with the operation that gives it away.
    """
    widest, scalar = 0, None
    for operation, depth in walk(module.operation):
        name = operation.name
        if name in ("memref.alloc", "memref.alloca") and len(operation.operands):
            raise StageError("structure", f"a buffer of dynamic size is left: {operation}")
        if name.startswith("linalg.") and _reduces(operation):
            raise StageError("structure", f"a contraction was not vectorised: {operation}")
        if name in MULTIPLICATIONS:
            kind = operation.results[0].type
            if isinstance(kind, ir.VectorType):
                widest = max(widest, kind.shape[-1])
            elif depth and not isinstance(kind, ir.IndexType):
                scalar = operation
    if scalar is not None and not widest and columns > 1:
        raise StageError("structure", f"loops multiply nothing but scalars: {scalar}")
    if columns > 1 and widest < lanes:
        raise StageError(
            "structure",
            f"vectors of {widest} are multiplied, and the schedule's have {lanes} lanes",
        )
    return widest > 0


def is_vectorised(module: Any) -> bool:
    """Whether vectors are multiplied, or contracted."""
    names = (*MULTIPLICATIONS, "vector.contract", "vector.outerproduct")
    found = (op for op, _ in walk(module.operation) if op.name in names)
    return any(isinstance(op.results[0].type, ir.VectorType) for op in found)


def _reduces(operation: Any) -> bool:
    if "iterator_types" in operation.attributes:
        return "reduction" in str(operation.attributes["iterator_types"])
    return "matmul" in operation.name or "conv" in operation.name


INDENT = "  "
ALLOCATIONS = ("memref.alloc", "memref.alloca", "tensor.empty")
COPIES = ("memref.copy", "linalg.copy", "linalg.pack", "linalg.unpack", "tensor.pad")
VECTOR_PRODUCTS = ("vector.contract", "vector.outerproduct", *MULTIPLICATIONS)
DYNAMIC = -1


@dataclass
class Region:
    """The body of a loop or of a function.

    Attributes:
        what: such as `for 8 trips` or `forall 4x2 trips on block y, x`.
        holds: what is directly inside, with how often it is written there.
        loops: the loops directly inside.
    """

    what: str
    holds: Counter[str] = field(default_factory=Counter)
    loops: list["Region"] = field(default_factory=list)

    def lines(self, depth: int = 0) -> list[str]:
        """The region as indented text; equal neighbours are shown once."""
        out = [INDENT * depth + self.what]
        for text, times in self.holds.items():
            out.append(INDENT * (depth + 1) + (text if times == 1 else f"{times} x {text}"))
        shown: list[list[str]] = []
        for loop in self.loops:
            lines = loop.lines(depth + 1)
            if not shown or shown[-1] != lines:
                shown.append(lines)
        return out + [line for lines in shown for line in lines]


def outline(module: Any) -> list[str]:
    """The functions of a module, each as the tree of its loops."""
    lines: list[str] = []
    for op in module.body.operations:
        if op.operation.name == "func.func":
            name = ir.StringAttr(op.operation.attributes["sym_name"]).value
            region = Region(f"func @{name}")
            _fill(region, op.operation)
            lines += region.lines()
    return lines


def _fill(region: Region, operation: Any) -> None:
    for inside in operation.regions:
        for block in inside.blocks:
            for op in block.operations:
                _take(region, op.operation)


def _take(region: Region, operation: Any) -> None:
    name = operation.name
    if name in ("scf.for", "scf.forall", "scf.parallel", "scf.while"):
        loop = Region(_loop(operation))
        _fill(loop, operation)
        region.loops.append(loop)
        return
    said = _said(operation)
    if said:
        region.holds[said] += 1
    elif not name.startswith("linalg."):
        _fill(region, operation)  # scf.if and the like


def _loop(operation: Any) -> str:
    if operation.name == "scf.for":
        bounds = [_constant(operation.operands[i]) for i in range(3)]
        if None in bounds or not bounds[2]:
            return "for ? trips"
        low, high, step = (int(b) for b in bounds if b is not None)
        return f"for {-(-(high - low) // step)} trips, step {step}"
    if operation.name == "scf.forall":
        sizes = list(ir.DenseI64ArrayAttr(operation.attributes["staticUpperBound"]))
        steps = list(ir.DenseI64ArrayAttr(operation.attributes["staticStep"]))
        trips = "x".join(
            "?" if n < 0 or s <= 0 else str(-(-n // s)) for n, s in zip(sizes, steps, strict=True)
        )
        return f"forall {trips} trips{_mapping(operation)}"
    return f"{str(operation.name).removeprefix('scf.')} ? trips"


def _mapping(operation: Any) -> str:
    if "mapping" not in operation.attributes:
        return ""
    return f", mapped to {operation.attributes['mapping']}"


def _constant(value: Any) -> int | None:
    owner = value.owner
    operation = getattr(owner, "operation", owner)
    if getattr(operation, "name", "") != "arith.constant":
        return None
    return int(ir.IntegerAttr(operation.attributes["value"]).value)


def _said(operation: Any) -> str:
    """What is worth a line: buffers, copies, and what is computed, on which types."""
    name = operation.name
    if name in ALLOCATIONS:
        return f"{name} {operation.results[0].type}"
    if name in COPIES:
        kind = operation.results[0].type if len(operation.results) else operation.operands[-1].type
        return f"{name} to {_short(kind)}"
    if name in VECTOR_PRODUCTS:
        kind = operation.results[0].type
        return f"{name} {kind}" if isinstance(kind, ir.VectorType) else ""
    if name in ("vector.transfer_write", "vector.store"):
        return f"{name} {operation.operands[0].type} to {_short(operation.operands[1].type)}"
    if name.startswith("linalg.") and name not in ("linalg.yield", "linalg.index"):
        return f"{name} on {_short(operation.operands[-1].type)}"
    return ""


def _short(kind: Any) -> str:
    """A type without its layout."""
    text: str = str(kind)
    head, strided, _ = text.partition(", strided<")
    return f"{head}>" if strided else text
