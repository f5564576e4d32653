"""The process that reads a module: `python -m tilewise.kernels.mlir.frontend.child.read`."""

import io
import re
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewise.kernels.errors import DimError
from tilewise.kernels.mlir.frontend.child.onnx import OnnxError, bytecode_of
from tilewise.kernels.mlir.frontend.graph import Imported, LoneOp, Occurrence, Skipped
from tilewise.kernels.mlir.frontend.read import PIECE, is_bytecode, is_onnx, without_weights
from tilewise.kernels.system.limited_child import reply_to_request, stage

if TYPE_CHECKING:
    from tilewise.kernels.mlir.frontend.program import Outline

_UNKNOWN = re.compile(r"failed to legalize operation 'torch\.operator'.*<\{name = \"onnx\.(\w+)\"")
NO_TEXT = "MLIR refuses it, and quotes bytes that are no text"


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Return what a module contains, or MLIR's first error."""
    is_apart = "apart" in request
    look = _written if is_apart else _asked
    return looked_at(
        Path(request["path"]),
        lambda parsed: look(parsed, request),
        request.get("sizes"),
        keeps_weights=is_apart or "pieces" in request,
        keeps_functions=not request.keys().isdisjoint(("pieces", "outline")),
        lowers=not is_apart,
        splits=not is_apart or "split" in request,
    )


def looked_at(
    path: Path,
    look: Callable[[Any], dict[str, Any]],
    sizes: dict[str, int] | None = None,
    *,
    keeps_weights: bool = False,
    keeps_functions: bool = False,
    lowers: bool = True,
    splits: bool = True,
) -> dict[str, Any]:
    """Return `look` of a file's module on linalg, in its context; or MLIR's first error.

    Dynamic dims get `sizes`. Some convolutions are split if it `splits`. Unless it `lowers`, the
    module is in its own dialect but where some were split, and one of MLIR that nothing has changed
    has no pieces.
    """
    stage("removing weights")
    source = path.read_bytes()
    try:
        module = bytecode_of(source, sizes) if is_onnx(source) else source
    except DimError as error:
        return {"dim": str(error)}
    except OnnxError as error:
        return {"error": str(error)}
    module = module if keeps_weights else without_weights(module)
    if b"\0" in module and not is_bytecode(module):  # MLIR would take it for the end
        return {"error": "the text holds a null byte"}
    stage("loading MLIR")
    from iree.compiler import ir

    from tilewise.kernels.mlir.dialects import without_definitions

    without_definitions()
    with ir.Context() as context:
        diagnostics: list[str] = []

        def keep(diagnostic: Any) -> bool:
            diagnostics.append(str(diagnostic))
            return True

        context.attach_diagnostic_handler(keep)
        try:
            stage("parsing")
            parsed = ir.Module.parse(module)
            stage("lowering to linalg")
            from tilewise.kernels.mlir.frontend.child.attention import decompose
            from tilewise.kernels.mlir.frontend.child.depthwise import rewrite_depthwise
            from tilewise.kernels.mlir.frontend.child.operations import to_linalg, widen_sums
            from tilewise.kernels.mlir.frontend.child.sizes import set_sizes
            from tilewise.kernels.mlir.frontend.child.splitting import split
            from tilewise.kernels.mlir.frontend.child.unused import drop_unused_results

            is_wide, is_marked = (False, False) if is_onnx(source) else widen_sums(parsed)
            is_rewritten = is_wide or is_onnx(source)
            if sizes and not is_onnx(source):
                set_sizes(parsed, sizes)
                is_rewritten = True
            is_rewritten |= decompose(parsed)
            if lowers or splits or is_marked:
                lowered = parsed if lowers else parsed.operation.clone()
                has_changed = to_linalg(lowered, rewrite_depthwise, keeps_functions=keeps_functions)
                has_changed |= splits and split(lowered)
                parsed, is_rewritten = (lowered, True) if has_changed else (parsed, is_rewritten)
            if not lowers and not is_rewritten:
                return {"pieces": 0}
            if lowers:
                drop_unused_results(parsed)
        except DimError as error:
            return {"dim": str(error)}
        except (ir.MLIRError, ValueError) as error:
            return {"error": _first_error(error, diagnostics)}
        except RuntimeError:  # of the bindings: MLIR's message quotes bytes that are no text
            return {"error": diagnostics[0] if diagnostics else NO_TEXT}
        stage("looking for problems")
        return look(parsed)


def _written(module: Any, request: dict[str, Any]) -> dict[str, Any]:
    """Write a module as pieces of bytecode in the folder `apart`, and return their number."""
    file = io.BytesIO()
    module.operation.write_bytecode(file)
    code = file.getvalue()
    starts = range(0, len(code), PIECE)
    for number, start in enumerate(starts):
        Path(request["apart"], str(number)).write_bytes(code[start : start + PIECE])
    return {"pieces": len(starts)}


def _asked(module: Any, request: dict[str, Any]) -> dict[str, Any]:
    """Return what a request asks of a module on linalg, or why that is refused."""
    from tilewise.kernels.mlir.frontend.nest import NestRefusedError

    try:
        return asdict(_found(module, request))
    except NestRefusedError as refusal:
        return {"refused": str(refusal)}


def _found(module: Any, request: dict[str, Any]) -> "Imported | LoneOp | Outline":
    """Return all problems of a module, its outline, or one op."""
    if "pieces" in request or "outline" in request:
        return _outline(module, request)
    if "place" in request:
        from tilewise.kernels.mlir.frontend.child.extract import extract

        return extract(module, request["place"])
    return read(module)


def _outline(module: Any, request: dict[str, Any]) -> "Outline":
    """Return what a module does, with its weights in files if requested."""
    from tilewise.kernels.mlir.frontend.child.outline import outline

    stage("reading weights")
    if "outline" in request:
        return outline(module)
    source = Path(request["path"]).read_bytes()
    has_text = not (is_bytecode(source) or is_onnx(source))
    text = source if has_text else module.operation.get_asm().encode()
    return outline(module, text, Path(request["pieces"]))


def _first_error(error: Exception, diagnostics: list[str]) -> str:
    lines = [line for line in (*diagnostics, *str(error).splitlines()) if line.strip()]
    found = next((line for line in lines if "error:" in line), next(iter(diagnostics), lines[-1]))
    if unknown := _UNKNOWN.search(found):
        return f"IREE has no form of ONNX {unknown[1]} in this operator set"
    return found.strip().removeprefix("error:").strip().removeprefix('"-":')


def read(module: Any) -> Imported:
    """Return the problems of a module on linalg."""
    from tilewise.kernels.mlir.frontend.child.candidates import candidates

    occurrences, skipped = list[Occurrence](), list[Skipped]()
    for one in candidates(module):
        if one.problem is not None:
            occurrences.append(one.problem)
        else:
            skipped.append(Skipped(one.op.name, one.reason, one.where))
    return Imported(tuple(occurrences), tuple(skipped))


if __name__ == "__main__":
    reply_to_request(answer)
