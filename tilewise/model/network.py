"""Run plans of a model as native networks and in IREE, and compare their results."""

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tilewise.errors import TilewiseError, bad_input
from tilewise.kernels.errors import CompilerError, ModuleError
from tilewise.kernels.mlir.frontend.program import ModuleProgram
from tilewise.kernels.mlir.frontend.read import as_module, read_program
from tilewise.kernels.mlir.iree.compiler import compile_file
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.quoting import columns, duration
from tilewise.kernels.system.typed_json import from_json
from tilewise.model.measuring import LIMITS, RefusedRunError, reply_of
from tilewise.model.reference import COMPILE_S, FILE, check_entry, compile_reference
from tilewise.model.report import overwritten, tolerance
from tilewise.model.signature import declarations_in
from tilewise.search.errors import NetworkError
from tilewise.search.networks.lowering.network import LoweredNetwork, check_ops
from tilewise.search.networks.plan import Plan
from tilewise.search.networks.standalone.files import files_of

ROUNDS, SECONDS = 15, 900.0


@dataclass(frozen=True)
class LayerTime:
    """The time of a part of a network."""

    label: str
    node: int | None
    time_us: float


@dataclass(frozen=True)
class Ran:
    """The outcome of a run.

    Attributes:
        kept: the index of the plan whose network was the fastest; the other fields describe it.
        parts: each layer, pass and copy timed alone, in order.
        times, iree_times: seconds of whole runs, the network's and IREE's in turn.
        other_times: of the slower plan, in the same rounds; empty with one plan.
        deviation, iree_deviation: relative rms error against the model with copied arguments.
        buffers_bytes: activations and scratch if no buffers shared memory.
        weights_bytes: what is packed or kept when the network is loaded.
        iree_overwrites: positions of the arguments that IREE's own code overwrites.
    """

    kept: int
    parts: tuple[LayerTime, ...]
    times: tuple[float, ...]
    iree_times: tuple[float, ...]
    other_times: tuple[float, ...]
    deviation: float
    arena_bytes: int
    buffers_bytes: int
    weights_bytes: int
    iree_deviation: float = 0.0
    iree_overwrites: tuple[int, ...] = ()

    @property
    def time_ms(self) -> float:
        """Median time of the network."""
        return 1e3 * median(self.times)

    @property
    def iree_ms(self) -> float:
        """Median time of IREE."""
        return 1e3 * median(self.iree_times)

    @property
    def other_ms(self) -> float | None:
        """Median time of the slower plan; None with one plan."""
        return 1e3 * median(self.other_times) if self.other_times else None


@dataclass(frozen=True)
class RunnableModel:
    """A model that can run as a network, as a module with a program, and as IREE compiles it."""

    name: str
    given: bytes
    module: bytes
    program: ModuleProgram
    preprocessed: str


def runnable(name: str, given: bytes) -> RunnableModel:
    """Read a model with its weights; raise BadInputError if it cannot run as a network."""
    with bad_input(name, NetworkError, ModuleError):
        module = as_module(given)
        program = read_program(module)
        check_ops(program)
    return RunnableModel(name, given, module, program, check_entry(name, module, None))


def ran(plans: Sequence[Plan], source: RunnableModel) -> tuple[Ran, dict[str, bytes]]:
    """Compile the plans of a model, run them and IREE on random arguments, compare and time.

    Returns the outcome and the files of the network that it keeps. Raises BadInputError for an
    unsupported op, TilewiseError if IREE or the run fails.
    """
    with bad_input(source.name, NetworkError):
        lowered = [LoweredNetwork(plan, source.program) for plan in plans]
        files = [files_of(one, source.given) for one in lowered]
    with tempfile.TemporaryDirectory() as folder:
        model, code, copied = (Path(folder) / name for name in ("model.mlir", "model.vmfb", FILE))
        model.write_bytes(source.module)
        try:
            compile_file(model, code, (), COMPILE_S)
            has_copies = compile_reference(model, copied, source.preprocessed, COMPILE_S)
        except CompilerError as error:
            raise TilewiseError(f"IREE does not compile {source.name}: {error}") from error
        networks = []
        for number, (one, held) in enumerate(zip(lowered, files, strict=True)):
            place = Path(folder) / f"network{number}"
            place.mkdir()
            for name, data in held.items():
                (place / name).write_bytes(data)
            sizes = {"arena_bytes": one.placed.size, "buffers_bytes": one.placed.apart,
                     "weights_bytes": len(one.weights)}  # fmt: skip
            networks.append({"folder": str(place), "sizes": sizes})
        request = {"networks": networks, "code": str(code),
                   "reference": str(copied if has_copies else code),
                   "declarations": declarations_in(source.preprocessed), **LIMITS,
                   "rounds": ROUNDS, "seconds": SECONDS * lowered[0].target.threads}  # fmt: skip
        with bad_input(source.name, RefusedRunError):
            run = from_json(Ran, reply_of(request, "the network does not run"))
    return run, files[run.kept]


def allowed(plan: Plan) -> float:
    """Return the relative deviation that two correct results may have, given the layers' depths."""
    problems: Iterable[str | None] = (node.problem for node in plan.nodes)
    counted = ((parse_problem(one), 1) for one in problems if one is not None)
    return tolerance(counted, (one.dtype for one in plan.tensors if one.is_result))


MIB = 1 << 20


def folder_text(folder: str, files: Mapping[str, bytes], run: Ran, allowed: float) -> str:
    """Describe what was written."""
    size = sum(map(len, files.values())) / MIB
    return (
        f"module    {folder}: {len(files)} files, {size:.2f} MiB\n"
        f"proven    {run.deviation:.1e} from the model's results, {allowed:.1e} is allowed, "
        f"{run.time_ms:.3f} ms\n"
    )


CHOSEN, OWN = "as chosen", "model's layouts"
_PART_HEAD = ("node", "part", "time", "share")


def run_text(run: Ran, allowed: float) -> str:
    """Describe each part, the whole and IREE, memory use, and the deviation."""
    lines = [*_parts(run), "", *_whole(run, allowed)]
    return "".join(f"{line.rstrip()}\n" for line in lines)


def _parts(run: Ran) -> list[str]:
    total = sum(part.time_us for part in run.parts)
    rows = [
        ("" if part.node is None else str(part.node), part.label, duration(part.time_us),
         f"{100 * part.time_us / total:.1f}%")
        for part in run.parts
    ]  # fmt: skip
    return columns([_PART_HEAD, *rows], right=(0, 2, 3))


def _whole(run: Ran, allowed: float) -> Iterator[str]:
    yield f"the network     {run.time_ms:.3f} ms"
    if run.other_ms is not None:
        other = OWN if run.kept == 0 else CHOSEN
        yield f"{other:<15} {run.other_ms:.3f} ms   {run.other_ms / run.time_ms:.2f}x, slower"
    yield f"IREE alone      {run.iree_ms:.3f} ms   {run.iree_ms / run.time_ms:.2f}x"
    yield (f"activations     {run.arena_bytes / MIB:.2f} MiB; {run.buffers_bytes / MIB:.2f} MiB "
           "if no buffer shared memory with another")  # fmt: skip
    yield f"weights         {run.weights_bytes / MIB:.2f} MiB"
    if not run.iree_deviation <= allowed:
        why = overwritten(run.iree_overwrites)
        yield (f"IREE is wrong   {run.iree_deviation:.1e} from the model's results"
               f"{': it' if why else ''}{why}")  # fmt: skip
    yield f"apart           {run.deviation:.1e} from the model's results; {allowed:.1e} is allowed"
