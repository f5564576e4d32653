"""A model compiled with copies of its arguments: the reference for its other forms.

IREE's compiler accumulates in the memory of the argument that a sum starts from, even if the
function also returns that argument (iree-org/iree#16168). All forms may share that fault.
"""

import re
import tempfile
from pathlib import Path

from tilewise.errors import TilewiseError, bad_input
from tilewise.kernels.dispatches.layouts import copy_lines
from tilewise.kernels.dispatches.library import FLAG
from tilewise.kernels.errors import KernelsError
from tilewise.kernels.mlir.iree.compiler import SHORT_VALUES, compile_file, compiled_text
from tilewise.model.signature import NUMPY, declarations_in, entry_of, types_of

COMPILE_S = 900.0
"""For which the compiler may work on a model: those of hundreds of layers take minutes."""

NAME, FILE = "reference", "reference.vmfb"
_IMPORTED = re.compile(r"hal\.tensor\.import\b.* -> tensor<((?:\d+x)*)([a-z]+[0-9]+)>")
_HANDLE = "!transform.any_op"
_VALUE = "!transform.any_value"


def compile_reference(source: Path, code: Path, module: str, seconds: float) -> bool:
    """Write a model's code with all arguments copied; return False if none is a tensor."""
    script = copying_script(module)
    if script is None:
        return False
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "copies.mlir"
        path.write_text(script, encoding="utf-8")
        compile_file(source, code, (f"{FLAG}={path}",), seconds)
    return True


def copying_script(module: str) -> str | None:
    """Return the script that copies each tensor argument; None if there is none."""
    found = {
        (tuple(size for size in shape.split("x") if size), element): None
        for shape, element in _IMPORTED.findall(module)
        if element in NUMPY
    }
    if not found:
        return None
    functions = "".join(_function(i, shape, element) for i, (shape, element) in enumerate(found))
    steps = "".join(_step(i, shape, element) for i, (shape, element) in enumerate(found))
    return f"""module attributes {{transform.with_named_sequence}} {{{functions}
  transform.named_sequence @__transform_main(%module: {_HANDLE} {{transform.consumed}}) {{{steps}
    %inlined = transform.apply_registered_pass "inline" to %module : ({_HANDLE}) -> {_HANDLE}
    transform.yield
  }}
}}
"""


def _function(number: int, shape: tuple[str, ...], element: str) -> str:
    tensor = _tensor(shape, element)
    lines = "".join(f"\n    {line}" for line in copy_lines("%given", "%copy", shape, element))
    return f"""
  util.func private @tilewise_copy{number}(%given: {tensor}) -> {tensor} {{{lines}
    util.return %copy : {tensor}
  }}"""


def _step(number: int, shape: tuple[str, ...], element: str) -> str:
    """Return the lines that make all ops read a copy of each argument of one type."""
    return f"""
    %imports{number} = transform.structured.match ops{{["hal.tensor.import"]}} \
filter_result_type = {_tensor(shape, element)} in %module : ({_HANDLE}) -> {_HANDLE}
    transform.foreach %imports{number} : {_HANDLE} {{
    ^bb0(%import: {_HANDLE}):
      %value = transform.get_result %import[0] : ({_HANDLE}) -> {_VALUE}
      %table = transform.util.get_nearest_symbol_table %import : ({_HANDLE}) -> {_HANDLE}
      %copy = transform.util.import_symbol @tilewise_copy{number} into %table if undefined \
: ({_HANDLE}) -> {_HANDLE}
      transform.util.cast_and_call %copy(%value) -> %value after %import \
: ({_HANDLE}, {_VALUE}, {_VALUE}, {_HANDLE}) -> {_HANDLE}
    }}"""


def _tensor(shape: tuple[str, ...], element: str) -> str:
    return f"tensor<{'x'.join((*shape, element))}>"


def check_entry(name: str, module: bytes, asked: str | None) -> None:
    """Raise BadInputError unless the model has the function to run and it takes tensors."""
    with bad_input(name, KernelsError, TilewiseError):
        found = declarations_in(compiled_text(module, "preprocessing", SHORT_VALUES, COMPILE_S))
        types_of(found[entry_of(list(found), asked)])
