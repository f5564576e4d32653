import re
import subprocess
import sys
from pathlib import Path

import pytest

from tilewise.kernels.system.children import child_environment

ROOT = Path(__file__).parents[2]


@pytest.mark.full
def test_a_study_of_ones_own_finds_a_schedule() -> None:
    done = subprocess.run(
        [sys.executable, "examples/own_study.py"],
        cwd=ROOT,
        env=child_environment(),
        capture_output=True,
        text=True,
        check=True,
        timeout=240,
    )
    assert "register rows=" in done.stdout
    told = re.search(r"([\d.]+) us, ([\d.]+) GFLOP/s", done.stdout)
    assert told and float(told[2]) > 0
    assert len(re.findall(r"Trial \d+ finished", done.stderr)) == 24
