"""The functions of a model as IREE will export them, looked at before anything is tuned."""

import re

from kernels.errors import KernelsError
from kernels.mlir.iree.compiler import SHORT_VALUES, compiled_text
from tilewise.errors import BadInputError, TilewiseError
from tilewise.model.child import entry_of
from tilewise.model.forms import SECONDS
from tilewise.model.signature import declarations_in, plain_name, types_of

_PUBLIC = re.compile(r'^  util\.func public @("[^"\n]*"|[^\s("]+)\((.*)', re.MULTILINE)
_SAID = re.compile(r'iree\.abi\.declaration = "((?:[^"\\]|\\.)*)"')


def check_entry(name: str, module: bytes, asked: str | None) -> None:
    """See to it that a model has the function that is to run, and that it takes tensors.

    Args:
        name: of the model's file.
        module: its text or bytecode.
        asked: the function; None for `main`, or the only one.

    Raises:
        BadInputError: it has not, or IREE does not compile the module as far as that.
    """
    try:
        seen = compiled_text(module, "preprocessing", SHORT_VALUES, SECONDS)
        found = functions_in(seen)
        declaration = found[entry_of(list(found), asked)]
        if declaration is not None:
            types_of(declaration)
    except (KernelsError, TilewiseError) as error:
        raise BadInputError(f"{name}: {error}") from error


def functions_in(module: str) -> dict[str, str | None]:
    """The declaration of each function that a module exports; None where nothing says it.

    Args:
        module: as IREE's compiler has it before it makes dispatches.
    """
    others = declarations_in(module)
    found: dict[str, str | None] = {}
    for quoted, rest in _PUBLIC.findall(module):
        said = _SAID.search(rest)
        name = plain_name(quoted)
        found[name] = said[1] if said else others.get(name)
    return found
