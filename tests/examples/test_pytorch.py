import subprocess
import sys
from pathlib import Path

import pytest

from tilewise.kernels.system.children import child_environment
from tilewise.requirements import is_present

ROOT = Path(__file__).parents[2]


@pytest.mark.full
@pytest.mark.skipif(not is_present("torch"), reason="the extra `torch` is not installed")
def test_a_small_network_uses_kernels(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "examples/pytorch/compile_model.py", "--trials", "2", "--size", "14"],
        cwd=ROOT,
        env=child_environment(
            TILEWISE_DB=f"sqlite:///{tmp_path}/results.db",
            TILEWISE_CACHE_DIR=str(tmp_path / "cache"),
            OMP_NUM_THREADS="1",
        ),
        capture_output=True,
        text=True,
        check=True,
        timeout=240,
    )
    lines = done.stdout.splitlines()
    assert [line.partition(":")[0] for line in lines[:3]] == ["conv2d", "conv2d", "matmul"]
    assert float(lines[3].split()[1]) < 1e-5
    assert lines[4].endswith("of 3 ops use a kernel") and len(lines) == 8
    assert all(" us " in line for line in lines[5:]), "each has a kernel, and was compared"
