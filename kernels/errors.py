"""The errors of `kernels`: one root, and a class per thing a caller can act on."""


class KernelsError(Exception):
    """Root of every error that `kernels` raises on purpose."""


class FieldError(KernelsError):
    """An error of one key of a problem.

    Args:
        message: names the key, its value and the way out.
        field: the offending key, for callers that point at it (HTTP 422).
    """

    def __init__(self, message: str, field: str = "problem") -> None:
        super().__init__(message)
        self.field = field


class ProblemError(FieldError):
    """A problem that cannot be read or makes no sense."""


class TargetError(KernelsError):
    """A target string that cannot be read, or that this machine is not."""


class ScheduleError(KernelsError):
    """A step that cannot be applied; the message names the step and what it met."""


class UnsupportedError(FieldError):
    """A valid problem that no lowering covers yet; the message says what is covered."""


class LoweringError(KernelsError):
    """Code generation or compilation of a legal schedule failed."""


class ExtensionError(KernelsError):
    """A module of `TILEWISE_EXTENSIONS` that cannot be imported; the message names it."""


class CacheError(KernelsError):
    """The cache folder cannot be used; the message names it and the variable that sets it."""


class ProofError(KernelsError):
    """A transform script did not apply, compile, run or match the reference."""


class LimitError(KernelsError):
    """A limit of time or memory that nothing can be held to; the message names it."""


class CompilerAbsentError(KernelsError):
    """IREE's compiler or runtime is not installed; the message names the package to install."""


class CompilerError(KernelsError):
    """IREE's compiler refused a module; the message is its first error."""


class ModuleError(KernelsError):
    """An MLIR module that cannot be read; the message has MLIR's first error."""

    field = "module"


class DimError(ModuleError):
    """A size of a dynamic dim that a module lacks or cannot have; the message names the dim."""

    field = "dim"


class PlaceError(KernelsError):
    """No op of a module that can be taken from it; the message names the place."""

    field = "place"
