"""What a schedule needs compiled: its nest, micro-kernel, macro-kernel, and their sizes."""

from dataclasses import dataclass

from tilewise.kernels.arithmetic import arithmetic_of
from tilewise.kernels.native.ir.vectors import LINE_BYTES
from tilewise.kernels.native.macrokernel.printer import MacroKernelSource, print_macro_kernel
from tilewise.kernels.native.macrokernel.shared_structure import uniform
from tilewise.kernels.native.macrokernel.sizes import PanelBytes, macro_kernel_sizes, panel_bytes
from tilewise.kernels.native.microkernels.kinds import kind_of
from tilewise.kernels.native.microkernels.microkernel import KernelSpec, MicroKernel, Use, use_of
from tilewise.kernels.native.strides import strides_of
from tilewise.kernels.nest import Fetched, Nest
from tilewise.kernels.problem import Problem
from tilewise.kernels.schedule import Schedule, loop_nest
from tilewise.kernels.target.model import Target


@dataclass(frozen=True)
class Scratch:
    """Memory for an operand's panels, or for sums.

    Attributes:
        total: bytes for all threads.
        step: bytes from one thread's panels to the next one's; 0 where all read the same.
    """

    total: int
    step: int

    @classmethod
    def of_each(cls, size: int, threads: int) -> "Scratch":
        """Return panels of `size` bytes for each thread, aligned to cache lines."""
        step = -(-size // LINE_BYTES) * LINE_BYTES
        return cls(size if threads == 1 else threads * step, step)


@dataclass(frozen=True)
class KernelPlan:
    """A schedule's native code before it is compiled.

    Attributes:
        nest: the loop nest of the schedule; the macro-kernel may have more loops, of one trip.
        kernel: the micro-kernel.
        use: how the nest uses it.
        source: the macro-kernel.
        sizes: every parameter of the macro-kernel that is not an address.
        panels: bytes of packed A and packed B for one thread, or of all that is packed ahead; and
            of sums that C is made of in the end.
    """

    nest: Nest
    kernel: MicroKernel
    use: Use
    source: MacroKernelSource
    sizes: dict[str, int]
    panels: PanelBytes

    @property
    def spec(self) -> KernelSpec:
        """Return what the code of the micro-kernel depends on."""
        return self.kernel.spec

    @property
    def is_ahead(self) -> bool:
        """Return whether B is packed before the macro-kernel runs, by a function of its own."""
        return self.source.prepares

    @property
    def functions(self) -> tuple[str, ...]:
        """Return what the macro-kernel calls; `edge` only where there are border tiles."""
        needs_edge = self.use.cut or self.nest.is_macro
        return tuple(name for name in self.source.functions if name != "edge" or needs_edge)

    @property
    def scratch(self) -> dict[str, Scratch]:
        """Return the memory for panels of A and B, and for sums of C."""
        threads = len(self.nest.parts)
        b, c = self.panels.b, self.panels.c
        return {
            "A": Scratch.of_each(self.panels.a, threads),
            "B": Scratch(b, 0) if self.is_ahead else Scratch.of_each(b, threads),
            "C": Scratch(c, 0) if self.panels.shares_c else Scratch.of_each(c, threads),
        }


def plan(
    problem: Problem, schedule: Schedule, target: Target, *, shares_code: bool = True
) -> KernelPlan:
    """Return what `lower` compiles.

    Args:
        problem: what is computed.
        schedule: how.
        target: where.
        shares_code: whether the macro-kernel has loops of one trip and serves schedules with
            other blocks. One that prefetches the next block of B depends on the loops.

    Raises:
        ScheduleError, LoweringError: as `lower`, except for a failed compilation.
    """
    nest = loop_nest(problem, schedule)
    kind = kind_of(nest)
    how = arithmetic_of(nest.problem, target, kind.form, nest.compute.instruction)
    strides = strides_of(nest, how)
    kernel = kind.of(nest, target, strides, how)
    fetches_blocks = any(fetch.what is Fetched.NEXT_BLOCK for fetch in nest.fetches)
    loops = uniform(nest) if shares_code and not fetches_blocks else nest
    sizes = macro_kernel_sizes(loops, strides, kernel.spec)
    source = print_macro_kernel(loops, how, sizes)
    panels = panel_bytes(loops, strides, kernel.spec)
    return KernelPlan(nest, kernel, use_of(nest, kernel.spec.lanes, target), source, sizes, panels)
