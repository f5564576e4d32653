"""Models for which a library is made: their problems, their own patterns, what was replaced."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tilewise.errors import BadInputError, TilewiseError
from tilewise.kernels.errors import CompilerAbsentError, CompilerError, ModuleError
from tilewise.kernels.problem import Accuracy, Problem, parse_problem
from tilewise.kernels.quoting import quoted

if TYPE_CHECKING:  # it loads the compiler of kernels
    from tilewise.kernels.dispatches.extraction.extract import Cut
    from tilewise.search.libraries.library import ProvenLibrary

ENDINGS = (".mlir", ".mlirbc", ".onnx")


@dataclass(frozen=True)
class Model:
    """A module of a user.

    Attributes:
        path: of its file.
        module: its text or bytecode.
        cuts: its ops that are problems.
    """

    path: str
    module: bytes
    cuts: tuple["Cut", ...]

    @property
    def problems(self) -> list[Problem]:
        """Each problem once, in the order of the ops."""
        return [parse_problem(one) for one in dict.fromkeys(cut.problem for cut in self.cuts)]


@dataclass(frozen=True)
class Replaced:
    """What a library does to a model.

    Attributes:
        path: of the model.
        ops: that are problems.
        calls: places that call a kernel.
        left: problems with the number of ops that stay, and why where that is known.
    """

    path: str
    ops: int
    calls: int
    left: tuple[tuple[str, int, str], ...]

    def to_json(self) -> dict[str, Any]:
        """One element of `models`."""
        left = [{"problem": name, "count": n, "reason": why} for name, n, why in self.left]
        return {"file": self.path, "ops": self.ops, "replaced": self.calls,
                "passes": 0, "left": left}  # fmt: skip


def read_model(path: str, module: bytes, accuracy: Accuracy = "standard") -> Model:
    """A model's problems, all of one accuracy, and patterns.

    Raises:
        BadInputError: it is no module that IREE compiles, or it multiplies nothing.
        TilewiseError: IREE's compiler is not installed.
    """
    from tilewise.kernels.dispatches.extraction.extract import cut_module
    from tilewise.kernels.mlir.frontend.read import as_module

    try:
        module = as_module(module)
        cuts = tuple(cut.with_accuracy(accuracy) for cut in cut_module(module))
    except (CompilerError, ModuleError) as error:
        raise BadInputError(f"{quoted(path)}: {error}") from error
    except CompilerAbsentError as error:
        raise TilewiseError(str(error)) from error
    if not cuts:
        raise BadInputError(f"{quoted(path)} has no op that is a problem; see tilewise import")
    return Model(path, module, cuts)


def replaced_by(made: "ProvenLibrary", models: Sequence[Model]) -> list[Replaced]:
    """What a library does to each model.

    Args:
        made: the library.
        models: what it was made for.
    """
    from tilewise.kernels.dispatches.compilation import replaced_in

    return [
        _replaced(model, Counter(replaced_in(model.module, made.text)), made) for model in models
    ]


def _replaced(model: Model, calls: Counter[str], made: "ProvenLibrary") -> Replaced:
    names = made.names
    reasons = made.reasons | {cut.problem: cut.reason for cut in model.cuts if cut.reason}
    left = []
    for problem, count in Counter(cut.problem for cut in model.cuts).items():
        missing = count - calls[names[problem]] if problem in names else count
        if missing > 0:
            left.append((problem, missing, reasons.get(problem, "")))
    return Replaced(model.path, len(model.cuts), sum(calls.values()), tuple(left))
