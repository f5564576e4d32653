"""IREE with our own kernel inside, as a user has it who compiles with a library of ours."""

from tilewise.kernels.dispatches.compilation import compiled_with
from tilewise.kernels.dispatches.entry import Entry
from tilewise.kernels.dispatches.library import library_text
from tilewise.kernels.errors import CompilerAbsentError, CompilerError, KernelsError
from tilewise.kernels.mlir.iree.module_text import module_text
from tilewise.kernels.mlir.iree.runtime import runtime
from tilewise.kernels.oracle.operands import Operands
from tilewise.kernels.problem import Problem
from tilewise.kernels.schedule import Schedule
from tilewise.kernels.target.model import Target
from tilewise.search.peers.iree import bound
from tilewise.search.peers.variant import PeerAbsentError, Variant

NAME, WAY = "iree+tilewise", "library"


class Maker:
    """Makes the one way of this peer, which depends on a schedule."""

    def __init__(self, schedule: Schedule, target: Target) -> None:
        self.schedule, self._target = schedule, target
        self._code: bytes | None = None

    def variants(self, problem: Problem, operands: Operands, threads: int) -> list[Variant]:
        """IREE's code with the kernel in it, bound to operands.

        Raises:
            PeerAbsentError: IREE is not installed, or found nothing to replace.
        """
        try:
            runtime()
            code = self._compiled(problem)
        except (CompilerAbsentError, CompilerError, KernelsError) as error:
            raise PeerAbsentError(str(error)) from error
        return [bound(code, problem, operands, threads, WAY, NAME)]

    def _compiled(self, problem: Problem) -> bytes:
        if self._code is None:
            library = library_text([Entry(problem, self.schedule)], self._target)
            made = compiled_with(module_text(problem), library)
            if not made.kernels:
                raise PeerAbsentError("no pattern of the library matched the problem in IREE")
            self._code = made.code
        return self._code
