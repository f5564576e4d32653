"""What a child can do to its parent: `run_child` runs this module, the request says what."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tilewise.kernels.mlir.proof.child.stages import serve
from tilewise.kernels.mlir.proof.proof import ProofReply

FOR_EVER = "import time; time.sleep(600)"


def sleep(request: dict[str, Any]) -> ProofReply:
    """Wait without using the processor."""
    time.sleep(request["for_s"])
    return ProofReply(message="slept")


def beget(request: dict[str, Any]) -> ProofReply:
    """Start a process that stays, write down its pid, and wait."""
    grandchild = subprocess.Popen([sys.executable, "-c", FOR_EVER])
    Path(request["path"]).write_text(str(grandchild.pid))
    return sleep(request)


def speak(request: dict[str, Any]) -> ProofReply:
    """Print without end, as native code does; what is written last is never reached."""
    line = b"x" * 65535 + b"\\n"
    while True:
        os.write(request["to"], line)


def tell(request: dict[str, Any]) -> ProofReply:
    """Reply with so many bytes."""
    return ProofReply(message="x" * request["bytes"])


def leave(_request: dict[str, Any]) -> ProofReply:
    """End well, without a reply."""
    os._exit(0)


def answer(request: dict[str, Any]) -> ProofReply:
    """Do what is asked for."""
    reply: ProofReply = globals()[request["do"]](request)
    return reply


if __name__ == "__main__":
    serve(answer)
