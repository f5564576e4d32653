"""A killable child process that proves something: started, watched, and its reply read."""

import re
from dataclasses import replace
from typing import Any

from tilewise.kernels.mlir.proof.found import Found
from tilewise.kernels.system.limited_child import Ended, run_limited
from tilewise.kernels.system.typed_json import from_json

_WARNED = re.compile(r"^at (loc\(.*)$", re.MULTILINE)
_CONTEXT = "see current operation"


def run_child(
    request: dict[str, Any], module: str = "tilewise.kernels.mlir.proof.child.prove"
) -> Found:
    """Send `request` to a fresh child that runs `module`; its reply, or what became of it.

    Raises:
        LimitError: the request's `seconds` or `memory_bytes` cannot be a limit.
    """
    ended = run_limited(request, module)
    if ended.reply is None:
        return Found(failure=ended.failure, message=ended.message)
    return _read(ended)


def _read(ended: Ended) -> Found:
    warned = [text for text in _WARNED.findall(ended.printed) if _CONTEXT not in text]
    try:
        return replace(from_json(Found, ended.reply), warnings=tuple(dict.fromkeys(warned)))
    except ValueError:
        return Found(failure="crash", message="the child ended without a reply that can be read")
