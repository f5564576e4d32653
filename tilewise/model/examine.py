"""Compile a model with and without tuned kernels in IREE, compare the results, and time both."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isnan
from pathlib import Path

from tilewise.backends.choose import Backend
from tilewise.bench.machine import processor
from tilewise.errors import MissingError, TilewiseError
from tilewise.kernels.dispatches.compilation import calls_in, preprocessed
from tilewise.kernels.dispatches.executable import LibraryEntry
from tilewise.kernels.dispatches.extraction.extract import Cut, patterns_of
from tilewise.kernels.dispatches.library import FLAG
from tilewise.kernels.dispatches.patterns.pattern import Pattern
from tilewise.kernels.errors import CompilerError
from tilewise.kernels.mlir.frontend.dims import DimRange
from tilewise.kernels.mlir.frontend.graph import ModuleProblem, Skipped
from tilewise.kernels.mlir.iree.compiler import DATA_TILING as DATA_TILING_FLAG
from tilewise.kernels.mlir.iree.compiler import compile_file
from tilewise.kernels.problem import Accuracy, parse_any
from tilewise.kernels.range_schedule import RangeSchedule
from tilewise.kernels.target import resolve
from tilewise.kernels.target.model import Target
from tilewise.model.libraries import NO_PATTERN, costs_of_model, entry_of, largest
from tilewise.model.measuring import ModelTimes, measure
from tilewise.model.reference import COMPILE_S, FILE, NAME, compile_reference
from tilewise.model.report import (
    DATA_TILING,
    DEFAULT,
    WITH,
    ModelReport,
    ProblemReport,
    SizeRun,
    tolerance,
)
from tilewise.model.signature import declarations_in, tensors_in
from tilewise.search.errors import RunnerError
from tilewise.search.libraries.gain import Gain
from tilewise.search.libraries.library import Judged, judged, library_by
from tilewise.search.networks.costs import LayerTimes
from tilewise.search.records import CacheMode
from tilewise.search.runner.processors import timing_alone

LIBRARY = "lib.mlir"

FILES = {
    DEFAULT: "default.vmfb",
    DATA_TILING: "data_tiling.vmfb",
    WITH[0]: "library.vmfb",
    WITH[1]: "library_data_tiling.vmfb",
}


@dataclass(frozen=True)
class Forms:
    """The compiled forms of a model.

    `refused` maps a form, or the reference, that does not compile to the compiler's first error.
    `kernels` names the kernel of each call site. `reference` is None if the model takes no tensor.
    """

    codes: Mapping[str, Path]
    refused: Mapping[str, str]
    kernels: tuple[str, ...]
    declarations: Mapping[str, str]
    reference: Path | None = None


def compile_forms(source: Path, folder: Path) -> Forms:
    """Compile a model into a folder, with the folder's library and without.

    Raises TilewiseError if IREE's default or both forms with the library fail to compile.
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
            compile_file(source, folder / path, flags[name], COMPILE_S)
        except CompilerError as error:
            refused[name] = str(error)
        else:
            codes[name] = folder / path
    for needed in ((DEFAULT,), WITH):
        if not codes.keys() & set(needed):
            raise TilewiseError(f"{source.name}, {needed[0]}: {refused[needed[0]]}")
    text = (folder / LIBRARY).read_text(encoding="utf-8")
    after = preprocessed(source.read_bytes(), text, (), COMPILE_S)
    code, is_made = folder / FILE, False
    code.unlink(missing_ok=True)
    try:
        is_made = compile_reference(source, code, after, COMPILE_S)
    except CompilerError as error:
        refused[NAME] = f"{error}; the forms are compared with {DEFAULT}"
    return Forms(codes, refused, calls_in(after), declarations_in(after), code if is_made else None)


BUDGET_S = 0.5  # of the rounds of one op


@dataclass(frozen=True)
class ExaminedModel:
    """A model and what to measure of it.

    `cuts` are its ops as IREE's compiler presents them to patterns; `folder` exists. Without
    `with_ops` no op is measured alone, so none is left to IREE for its speed. All dynamic dims of
    its arguments have the sizes of `dim`.
    """

    source: Path
    problems: tuple[ModuleProblem, ...]
    skipped: tuple[Skipped, ...]
    cuts: tuple[Cut, ...]
    folder: Path
    target: str = "host"
    cache: CacheMode | None = None
    entry: str | None = None
    with_ops: bool = True
    accuracy: Accuracy = "standard"
    dim: DimRange | None = None


