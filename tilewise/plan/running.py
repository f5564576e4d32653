"""Plans of one model run as networks beside IREE's own code of it, and timed in turn.

They run in a child process, which compiled code may bring down.
"""

import json
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tilewise.errors import BadInputError, TilewiseError
from tilewise.kernels.errors import CompilerError, ModuleError
from tilewise.kernels.mlir.frontend.read import as_module, read_program
from tilewise.kernels.mlir.iree.compiler import SHORT_VALUES, compile_file, compiled_text
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.system.limited_child import run_limited
from tilewise.kernels.system.typed_json import from_json
from tilewise.model.entries import check_entry
from tilewise.model.reference import FILE, compile_reference
from tilewise.model.signature import declarations_in
from tilewise.model.tolerance import tolerance
from tilewise.search.errors import NetworkError
from tilewise.search.networks.plan import Plan
from tilewise.search.networks.running.network import LayerTime, check, check_ops

CHILD = "tilewise.plan.child"
COMPILE_S, RUN_S = 900.0, 900.0
MEMORY_BYTES = 32 << 30
ROUNDS = 15


@dataclass(frozen=True)
class Ran:
    """What came of a run.

    Attributes:
        kept: the number of the plan whose network was the fastest: all that follows is of it.
        parts: each layer, pass and copy by itself, in order.
        times, iree_times: seconds of runs of the whole, ours and IREE's in turn.
        other_times: of the slower plan, in the same rounds; empty with one plan.
        deviation: of our results from those of the model with its arguments copied: rms of the
            difference over rms.
        arena_bytes: of all activations and scratch memory.
        buffers_bytes: what they would take if none shared memory with another.
        weights_bytes: of what is packed or kept when a network is loaded.
        iree_deviation: of the results of IREE's own code.
        iree_overwrites: positions of the arguments that IREE's own code writes over.
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
        """Median of ours."""
        return 1e3 * median(self.times)

    @property
    def iree_ms(self) -> float:
        """Median of IREE's."""
        return 1e3 * median(self.iree_times)

    @property
    def other_ms(self) -> float | None:
        """Median of the slower plan; None with one plan."""
        return 1e3 * median(self.other_times) if self.other_times else None


def check_runs(name: str, module: bytes, *, beside_iree: bool) -> None:
    """Refuse a model whose network does not run here, before anything is tuned for it.

    Args:
        name: of the model's file.
        module: text or bytecode, or an ONNX model.
        beside_iree: whether IREE's own code of it is to run, too.

    Raises:
        BadInputError: an op, a weight, or a type of its function is none that runs here.
    """
    try:
        module = as_module(module)
        check_ops(read_program(module))
    except (NetworkError, ModuleError) as error:
        raise BadInputError(f"{name}: {error}") from error
    if beside_iree:
        check_entry(name, module, None)


def ran(plans: Sequence[Plan], source: Path) -> Ran:
    """Load plans of a module, run them on random arguments, compare and time.

    Args:
        plans: of the module, one or two.
        source: its file.

    Raises:
        BadInputError: an op of the model is none that is run here.
        TilewiseError: IREE does not compile the model, or the run failed.
    """
    try:
        module = as_module(source.read_bytes())
        program = read_program(module)
        for plan in plans:
            check(plan, program)  # before IREE works on it for minutes
    except (NetworkError, ModuleError) as error:
        raise BadInputError(f"{source.name}: {error}") from error
    with tempfile.TemporaryDirectory() as folder:
        names = ("model.mlir", "model.vmfb", "plans.json")
        model, code, written = (Path(folder) / name for name in names)
        model.write_bytes(module)
        written.write_text(json.dumps([plan.to_json() for plan in plans]), encoding="utf-8")
        copied = Path(folder) / FILE
        try:
            compile_file(model, code, (), COMPILE_S)
            seen = compiled_text(module, "preprocessing", SHORT_VALUES, COMPILE_S)
            has_copies = compile_reference(model, copied, seen, COMPILE_S)
        except CompilerError as error:
            raise TilewiseError(f"IREE does not compile {source.name}: {error}") from error
        request = {"plans": str(written), "module": str(model), "code": str(code),
                   "reference": str(copied if has_copies else code),
                   "declarations": declarations_in(seen), "rounds": ROUNDS, "seconds": RUN_S,
                   "memory_bytes": MEMORY_BYTES}  # fmt: skip
        ended = run_limited(request, CHILD)
    if ended.reply is None:
        raise TilewiseError(f"the network does not run: {ended.message}")
    if "refused" in ended.reply:
        raise BadInputError(f"{source.name}: {ended.reply['refused']}")
    return from_json(Ran, ended.reply)


def allowed(plan: Plan) -> float:
    """The relative deviation that the depth of a plan's layers allows two right results."""
    problems: Iterable[str | None] = (node.problem for node in plan.nodes)
    return tolerance((parse_problem(one), 1) for one in problems if one is not None)
