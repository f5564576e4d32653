"""Libraries of kernels for IREE, from stored schedules or a plan, and their effect on models."""

import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tilewise.backends.choose import Backend
from tilewise.errors import BadInputError, MissingError, TilewiseError
from tilewise.kernels.errors import CompilerError, KernelsError, ModuleError, ProofError
from tilewise.kernels.mlir.frontend.dims import parse_dims
from tilewise.kernels.problem import (
    Accuracy,
    Problem,
    ProblemRange,
    parse_any,
    parse_problem,
    parse_range,
)
from tilewise.kernels.quoting import quoted
from tilewise.kernels.target import resolve
from tilewise.schema.base import Json
from tilewise.search.errors import RunnerError
from tilewise.search.records import CacheMode

if TYPE_CHECKING:
    from tilewise.kernels.dispatches.executable import LibraryEntry
    from tilewise.kernels.dispatches.extraction.extract import Cut
    from tilewise.kernels.target.model import Target
    from tilewise.search.libraries.library import KernelRow, ProvenLibrary
    from tilewise.search.networks.costs import LayerTimes
    from tilewise.search.networks.plan import Plan


def read_plan(path: str, text: str) -> "Plan":
    """Parse a plan that `tilewise plan -o` wrote; raise BadInputError otherwise."""
    from tilewise.search.networks.plan import Plan

    try:
        return Plan.from_json(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise BadInputError(f"{quoted(path)} is not a plan: {error}") from error


def chosen(plan: "Plan") -> tuple[list["LibraryEntry"], list[str]]:
    """Return the kernels of a plan by the problems of the ops that they replace, and notes.

    A library has one kernel per problem: the one that the plan uses most often. A layer with
    blocked channels gets its schedule for the plain layout, which has the same nest.
    """
    from tilewise.kernels.dispatches.executable import LibraryEntry

    of: dict[str, Counter[tuple[str, str]]] = {}
    steps: dict[str, list[Any]] = {}
    notes = []
    for node in plan.nodes:
        if node.found is None:
            continue
        if node.problem is None or node.schedule is None:
            notes.append(f"{node.found.problem}: {node.reason or 'no schedule is planned'}")
            continue
        if any(use.layout.block for use in (*node.reads, *node.makes)):
            notes.append(f"{node.found.problem}: the plan has channels in blocks, "
                         "and IREE has them side by side")  # fmt: skip
        steps[node.schedule.hash] = list(node.schedule.steps)
        counts = of.setdefault(node.found.problem, Counter())
        counts[node.problem, node.schedule.hash] += 1
    wanted = []
    for found, counts in of.items():
        (problem, schedule), times = counts.most_common(1)[0]
        if times < counts.total():
            notes.append(f"{found}: {counts.total() - times} of {counts.total()} ops are planned "
                         f"otherwise than {problem}")  # fmt: skip
        wanted.append(
            LibraryEntry.of(parse_problem(problem), steps[schedule], parse_problem(found))
        )
    return wanted, list(dict.fromkeys(notes))


ENDINGS = (".mlir", ".mlirbc", ".onnx")
NO_PATTERN = "no pattern of the library fits the ops around it"


@dataclass(frozen=True)
class UserModel:
    """A user's module and its ops that are problems."""

    path: str
    module: bytes
    cuts: tuple["Cut", ...]

    @property
    def problems(self) -> list[Problem | ProblemRange]:
        """Each problem once, in the order of the ops."""
        return [parse_any(one) for one in dict.fromkeys(cut.problem for cut in self.cuts)]


@dataclass(frozen=True)
class ModelReplacement:
    """The effect of a library on a model."""

    path: str
    ops: int
    calls: int
    left: tuple[tuple[str, int, str], ...]

    def to_json(self) -> dict[str, Any]:
        """Return one element of `models`."""
        left = [{"problem": name, "count": n, "reason": why} for name, n, why in self.left]
        return {"file": self.path, "ops": self.ops, "replaced": self.calls,
                "passes": 0, "left": left}  # fmt: skip


def read_model(
    path: str, module: bytes, accuracy: Accuracy = "standard", dims: Sequence[str] = ()
) -> UserModel:
    """Read a model's problems and patterns; `dims` are as `--dim` has them.

    Raises BadInputError if IREE cannot compile it or it has no problem, DimError for wrong dims.
    """
    from tilewise.kernels.dispatches.extraction.extract import cut_module
    from tilewise.kernels.mlir.frontend.read import as_module
    from tilewise.model.reference import COMPILE_S

    sizes, dim = parse_dims(dims)
    try:
        module = as_module(module, splits=True, sizes=sizes | (dim.at(0) if dim else {}))
        found = cut_module(module, COMPILE_S, dim)
        cuts = tuple(cut.with_accuracy(accuracy) for cut in found if cut.problem)
    except (CompilerError, ModuleError) as error:
        raise BadInputError(f"{quoted(path)}: {error}") from error
    if not cuts:
        raise BadInputError(f"{quoted(path)} has no op that is a problem; see tilewise import")
    return UserModel(path, module, cuts)


def replaced_by(made: "ProvenLibrary", model: UserModel) -> ModelReplacement:
    """Return the effect of a library on a model; raise CompilerError if IREE cannot apply it."""
    from tilewise.kernels.dispatches.compilation import calls_in, preprocessed
    from tilewise.model.reference import COMPILE_S

    calls = Counter(calls_in(preprocessed(model.module, made.text, (), COMPILE_S)))
    reasons = made.reasons | {cut.problem: cut.reason for cut in model.cuts if cut.reason}
    reasons |= {str(row.found): row.gain.reason for row in made.rows if row.gain.reason}
    left, free = [], calls.copy()
    for problem, count in Counter(cut.problem for cut in model.cuts).items():
        name = made.names.get(problem, "")
        replaced = min(count, free[name])
        free[name] -= replaced  # another problem may have the same kernel
        if replaced < count:
            otherwise = NO_PATTERN if name else "the library has no kernel for it"
            left.append((problem, count - replaced, reasons.get(problem, otherwise)))
    return ModelReplacement(model.path, len(model.cuts), sum(calls.values()), tuple(left))


def make_library(
    backend: Backend,
    problems: Sequence[Problem | ProblemRange],
    target: str,
    models: Sequence[UserModel] = (),
    cache: CacheMode | None = None,
) -> "ProvenLibrary":
    """Prove each problem's kernel inside IREE; return the library of those that are faster.

    `cache` None prefers hot. Raises MissingError if a problem has no schedule, or no kernel is
    faster.
    """
    from tilewise.search.runner.processors import timing_alone

    of_models = [problem for model in models for problem in model.problems]
    unique = list({problem.key: problem for problem in (*problems, *of_models)}.values())
    canonical, found = _stored(backend, unique, target, cache)
    each = [cut.problem for model in models for cut in model.cuts]
    costs = costs_of_model(backend, resolve(canonical), cache, each) if each else None
    with timing_alone(canonical):
        wanted = [entry_of(problem, stored, costs) for problem, stored in found]
    return library_of(wanted, canonical, models)


def costs_of_model(
    backend: Backend, target: "Target", cache: CacheMode | None, each: Sequence[str]
) -> "LayerTimes":
    """Return times of schedules with cold weights; `each` is the problem of each op."""
    from tilewise.backends.costs import stored_costs
    from tilewise.search.networks.cold_weights import bytes_of_weights, timed_cold
    from tilewise.search.networks.costs import MOST_TIMED_COLD

    stored = stored_costs(backend, target.canonical, cache or "hot", MOST_TIMED_COLD)
    return timed_cold(stored, target, bytes_of_weights(map(largest, each)))


def largest(problem: str) -> Problem:
    """Return a problem, or the last one of a range."""
    found = parse_any(problem)
    return found if isinstance(found, Problem) else found.at(found.sizes[-1])


def library_of(
    wanted: Sequence["LibraryEntry"], canonical: str, models: Sequence[UserModel]
) -> "ProvenLibrary":
    """Return the library of known schedules; raise as `make_library` does."""
    from tilewise.kernels.dispatches.extraction.extract import patterns_of
    from tilewise.search.libraries.library import proven_library

    cuts = patterns_of([cut for model in models for cut in model.cuts])
    try:
        return proven_library(wanted, canonical, _say, cuts)
    except ProofError as error:
        raise MissingError(f"no kernel is served: {error}") from error
    except (KernelsError, RunnerError) as error:
        raise TilewiseError(str(error)) from error


def described(made: "ProvenLibrary", target: str, replaced: Sequence[ModelReplacement]) -> str:
    """Format a library and its effect on models as `--json` prints them."""
    rows = [row.to_json() for row in made.rows]
    found: Json = {
        "flavor": "iree",
        "target": target,
        "problems": [row for row in rows if row["served"]],
        "left_out": [row for row in rows if not row["served"]],
        "passes": [],  # of version 0.1: passes over rows between the problems
        "models": [one.to_json() for one in replaced],
        "script": made.text,
    }
    return json.dumps(found, indent=2) + "\n"


def _stored(
    backend: Backend,
    problems: Sequence[Problem | ProblemRange],
    target: str,
    cache: CacheMode | None,
) -> tuple[str, list[tuple[Problem | ProblemRange, Json]]]:
    """Return the canonical target, and each problem with its stored result."""
    found, missing = [], []
    for problem in problems:
        try:
            found.append((problem, backend.show(problem.canonical, target, cache, match="range")))
        except MissingError:
            missing.append(problem)
    if missing:
        for problem in missing:
            sys.stderr.write(f"tilewise: {problem}: no schedule is stored\n")
        raise MissingError(
            f"{len(missing)} of {len(problems)} problems are not stored; tilewise tune makes them: "
            f"{missing[0]}"
        )
    return found[0][1]["target"], found


def entry_of(
    problem: Problem | ProblemRange, stored: Json, costs: "LayerTimes | None" = None
) -> "LibraryEntry":
    """Return a stored result as an entry of a library; that of a range may contain the problem.

    With constant weights it is the fastest one of `costs`, if there are any.
    """
    from tilewise.kernels.dispatches.executable import LibraryEntry
    from tilewise.kernels.range_schedule import RangeSchedule

    if isinstance(problem, Problem):
        steps = stored["best"]["steps"]
        if costs is not None and problem.has_constant_weights:
            steps = next((list(one.steps) for one in costs.schedules(problem.canonical)), steps)
        return LibraryEntry.of(problem, steps)
    steps = [variant["steps"] for variant in stored["variants"]]
    stored_range = parse_range(stored["problem"])
    whole = RangeSchedule.from_json(stored_range, {**stored, "variants": steps})
    if stored_range == problem:
        return LibraryEntry(problem.smallest, whole)
    at = dict(zip(stored_range.sizes, whole.choice, strict=True))
    sizes = (stored_range.size_of(problem.at(size)) for size in problem.sizes)
    chosen = [whole.variants[at[size]] for size in sizes]
    variants = tuple(dict.fromkeys(chosen))
    choice = tuple(map(variants.index, chosen))
    return LibraryEntry(problem.smallest, RangeSchedule(problem, variants, choice))


def _say(row: "KernelRow") -> None:
    """Report left-out problems always, and gains on a terminal."""
    if row.gain.reason:
        sys.stderr.write(f"tilewise: left out: {row.problem}: {row.gain.reason}\n")
    elif sys.stderr.isatty():
        sys.stderr.write(f"tilewise: {row.problem}: {row.gain.ratio or 1:.2f}x IREE alone\n")
