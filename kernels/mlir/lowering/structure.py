"""What a module's IR contains: functions, loops, vectors, and its outline as text."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from iree.compiler import ir

from tilewise.kernels.mlir.dialects import children
from tilewise.kernels.mlir.lowering.apply import StageError

LOOPS = ("scf.for", "scf.forall", "scf.parallel")
MULTIPLICATIONS = ("arith.mulf", "arith.muli", "math.fma", "vector.fma")
VECTOR_PRODUCTS = ("vector.contract", "vector.outerproduct", *MULTIPLICATIONS)
BUFFERS = ("memref.alloc", "memref.alloca")
ALLOCATIONS = (*BUFFERS, "tensor.empty")
COPIES = ("memref.copy", "linalg.copy", "linalg.pack", "linalg.unpack", "tensor.pad")
INDENT = "  "


def walk(operation: Any, depth: int = 0) -> Iterator[tuple[Any, int]]:
    """Yield every operation below `operation` with the number of loops around it."""
    for inner in children(operation):
        yield inner, depth
        yield from walk(inner, depth + (inner.name in LOOPS))


def definitions(module: Any) -> list[Any]:
    """Return the functions of a module that have a body."""
    return [
        op.operation
        for op in module.body.operations
        if op.operation.name == "func.func" and len(op.operation.regions[0].blocks)
    ]


def function_of(module: Any) -> Any:
    """Return the first function of a module; raise ValueError if there is none."""
    for function in definitions(module):
        return function
    raise ValueError("the module has no func.func")


def add_arguments(function: Any, kinds: list[Any]) -> list[Any]:
    """Give a function more arguments, after its own; return them."""
    block = function.regions[0].blocks[0]
    added = [block.add_argument(kind, ir.Location.unknown()) for kind in kinds]
    signature = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)
    function.attributes["function_type"] = ir.TypeAttr.get(
        ir.FunctionType.get([*signature.inputs, *kinds], signature.results)
    )
    if "arg_attrs" in function.attributes:
        del function.attributes["arg_attrs"]
    return added


def element_of(kind: Any) -> str:
    """Return the element type of a vector, or the type itself."""
    return str(kind.element_type if isinstance(kind, ir.VectorType) else kind)


def constant_of(value: Any) -> int | None:
    """Return the integer that a value is; None if it is not a constant."""
    if isinstance(value.owner, ir.Block) or value.owner.name != "arith.constant":
        return None
    return int(ir.IntegerAttr(value.owner.attributes["value"]).value)


def check_structure(module: Any, columns: int, lanes: int = 0) -> bool:
    """Check that the code is fast by construction; return whether it multiplies vectors.

    Args:
        module: the transformed module.
        columns: extent along which vectors can run; with one there need not be any.
        lanes: the schedule's vector length; shorter ones are usually along another dim. 0 if the
            code need not multiply.

    Raises:
        StageError: `structure`, with the operation that does not pass.
    """
    widest, scalar = 0, None
    for operation, depth in walk(module.operation):
        name = operation.name
        if name in BUFFERS and len(operation.operands):
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
    """Return whether vectors are multiplied, or contracted."""
    found = (op for op, _ in walk(module.operation) if op.name in VECTOR_PRODUCTS)
    return any(isinstance(op.results[0].type, ir.VectorType) for op in found)


def _reduces(operation: Any) -> bool:
    if "iterator_types" in operation.attributes:
        return "reduction" in str(operation.attributes["iterator_types"])
    return "matmul" in operation.name or "conv" in operation.name


@dataclass
class _Body:
    """The body of a loop or function (`what`), with its operations, counted, and its loops."""

    what: str
    holds: Counter[str] = field(default_factory=Counter)
    loops: list["_Body"] = field(default_factory=list)

    def lines(self, depth: int = 0) -> list[str]:
        """Return indented text; equal neighbours are shown once."""
        out = [INDENT * depth + self.what]
        for text, times in self.holds.items():
            out.append(INDENT * (depth + 1) + (text if times == 1 else f"{times} x {text}"))
        shown: list[list[str]] = []
        for loop in self.loops:
            lines = loop.lines(depth + 1)
            if not shown or shown[-1] != lines:
                shown.append(lines)
        return out + [line for lines in shown for line in lines]

    def fill(self, operation: Any) -> None:
        """Add what is below an operation."""
        for inner in children(operation):
            if inner.name in (*LOOPS, "scf.while"):
                self.loops.append(_Body(_loop_text(inner)))
                self.loops[-1].fill(inner)
            elif text := _text(inner):
                self.holds[text] += 1
            elif not inner.name.startswith("linalg."):
                self.fill(inner)  # scf.if and the like


def outline(module: Any) -> list[str]:
    """Return loops, copies, buffers and vectors of each function, as indented text."""
    lines: list[str] = []
    for op in module.body.operations:
        if op.operation.name == "func.func":
            body = _Body(f"func @{ir.StringAttr(op.operation.attributes['sym_name']).value}")
            body.fill(op.operation)
            lines += body.lines()
    return lines


def _loop_text(operation: Any) -> str:
    if operation.name == "scf.for":
        bounds = [constant_of(operation.operands[i]) for i in range(3)]
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
        mapping = ""
        if "mapping" in operation.attributes:
            mapping = f", mapped to {operation.attributes['mapping']}"
        return f"forall {trips} trips{mapping}"
    return f"{str(operation.name).removeprefix('scf.')} ? trips"


def _text(operation: Any) -> str:
    """Return a line for buffers, copies and computations with their types; else empty."""
    name, operands = operation.name, operation.operands
    if name in ALLOCATIONS:
        return f"{name} {operation.results[0].type}"
    if name in COPIES:
        kind = operation.results[0].type if len(operation.results) else operands[-1].type
        return f"{name} to {_without_layout(kind)}"
    if name in VECTOR_PRODUCTS:
        kind = operation.results[0].type
        return f"{name} {kind}" if isinstance(kind, ir.VectorType) else ""
    if name in ("vector.transfer_write", "vector.store"):
        return f"{name} {operands[0].type} to {_without_layout(operands[1].type)}"
    if name.startswith("linalg.") and name not in ("linalg.yield", "linalg.index"):
        return f"{name} on {_without_layout(operands[-1].type)}"
    return ""


def _without_layout(kind: Any) -> str:
    text: str = str(kind)
    head, strided, _ = text.partition(", strided<")
    return f"{head}>" if strided else text
