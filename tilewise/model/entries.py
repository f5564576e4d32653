"""The functions of a model as IREE will export them, looked at before anything is tuned."""

from tilewise.errors import BadInputError, TilewiseError
from tilewise.kernels.errors import KernelsError
from tilewise.kernels.mlir.iree.compiler import SHORT_VALUES, compiled_text
from tilewise.model.child import entry_of
from tilewise.model.forms import SECONDS
from tilewise.model.signature import declarations_in, types_of


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
        found = declarations_in(seen)
        types_of(found[entry_of(list(found), asked)])
    except (KernelsError, TilewiseError) as error:
        raise BadInputError(f"{name}: {error}") from error
