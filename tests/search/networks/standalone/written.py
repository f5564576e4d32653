"""Folders that are written, and children that run them alone."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tilewise.search.networks.lowering.network import LoweredNetwork
from tilewise.search.networks.standalone.files import files_of

ALONE = """
import sys
sys.path[:0] = {path!r}
import numpy, net
try:
    import numba
except ImportError:
    pass
else:
    sys.exit("this child finds Numba")
network = net.load(mapped={mapped})
results = [network.run(numpy.load({given!r}))[0] for _ in range({runs})]
assert all(numpy.array_equal(results[0], one) for one in results)
numpy.save({made!r}, results[0])
found = {{name.partition(".")[0] for name in sys.modules}}
assert not found & {{"tilewise", "llvmlite"}}, found
"""


MODULE = b"a module"


@dataclass(frozen=True)
class Drawn:
    """A network with its folder, an argument, and its result."""

    network: LoweredNetwork
    folder: Path
    argument: np.ndarray
    expected: np.ndarray


def written(network: LoweredNetwork, folder: Path) -> Path:
    made = folder / "net"
    made.mkdir()
    for name, data in files_of(network, MODULE).items():
        (made / name).write_bytes(data)
    return made


def run_alone(
    folder: Path, argument: np.ndarray, *, mapped: bool = False, runs: int = 1, text: str = ALONE
) -> np.ndarray:
    """The result of a child that finds the folder and NumPy, and no other package."""
    packages = folder.parent / "packages"
    if not packages.exists():
        packages.mkdir()
        site = Path(np.__file__).parent.parent
        for name in ("numpy", "numpy.libs"):
            if (site / name).exists():
                (packages / name).symlink_to(site / name)
    given, made = (str(folder.parent / name) for name in ("given.npy", "made.npy"))
    np.save(given, argument)
    path = [str(folder.parent), str(packages)]
    text = text.format(path=path, mapped=mapped, given=given, made=made, runs=runs)
    ended = subprocess.run([sys.executable, "-I", "-S", "-c", text], capture_output=True,
                           text=True, timeout=60, check=False)  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == ""
    found: np.ndarray = np.load(made)
    return found
