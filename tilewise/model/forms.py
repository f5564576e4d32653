"""A model's compiled forms: by IREE alone, in two ways, and with a library before each."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tilewise.errors import TilewiseError
from tilewise.kernels.dispatches.compilation import calls_in, preprocessed
from tilewise.kernels.dispatches.library import FLAG
from tilewise.kernels.errors import CompilerError
from tilewise.kernels.mlir.iree.compiler import DATA_TILING as DATA_TILING_FLAG
from tilewise.kernels.mlir.iree.compiler import compile_file
from tilewise.model import reference
from tilewise.model.report import DATA_TILING, DEFAULT, WITH
from tilewise.model.signature import declarations_in

LIBRARY = "lib.mlir"
SECONDS = 900.0
"""For which the compiler may work on a model: those of hundreds of layers take minutes."""

FILES = {
    DEFAULT: "default.vmfb",
    DATA_TILING: "data_tiling.vmfb",
    WITH[0]: "library.vmfb",
    WITH[1]: "library_data_tiling.vmfb",
}


@dataclass(frozen=True)
class Forms:
    """What was compiled.

    Attributes:
        codes: the file of each form that compiles.
        refused: the compiler's first error, of each form that does not, and of the reference.
        kernels: names of the kernels that the model calls, one for each place.
        declarations: of its functions.
        reference: the file of the model with copies of its arguments; None if it takes no tensor.
    """

    codes: Mapping[str, Path]
    refused: Mapping[str, str]
    kernels: tuple[str, ...]
    declarations: Mapping[str, str]
    reference: Path | None = None


def compile_forms(source: Path, folder: Path) -> Forms:
    """Compile a model with the library of a folder and without, into the folder.

    Raises:
        TilewiseError: neither form with the library compiles, or IREE's default does not.
        CompilerAbsentError: IREE's compiler is not installed.
    """
    given = f"{FLAG}={folder / LIBRARY}"
    flags = {
        DEFAULT: (),
        DATA_TILING: (DATA_TILING_FLAG,),
        WITH[0]: (given,),
        WITH[1]: (DATA_TILING_FLAG, given),
    }
    codes, refused = dict[str, Path](), dict[str, str]()
    for name, path in FILES.items():
        (folder / path).unlink(missing_ok=True)
        try:
            compile_file(source, folder / path, flags[name], SECONDS)
        except CompilerError as error:
            refused[name] = str(error)
        else:
            codes[name] = folder / path
    for needed in ((DEFAULT,), WITH):
        if not codes.keys() & set(needed):
            raise TilewiseError(f"{source.name}, {needed[0]}: {refused[needed[0]]}")
    text = (folder / LIBRARY).read_text(encoding="utf-8")
    after = preprocessed(source.read_bytes(), text, (), SECONDS)
    code, is_made = folder / reference.FILE, False
    code.unlink(missing_ok=True)
    try:
        is_made = reference.compile_reference(source, code, after, SECONDS)
    except CompilerError as error:
        refused[reference.NAME] = f"{error}; the forms are compared with {DEFAULT}"
    return Forms(codes, refused, calls_in(after), declarations_in(after), code if is_made else None)
