"""Measurements in a process of their own, which may hang or die without the others."""

import json
import subprocess
import sys
from typing import Any

Row = dict[str, Any]


def measured_apart(module: str, request: Row, limit_s: float) -> Row:
    """What `python -m MODULE --one` answers to a request as JSON; else `failure` says why not."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", module, "--one"],
            input=json.dumps(request),
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"failure": f"no answer within {limit_s:.0f} s"}
    if done.returncode:
        return {"failure": (done.stderr.strip().splitlines() or ["no reason given"])[-1]}
    answer: Row = json.loads(done.stdout)
    return answer
