"""What passes over rows are worth inside IREE: found, run, compared, timed beside IREE alone."""

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any

from tilewise.kernels.dispatches.compilation import compiled_with
from tilewise.kernels.dispatches.library import text_of
from tilewise.kernels.dispatches.passes.alone import module_of, module_over
from tilewise.kernels.dispatches.passes.code import CompiledPass, compiled_pass
from tilewise.kernels.dispatches.passes.row_pass import RowPass, distinct
from tilewise.kernels.dispatches.passes.text import OVER
from tilewise.kernels.durations import duration
from tilewise.kernels.errors import CompilerError, LoweringError
from tilewise.kernels.mlir.iree.compiler import compile_module
from tilewise.kernels.quoting import one_line
from tilewise.kernels.system.limited_child import run_limited
from tilewise.kernels.system.typed_json import from_json
from tilewise.kernels.target.model import Target

CHILD = "tilewise.search.libraries.passes_child"
SECONDS = 120.0
BUDGET_S = 0.5  # of the rounds
MEMORY_BYTES = 3 << 30  # what the runtime takes
COPIES = 12  # of operands and result, as f64 too
LEAST_GAIN_US = 1.0
"""A pass is a dispatch of its own, which IREE's own ops in a model may not be."""
TOLERANCE = 2.0**-18
"""Of the largest element of an exact result: 64 units of f32, whose functions have five."""
NARROW = 2.0**-8
"""The same of bf16, whose half a unit is the most of what is rounded once."""


@dataclass(frozen=True)
class Compared:
    """What a child found; times are of each run that was kept, in seconds.

    Attributes:
        error: the largest deviation from the exact result.
        largest: of that result's elements.
        with_pass: times of IREE with the pass.
        alone: times without it.
        failure: why there are none.
        over_error: the largest deviation where the pass writes over its operand; 0 where it does
            not.
    """

    error: float
    largest: float
    with_pass: tuple[float, ...]
    alone: tuple[float, ...]
    failure: str = ""
    over_error: float = 0.0


@dataclass(frozen=True)
class PassRow:
    """A pass and what it is worth; times are medians in microseconds.

    Attributes:
        found: the ops, with all places that have them.
        made: its code; None where there is none.
        max_error: of its result; None where it did not run.
        tolerance: what is allowed there.
        library_us: IREE with the pass; None where that was not measured.
        alone_us: IREE without it.
        failure: why it is not served, whatever the times.
    """

    found: RowPass
    made: CompiledPass | None = None
    max_error: float | None = None
    tolerance: float | None = None
    library_us: float | None = None
    alone_us: float | None = None
    failure: str = ""

    @property
    def reason(self) -> str:
        """Why it was left out; empty where it was not."""
        if self.failure or self.library_us is None or self.alone_us is None:
            return self.failure
        if self.library_us <= self.alone_us - LEAST_GAIN_US:
            return ""
        alone, library = duration(self.alone_us), duration(self.library_us)
        return f"IREE alone is as fast: {alone}, {library} with the pass"

    @property
    def served(self) -> CompiledPass | None:
        """Its code, if a library has it."""
        return None if self.reason else self.made

    def to_json(self) -> dict[str, Any]:
        """As `--json` prints it."""
        alone, ours = self.alone_us, self.library_us
        return {
            "pass": self.found.label,
            "count": len(self.found.where),
            "where": list(self.found.where),
            "served": self.served is not None,
            "max_error": self.max_error,
            "tolerance": self.tolerance,
            "time_us": ours,
            "iree_time_us": alone,
            "ratio": alone / ours if alone is not None and ours else None,
            "reason": self.reason,
        }


def compiled_passes(
    passes: Sequence[RowPass], served: Collection[str], target: Target
) -> list[PassRow]:
    """Each pattern once, with its code, not measured.

    Args:
        passes: one for each place.
        served: the problems that have a kernel.
        target: this machine.
    """
    return [_compiled(one, served, target) for one in distinct(tuple(passes))]


def measured_passes(
    passes: Sequence[RowPass], served: Collection[str], target: Target
) -> list[PassRow]:
    """As `compiled_passes`, each found, compared and timed inside IREE.

    Raises:
        CompilerAbsentError: IREE is not installed.
    """
    made = compiled_passes(passes, served, target)
    return [one if one.made is None else _measured(one, target) for one in made]


def _compiled(one: RowPass, served: Collection[str], target: Target) -> PassRow:
    left = next((problem for problem in one.after if problem not in served), None)
    if left is not None:
        return PassRow(one, failure=f"IREE joins it to {left}, which is left to it")
    try:
        return PassRow(one, compiled_pass(one, target))
    except LoweringError as error:
        return PassRow(one, failure=str(error))


def _measured(row: PassRow, target: Target) -> PassRow:
    found, made = row.found, row.made
    assert made is not None
    own = replace(made, found=replace(found, overwrites=None))  # here operands are the caller's
    module = module_of(found)
    try:
        alone = compile_module(module)
        ours = compiled_with(module, text_of([], target, (), {}, [own]))
        over = _compiled_over(made, target)
    except CompilerError as error:
        return PassRow(found, failure=one_line(error))
    if not ours.kernels:
        return PassRow(found, failure="IREE's compiler does not find it")
    request = {
        "pass": asdict(found), "with_pass": ours.code.hex(), "alone": alone.hex(),
        "over": None if over is None else over.hex(),
        "threads": target.threads, "budget_s": BUDGET_S, "seconds": SECONDS,
        "memory_bytes": MEMORY_BYTES + COPIES * 2 * found.bytes,
    }  # fmt: skip
    ended = run_limited(request, CHILD)
    if ended.reply is None:
        return PassRow(found, failure=one_line(f"{ended.failure}: {ended.message}"))
    is_proven = found.overwrites is None or over is not None
    return _judged(row if is_proven else PassRow(own.found, own), from_json(Compared, ended.reply))


def _compiled_over(made: CompiledPass, target: Target) -> bytes | None:
    """A module in which a pass writes over its operand, which is the module's own there.

    None where none does, or where IREE's compiler does not find it so.
    """
    if made.found.overwrites is None:
        return None
    one = replace(made, found=replace(made.found, kept=()))
    over = compiled_with(module_over(made.found), text_of([], target, (), {}, [one]))
    return over.code if f"{made.name}{OVER}" in over.functions else None


def _judged(row: PassRow, compared: Compared) -> PassRow:
    if compared.failure:
        return PassRow(row.found, failure=compared.failure)
    unit = NARROW if row.found.pattern.result.element == "bf16" else TOLERANCE
    allowed = unit * compared.largest
    error = max(compared.error, compared.over_error)
    where = "" if compared.error > allowed else ", written over its operand,"
    wrong = f"its result{where} is off by {error:.2g}, and {allowed:.2g} are allowed"
    return PassRow(
        row.found, row.made, error, allowed, 1e6 * median(compared.with_pass),
        1e6 * median(compared.alone), wrong if error > allowed else "",
    )  # fmt: skip
