"""Kernels of a program: each the driver of a schedule, which takes addresses alone."""

from tilewise.kernels.errors import LoweringError
from tilewise.kernels.native.language.frame import symbol
from tilewise.kernels.native.macrokernel.parameters import Addresses, names_of
from tilewise.kernels.native.objects.entries import DRIVER, Entries, edges
from tilewise.kernels.native.objects.module import Compiler
from tilewise.kernels.native.plan import Plan, plan
from tilewise.kernels.native.programs.steps import Kernel
from tilewise.kernels.target.model import Target


def words_of(planned: Plan) -> tuple[str, ...]:
    """The words of a kernel's row, by their names in its driver."""
    return (*names_of(Addresses), *edges(planned))


def kernel_object(kernel: Kernel, name: str, target: Target) -> tuple[bytes, tuple[str, ...]]:
    """The object of a kernel, and what its code uses of the processor.

    Args:
        kernel: which.
        name: of its function, `void NAME(int64_t words...)`, with the prefix of all symbols.
        target: the machine that it is for.

    Raises:
        LoweringError: code generation failed.
    """
    planned = plan(kernel.problem, kernel.schedule, target)
    given = ", ".join(words_of(planned))
    short = name.removeprefix(symbol(""))
    text = f"@njit\ndef {short}({given}):\n    call_address({DRIVER}, {given})\n"
    entries = Entries(name, (name,), text, has_supported=False)
    try:
        compiler = Compiler(entries, planned, target)
        return compiler.object_file(compiler.bitcode()), compiler.features
    except RuntimeError as error:  # LLVM's own
        raise LoweringError(f"compiling {kernel.problem} failed: {error}") from error
