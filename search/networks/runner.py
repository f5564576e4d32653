"""A plan as a Python module that a user saves and imports; it needs this package to run."""

import json
from typing import Any

_TEXT = '''"""A network as it was planned: `load` gives the object that runs it.

It needs Tilewise, a machine of the plan's target, and the module that was planned, whose weights
it reads:

    network = load("model.mlir")
    (result,) = network.run(image)
"""

import hashlib
import json
from os import PathLike
from pathlib import Path

from tilewise.search.networks.plan import Plan
from tilewise.search.networks.running.network import Network

SHA256 = "$sha256"
"""Of the module that was planned."""

PLAN = json.loads(r\'\'\'
$plan
\'\'\')
"""`tilewise/plan/1`."""


def load(module: "bytes | str | PathLike[str]") -> Network:
    """The network of the module that was planned.

    Args:
        module: its path, or its text or bytecode as bytes.

    Raises:
        OSError: there is no such file.
        ValueError: it is another module.
        tilewise.search.errors.NetworkError: an op does not run here, or on another machine.
    """
    content = module if isinstance(module, bytes) else Path(module).read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if found != SHA256:
        raise ValueError(f"the module's SHA-256 is {found}, and that of the module that was "
                         f"planned is {SHA256}; load that one, or plan this one")
    return Network.load(Plan.from_json(PLAN), content)
'''


def runner_text(plan: dict[str, Any], sha256: str) -> str:
    """The text of a module with a plan and with `load`, which gives its network.

    Args:
        plan: `tilewise.search.networks.plan.Plan.to_json`.
        sha256: of the module that was planned, hex; `load` refuses another one.
    """
    # JSON is ASCII here, and without apostrophes no text in it ends the literal.
    told = json.dumps(plan, indent=1, allow_nan=False).replace("'", "\\u0027")
    return _TEXT.replace("$sha256", sha256).replace("$plan", told)