def examine(model: ExaminedModel, backend: Backend, tell: Callable[[str], None]) -> ModelReport:
    """Write the library, compile all forms, and measure them."""
    target = resolve(model.target)
    each = [one.problem for one in model.problems for _ in range(one.count)]
    costs = costs_of_model(backend, target, model.cache, each)
    ops = [ProblemReport(one.problem, one.count, one.where) for one in model.problems]
    with timing_alone(target.canonical):
        found = [_known(backend, model, op, costs) for op in ops]
    entries = [entry for _, entry in found if entry is not None]
    left = (f"Left out: {op.problem}: {op.reason}" for op, entry in found if entry is None)

    def judge(entry: LibraryEntry, patterns: Sequence[Pattern]) -> Judged:
        if not model.with_ops:
            return Judged(Gain(matched=True), tuple(patterns))
        tell(f"measures {entry.replaces}")
        try:
            return judged(entry, patterns, target.canonical, BUDGET_S)
        except RunnerError as error:
            return Judged(Gain(matched=False, failure=f"not measured: {error}"))

    made = library_by(judge, entries, target, patterns_of(model.cuts), left)
    counted = "1 kernel" if len(made.names) == 1 else f"{len(made.names)} kernels"
    tell(f"compiles with {counted} and without")
    (model.folder / LIBRARY).write_text(made.text, encoding="utf-8")
    forms = compile_forms(model.source, model.folder)
    calls, gains = Counter(forms.kernels), {row.found.canonical: row.gain for row in made.rows}
    reasons = {name: f"as the model has it: {why}" for name, why in made.reasons.items()}
    reasons |= {cut.problem: cut.reason for cut in model.cuts if cut.reason}
    placed = tuple(
        _placed(op, gains.get(op.problem), made.names, calls, reasons) for op, _ in found
    )
    tell("runs")
    runs = [*_runs(model, forms, target, tell)]
    stored = [re.split("[<x]", one.rstrip(">"))[-1] for one in runs[0].times.results]
    allowed = tolerance(((largest(op.problem), op.count) for op in placed), stored)
    return ModelReport(
        model.source.name, target.canonical, _machine(), placed, model.skipped,
        _worst(runs, forms) if model.dim else runs[0].times, allowed, dict(forms.refused),
        model.accuracy, tuple(runs) if model.dim else (),
    )  # fmt: skip


def _runs(
    model: ExaminedModel, forms: Forms, target: Target, tell: Callable[[str], None]
) -> Iterator[SizeRun]:
    """Run all forms; of a model with a dynamic dim at sizes of it, the largest one last."""
    dim = model.dim
    for size in (dim.outside, *dim.tested) if dim else (0,):
        sized = {name: text.replace("?", str(size)) for name, text in forms.declarations.items()}
        named = f"{dim.names[0]}={size}" if dim else ""
        is_inside = dim is None or size != dim.outside
        try:
            times = measure(forms.codes, model.entry, target.threads,
                            declarations=sized, reference=forms.reference)  # fmt: skip
            yield SizeRun(named, times, is_inside)
        except TilewiseError as error:
            if is_inside:
                raise
            tell(f"{named}, outside of the range, is not run: {error}")


def _worst(runs: Sequence[SizeRun], forms: Forms) -> ModelTimes:
    """Return the times at the last size, with types as declared and the largest deviations."""
    last = runs[-1].times
    takes, gives = tensors_in(forms.declarations.get(last.entry, ""))
    worst = {
        name: replace(form, deviation=max((run.times.forms[name].deviation for run in runs),
                                          key=lambda one: (isnan(one), one)))
        for name, form in last.forms.items()
    }  # fmt: skip
    return replace(last, arguments=takes or last.arguments, results=gives or last.results,
                   forms=worst)  # fmt: skip


def _known(
    backend: Backend, model: ExaminedModel, op: ProblemReport, costs: LayerTimes
) -> tuple[ProblemReport, LibraryEntry | None]:
    """Return the op with its fastest stored schedule for use inside the model."""
    try:
        stored = backend.show(op.problem, model.target, model.cache, match="range")
    except MissingError as error:
        return replace(op, reason=str(error)), None
    entry = entry_of(parse_any(op.problem), stored, costs)
    is_range = isinstance(entry.schedule, RangeSchedule)
    return op if is_range else replace(op, schedule=entry.schedule.hash), entry


def _placed(
    op: ProblemReport,
    gain: Gain | None,
    names: Mapping[str, str],
    calls: Counter[str],
    reasons: Mapping[str, str],
) -> ProblemReport:
    """Return the op with its times, the call sites of its kernel, and why others have none."""
    if gain is None:
        return op
    op = replace(op, alone_us=dict(gain.alone_us or {}), library_us=gain.library_us)
    if op.problem not in names:
        return replace(op, reason=gain.reason)
    called = calls[names[op.problem]]
    reason = "" if called >= op.count else reasons.get(op.problem, NO_PATTERN)
    return replace(op, replaced=called, reason=reason)


def _machine() -> dict[str, str]:
    from importlib import metadata

    return {
        "processor": processor(),
        "iree-base-compiler": metadata.version("iree-base-compiler"),
        "iree-base-runtime": metadata.version("iree-base-runtime"),
    }
