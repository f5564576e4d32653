"""LLVM's view of this processor, kept in the cache folder between processes.

To load LLVM takes longer than all else that looking up a stored schedule does. What is kept holds
for one version of llvmlite and one processor, as the system describes it; elsewhere LLVM is asked.
"""

import hashlib
import json
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from tilewise.kernels.errors import CacheError
from tilewise.kernels.system.cache_folder import require_cache_dir
from tilewise.kernels.system.regular_file import read_regular
from tilewise.kernels.system.typed_json import from_json, to_json

CPUINFO = Path("/proc/cpuinfo")
_TELLING = ("vendor_id", "cpu family", "model", "model name", "stepping", "microcode", "flags",
            "CPU implementer", "CPU variant", "CPU part", "CPU revision", "Features")  # fmt: skip


@dataclass(frozen=True)
class Processor:
    """A processor by LLVM's names.

    Attributes:
        key: what the names hold for; empty where nobody can tell.
        name: such as `znver5`.
        features: the instruction-set extensions present.
    """

    key: str
    name: str
    features: tuple[str, ...]


def this_processor() -> Processor:
    """The processor that this process runs on."""
    key = _key()
    kept = _kept(key) if key else None
    if kept is not None:
        return kept
    found = _asked(key)
    if key:
        _keep(found)
    return found


def _asked(key: str) -> Processor:
    import llvmlite.binding as llvm

    features = sorted(name for name, on in llvm.get_host_cpu_features().items() if on)
    return Processor(key, llvm.get_host_cpu_name(), tuple(features))


def _key() -> str:
    """What tells this processor and LLVM from others; empty where the system does not say."""
    try:
        first = CPUINFO.read_text().partition("\n\n")[0]
        version = metadata.version("llvmlite")
    except (OSError, UnicodeDecodeError, metadata.PackageNotFoundError):
        return ""
    told = [line for line in first.splitlines() if line.partition(":")[0].strip() in _TELLING]
    if not told:
        return ""
    return hashlib.sha256("\n".join([version, *told]).encode()).hexdigest()


def _path() -> Path:
    return require_cache_dir() / "processor.json"


def _kept(key: str) -> Processor | None:
    try:
        found = from_json(Processor, json.loads(read_regular(_path())))
    except (CacheError, OSError, ValueError):
        return None
    return found if found.key == key and found.name else None


def _keep(found: Processor) -> None:
    """Keep what LLVM said; where that cannot be done it is asked again."""
    try:
        path = _path()
        new = path.with_suffix(f".{found.key[:8]}.new")
        new.write_text(json.dumps(to_json(found)))
        new.replace(path)
    except (CacheError, OSError):
        return
