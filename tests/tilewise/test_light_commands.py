import subprocess
import sys

import pytest

PROBLEM = "matmul:m=64,n=48,k=32,dtype=f32"
HEAVY = ("alembic", "fastapi", "httpx", "iree", "numba", "numpy", "optuna", "rich", "uvicorn")
PROGRAM = f"""
import sys
from tilewise.cli import main
code = main(sys.argv[1:])
print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)
sys.exit(code)
"""


@pytest.mark.full
@pytest.mark.parametrize("command", ["show", "trials", "script"])
def test_an_answer_from_the_store_loads_nothing_heavy(command: str, tuned: str) -> None:
    arguments = [command, PROBLEM, "--db", tuned]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1] == "[]"
