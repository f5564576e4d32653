"""A plan's network as a folder that NumPy alone runs, and its proof in a child process."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tilewise.errors import BadInputError, TilewiseError
from tilewise.kernels.errors import ModuleError
from tilewise.kernels.system.limited_child import run_limited
from tilewise.kernels.system.typed_json import from_json
from tilewise.search.errors import NetworkError
from tilewise.search.networks.plan import Plan

CHILD = "tilewise.plan.folder_child"
RUN_S, MEMORY_BYTES, ROUNDS = 900.0, 32 << 30, 15
MIB = 1 << 20


@dataclass(frozen=True)
class Beside:
    """A folder's network beside the one in our own process.

    Attributes:
        is_equal: whether both computed the same bits.
        times, own_times: seconds of runs of the folder's, and of our own, in turn.
    """

    is_equal: bool
    times: tuple[float, ...]
    own_times: tuple[float, ...]

    @property
    def speed(self) -> float:
        """The folder's over our own."""
        return median(self.own_times) / median(self.times)


def folder_files(plan: Plan, module: bytes, name: str) -> dict[str, bytes]:
    """The files of a plan's network.

    Args:
        plan: of the module.
        module: text or bytecode.
        name: of its file, for errors.

    Raises:
        BadInputError: an op of the model is none that is run here.
    """
    from tilewise.search.networks.standalone.files import runner_files

    try:
        return runner_files(plan, module)
    except (NetworkError, ModuleError) as error:
        raise BadInputError(f"{name}: {error}") from error


def beside(folder: Path, source: Path) -> Beside:
    """Run a written folder beside the network of the plan in it.

    Args:
        folder: as `folder_files` has it.
        source: the module's file.

    Raises:
        TilewiseError: it does not run, or computes something else.
    """
    request = {"folder": str(folder.absolute()), "module": str(source.absolute()),
               "rounds": ROUNDS, "seconds": RUN_S, "memory_bytes": MEMORY_BYTES}  # fmt: skip
    ended = run_limited(request, CHILD)
    if ended.reply is None:
        raise TilewiseError(f"the folder {folder} does not run: {ended.message}")
    if "refused" in ended.reply:
        raise TilewiseError(f"the folder {folder} does not run: {ended.reply['refused']}")
    found = from_json(Beside, ended.reply)
    if not found.is_equal:
        raise TilewiseError(f"the folder {folder} computes something else; do not use it")
    return found


def folder_text(folder: str, files: Mapping[str, bytes], found: Beside) -> str:
    """What was written, for people."""
    size = sum(map(len, files.values())) / MIB
    return (
        f"module    {folder}: {len(files)} files, {size:.2f} MiB\n"
        f"proven    the same bits as of the network here, {1e3 * median(found.times):.3f} ms, "
        f"{found.speed:.2f} of its speed\n"
    )
