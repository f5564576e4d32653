"""An ONNX model as a module in torch's dialect.

The importer of `iree-base-compiler` needs the package `onnx`, and runs in a child process, since a
model can contain anything.
"""

import io
from collections.abc import Iterator
from typing import Any

import numpy as np

from tilewise.kernels.errors import DimError
from tilewise.kernels.mlir.frontend.child import onnx_weights
from tilewise.kernels.mlir.frontend.child.onnx_nodes import NodeError
from tilewise.kernels.mlir.frontend.child.onnx_pads import rewrite
from tilewise.kernels.mlir.frontend.dims import check_names
from tilewise.kernels.system.limited_child import stage

ABSENT = "this is an ONNX model; tilewise[onnx] reads it, and onnx is not installed"
OPSET = 17  # from which the importer's patterns know all operators


class OnnxError(Exception):
    """A model cannot become a module; the message says why."""


def bytecode_of(model: bytes, sizes: dict[str, int] | None = None) -> bytes:
    """Return a model as MLIR bytecode with its weights; raise OnnxError, or DimError of `sizes`.

    Operator sets before 17 are converted first if possible: the importer knows few of their forms.
    """
    stage("loading ONNX")
    try:
        import onnx.inliner
        from iree.compiler.extras import onnx_importer
    except ModuleNotFoundError as error:
        raise OnnxError(ABSENT) from error
    from iree.compiler import ir

    stage("importing ONNX")
    try:
        proto = onnx.load_model_from_string(model)
        _require_whole(onnx, proto)
        if sizes:
            _set_sizes(proto.graph, sizes)
        onnx.checker.check_model(proto)
        if proto.functions:
            proto = onnx.inliner.inline_local_functions(proto)
        _make_raw(onnx.TensorProto, proto)
        if _opset(proto) >= onnx_weights.LEAST_OPSET:
            onnx_weights.rewrite(onnx, proto.graph)
        proto = _with_explicit_pads(onnx, _converted(onnx, proto))
        with ir.Context() as context:
            info = onnx_importer.ModelInfo(proto)
            module = info.create_module(context=context).operation
            onnx_importer.NodeImporter.define_function(info.main_graph, module).import_all()
            module.verify()
            file = io.BytesIO()
            module.write_bytecode(file)
    except (OnnxError, DimError):
        raise
    except NodeError as error:
        raise OnnxError(f"the ONNX model cannot be imported: {error}") from error
    except Exception as error:  # whatever parser, checker and importer raise, without a common root
        raise OnnxError(f"the ONNX model cannot be imported: {_first_line(error)}") from error
    return file.getvalue()


def _make_raw(kinds: Any, proto: Any) -> None:
    """Write narrow weights as bytes: IREE's importer reads no others of these types."""
    types = {kinds.FLOAT16: "<u2", kinds.BFLOAT16: "<u2", kinds.INT4: "u1", kinds.UINT4: "u1"}
    for tensor in _tensors(proto):
        if tensor.int32_data and tensor.data_type in types:
            values = np.array(tensor.int32_data, np.int32)
            tensor.raw_data = values.astype(types[tensor.data_type]).tobytes()
            del tensor.int32_data[:]


def _set_sizes(graph: Any, sizes: dict[str, int]) -> None:
    """Give the dynamic dims of a model's inputs sizes; shape inference does the others anew.

    A dim without a name in the model has the name `INPUT.AXIS`.
    """
    weights = {one.name for one in graph.initializer}
    dims: dict[str, list[Any]] = {}
    for value in graph.input:
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if value.name not in weights and not dim.HasField("dim_value"):
                dims.setdefault(dim.dim_param or f"{value.name}.{axis}", []).append(dim)
    check_names(sizes, dims)
    for name, alike in dims.items():
        for dim in alike if sizes[name] else ():
            dim.dim_value = sizes[name]
    for dim in (dim for one in graph.value_info for dim in one.type.tensor_type.shape.dim):
        dim.Clear()
    for value in graph.output:
        for dim in value.type.tensor_type.shape.dim:
            dim.ClearField("dim_param")


def _with_explicit_pads(onnx: Any, proto: Any) -> Any:
    """Return the model with inferred shapes and explicit paddings."""
    inferred = onnx.shape_inference.infer_shapes(proto, data_prop=True)
    if not rewrite(onnx, inferred.graph, _opset(proto)):
        return inferred
    for name in ("value_info", "output"):  # before version 22 ONNX counts windows beyond the input
        inferred.graph.ClearField(name)
        getattr(inferred.graph, name).extend(getattr(proto.graph, name))
    return onnx.shape_inference.infer_shapes(inferred, data_prop=True)


def _opset(proto: Any) -> int:
    """Return the version of ONNX's own operators; 0 if there is none."""
    names = {"", "ai.onnx"}
    return max((one.version for one in proto.opset_import if one.domain in names), default=0)


def _converted(onnx: Any, proto: Any) -> Any:
    """Return the model in an operator set that the importer knows; unchanged if that fails."""
    version = _opset(proto)
    if not version or version >= OPSET:
        return proto
    try:
        return onnx.version_converter.convert_version(proto, OPSET)
    except Exception:  # the importer says what it does not know
        return proto


def _require_whole(onnx: Any, proto: Any) -> None:
    """Refuse a model with weights in other files, before anything reads those."""
    for tensor in _tensors(proto):
        if onnx.external_data_helper.uses_external_data(tensor):
            raise OnnxError(
                f"the ONNX model has {tensor.name or 'a tensor'} in another file; make one file "
                "by onnx.save(onnx.load(PATH), FILE), or a module by iree-import-onnx"
            )


def _tensors(message: Any) -> Iterator[Any]:
    """Yield every tensor in a message and its parts, which the parser limits to a depth of 100."""
    if message.DESCRIPTOR.name == "TensorProto":
        yield message
        return
    for field, value in message.ListFields():
        if field.message_type is not None:
            for one in (value,) if hasattr(value, "ListFields") else value:
                yield from _tensors(one)


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
