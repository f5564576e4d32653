"""The process that reads a module: `python -m kernels.mlir.frontend.child.read`.

It reads one JSON request on standard input, with the path of the module, writes one JSON reply on
standard output, and may die at any moment: `kernels.mlir.frontend.read` turns that into an error.
"""

import re
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kernels.mlir.frontend.imported import Imported, Occurrence, Skipped
from kernels.mlir.frontend.source import is_bytecode, is_onnx, without_weights
from kernels.system.limited_child import reply_to_request, stage

FUNCTIONS = ("func.func", "util.func", "util.initializer")
LEFT = re.compile(r"(?:stablehlo|tosa|torch\.aten|tm_tensor|iree_linalg_ext|chlo)\.\w*"
                  r"(?:conv|dot|matmul|attention|mm$|linear|pool|scaled)")  # fmt: skip
_PLACE = re.compile(r'"([^"]*)":(\d+):(\d+)')
MOST_SEARCHED = 2000  # characters of a location
LONGEST_NAME = 120


def main() -> None:
    """Serve one request."""
    reply_to_request(answer)


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """What a module holds, or MLIR's first error."""
    stage("cutting out weights")
    module = without_weights(Path(request["path"]).read_bytes())
    if is_onnx(module):
        return {"error": "this is an ONNX model; iree-import-onnx MODEL.onnx -o MODEL.mlir, of the "
                         "packages iree-base-compiler and onnx, makes a module of it"}  # fmt: skip
    if b"\0" in module and not is_bytecode(module):  # MLIR would take it for the end
        return {"error": "the text holds a null byte"}
    stage("loading MLIR")
    from iree.compiler import ir

    with ir.Context() as context:
        said: list[str] = []

        def keep(diagnostic: Any) -> bool:
            said.append(str(diagnostic))
            return True

        context.attach_diagnostic_handler(keep)
        try:
            stage("parsing")
            parsed = ir.Module.parse(module)
            stage("lowering to linalg")
            from kernels.mlir.frontend.child.conversion import to_linalg

            to_linalg(parsed)
        except (ir.MLIRError, ValueError) as error:
            return {"error": _first_error(error, said)}
        stage("looking for problems")
        return asdict(read(parsed))


def _first_error(error: Exception, said: list[str]) -> str:
    lines = [line for line in (*said, *str(error).splitlines()) if line.strip()]
    found = next((line for line in lines if "error:" in line), said[0] if said else lines[-1])
    return found.strip().removeprefix("error:").strip().removeprefix('"-":')


def read(module: Any) -> Imported:
    """The problems of a module on linalg."""
    from kernels.mlir.frontend.child.recognise import recognise
    from kernels.mlir.frontend.child.structured import structured
    from kernels.mlir.frontend.nest import RefusedError

    occurrences, skipped = list[Occurrence](), list[Skipped]()
    for op, function, number in operations(module.operation):
        place = ""
        try:
            seen = structured(op)
            if seen is None:
                if reason := _left(op):
                    skipped.append(Skipped(op.name, reason, where(op, function, number)))
                continue
            place = where(op, function, number)
            found = recognise(seen, place)
            if found is not None:
                occurrences.append(found)
        except RefusedError as refusal:
            skipped.append(Skipped(op.name, str(refusal), place))
    return Imported(tuple(occurrences), tuple(skipped))


def operations(top: Any) -> Iterator[tuple[Any, str, int]]:
    """The operations of a module outside of linalg's bodies, in order.

    Each comes with the function that it stands in, and its number there.
    """
    waiting: list[tuple[Iterator[Any], str]] = [(_inner(top), "")]
    numbers: dict[str, int] = {}
    while waiting:
        inner, function = waiting[-1]
        op = next(inner, None)
        if op is None:
            waiting.pop()
            continue
        numbers[function] = numbers.get(function, -1) + 1
        yield op, function, numbers[function]
        if op.name in FUNCTIONS and "sym_name" in op.attributes:
            function = op.attributes["sym_name"].value
        if not op.name.startswith("linalg.") and len(op.regions):
            waiting.append((_inner(op), function))


def _inner(op: Any) -> Iterator[Any]:
    for region in op.regions:
        for block in region.blocks:
            for one in block.operations:
                yield one.operation


def _left(op: Any) -> str | None:
    """Why an operation that is no linalg op with one result should have been one."""
    if op.name.startswith(("linalg.", "iree_linalg_ext.")) and len(op.results) != 1:
        if any(word in op.name for word in ("matmul", "conv", "attention", "pooling", "contract")):
            return "works on buffers; give the model before bufferization, on tensors"
        return None
    if LEFT.match(op.name):
        return "has no form of its own in linalg"
    return None


def where(op: Any, function: str, number: int) -> str:
    """The function, the location that the file gives, else the op's number, and the op."""
    name = function.removesuffix("$async")[:LONGEST_NAME]
    found = _PLACE.search(str(op.location)[:MOST_SEARCHED])
    if found is None:
        return f"@{name}#{number} {op.name}"
    file = "" if found[1] == "-" else f"{Path(found[1]).name}:"
    return f"@{name} {file}{found[2]}:{found[3]} {op.name}"


if __name__ == "__main__":
    main()
