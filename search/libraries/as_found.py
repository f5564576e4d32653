"""What a kernel is worth for an op whose operands lie in another order than the problem's.

The op is compiled alone, as its module has it: by IREE in both ways, and with the kernel and the
transpositions that it needs. All are timed in the same rounds.
"""

from dataclasses import asdict, dataclass, replace
from statistics import median

from tilewise.kernels.dispatches.compilation import compiled_with
from tilewise.kernels.dispatches.entry import Entry, compiled
from tilewise.kernels.dispatches.library import text_of
from tilewise.kernels.dispatches.patterns.alone import module_of_contraction
from tilewise.kernels.dispatches.patterns.pattern import Pattern
from tilewise.kernels.errors import CompilerError
from tilewise.kernels.mlir.iree.compiler import compile_module
from tilewise.kernels.quoting import one_line
from tilewise.kernels.system.limited_child import run_limited
from tilewise.kernels.system.typed_json import from_json
from tilewise.kernels.target import resolve
from tilewise.search.libraries.gain import COMPILERS_BYTES, COPIES, Gain
from tilewise.search.peers.iree import VARIANTS
from tilewise.search.runner.runner import Limits

CHILD = "tilewise.search.libraries.as_found_child"


@dataclass(frozen=True)
class Timed:
    """What the child found.

    Attributes:
        error, tolerance: of the result with the kernel.
        times: seconds of each run by the name of the form; the kernel's is empty.
    """

    error: float
    tolerance: float
    times: dict[str, tuple[float, ...]]


def measured_as_found(entry: Entry, pattern: Pattern, target: str, budget_s: float) -> Gain:
    """Compile, compare and time the kernel of an entry for a pattern of its problem.

    Args:
        entry: the problem with its schedule.
        pattern: cut from a module.
        target: canonical; this machine.
        budget_s: about how long the rounds take.

    Raises:
        KernelsError: the schedule cannot be compiled.
    """
    kernel, found = compiled(entry, resolve(target)), entry.found or entry.problem
    own = replace(pattern, added=None)  # operands are the caller's here, and may be written over
    module = module_of_contraction(own, has_constant_weights=found.has_constant_weights)
    try:
        library = text_of([kernel], resolve(target), (), {found.canonical: (own,)})
        ours = compiled_with(module, library)
        codes = {"": ours.code}
        for name, flags in VARIANTS.items():
            codes[name] = compile_module(module, flags)
    except CompilerError as error:
        return Gain(matched=False, failure=one_line(str(error)))
    if not ours.kernels:
        return Gain(matched=False, failure="IREE's compiler does not find it")
    limits = Limits.for_problem(found)
    request = {
        "problem": found.canonical, "pattern": asdict(own), "steps": entry.schedule.to_json(),
        "codes": {name: code.hex() for name, code in codes.items()},
        "threads": resolve(target).threads, "budget_s": budget_s, "seconds": limits.setup_s,
        "memory_bytes": limits.memory_bytes + COMPILERS_BYTES + COPIES * found.bytes,
    }  # fmt: skip
    ended = run_limited(request, CHILD)
    if ended.reply is None:
        return Gain(matched=False, failure=one_line(ended.message), is_final=False)
    return _gain(from_json(Timed, ended.reply))


def _gain(timed: Timed) -> Gain:
    times = {name: 1e6 * median(one) for name, one in timed.times.items()}
    wrong = ""
    if not timed.error <= timed.tolerance:
        wrong = f"its result is off by {timed.error:.2g}, and {timed.tolerance:.2g} is allowed"
    return Gain(True, timed.error, timed.tolerance, times.pop(""), None, times, wrong)
