"""Files that tools read, and imports that stay light."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
WITH_HTTPX_ALONE = """
import sys, httpx
with httpx.Client():  # which loads what httpx loads late
    known = {name.partition(".")[0] for name in sys.modules} | sys.stdlib_module_names
class Refused:
    def find_spec(self, name, *_):
        if name.partition(".")[0] not in (*known, "tilewise"):
            raise ImportError(f"{name} is not installed with the client")
sys.meta_path.insert(0, Refused())
import tilewise.cli, tilewise.client, tilewise.kernels.schedule
answers = httpx.MockTransport(lambda _: httpx.Response(200, json={"tokens": []}))
with tilewise.client.Client("http://service", answers) as client:
    assert client.tokens() == []
"""


def test_client_and_command_line_import_httpx_alone() -> None:
    subprocess.run([sys.executable, "-c", WITH_HTTPX_ALONE], cwd=ROOT, check=True)


def test_constraints_are_names_and_versions_alone() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", pin) for pin in pins)


def test_ci_runs_the_test_command_of_the_readme() -> None:
    assert "make test" in (ROOT / ".ci" / "run").read_text()
    assert "make test" in (ROOT / "README.md").read_text()
