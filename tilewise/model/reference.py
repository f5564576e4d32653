"""A model compiled with copies of its arguments: the reference for its other forms.

IREE's compiler accumulates in the memory of the argument that a sum starts from, even if the
function also returns that argument (iree-org/iree#16168). All forms may share that fault.
"""

import re
import tempfile
from pathlib import Path

from tilewise.errors import TilewiseError, bad_input
from tilewise.kernels.dispatches.executable import template
from tilewise.kernels.dispatches.layouts import copy_lines
from tilewise.kernels.dispatches.library import FLAG, module_of
from tilewise.kernels.errors import KernelsError
from tilewise.kernels.mlir.iree.compiler import SHORT_VALUES, compile_file, compiled_text
from tilewise.model.signature import NUMPY, declarations_in, entry_of, types_of

COMPILE_S = 900.0
"""For which the compiler may work on a model: those of hundreds of layers take minutes."""

NAME, FILE = "reference", "reference.vmfb"
_IMPORTED = re.compile(r"hal\.tensor\.import\b.* -> tensor<((?:[\d?]+x)*)([a-z]+[0-9]+)>")


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
    parts, steps = list[str](), list[str]()
    for number, (shape, element) in enumerate(found):
        kind = f"tensor<{'x'.join((*shape, element))}>"
        lines = "\n".join(copy_lines("%given", "%copied", shape, element))
        parts.append(template("copy", number=number, type=kind, lines=lines))
        steps.append(template("copy_imports", number=number, type=kind))
    steps.append(template("inline_calls"))
    return module_of([*parts, template("main", given="module", steps="".join(steps))])


def check_entry(
    name: str, module: bytes, wanted: str | None, *, may_be_dynamic: bool = False
) -> str:
    """Return a model as IREE preprocesses it.

    Raise BadInputError unless the model has the function to run and it takes tensors.
    """
    with bad_input(name, KernelsError, TilewiseError):
        preprocessed = compiled_text(module, "preprocessing", SHORT_VALUES, COMPILE_S)
        found = declarations_in(preprocessed)
        types = found[entry_of(list(found), wanted)]
        types_of(types.replace("?", "1") if may_be_dynamic else types)
    return preprocessed
