"""What the runner and its child say to each other: JSON lines, as typed helpers."""

import json
from typing import IO, Any

Message = dict[str, Any]


def write_message(stream: IO[bytes], message: Message) -> None:
    """Send one message and flush."""
    stream.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")
    stream.flush()


def read_message(line: bytes) -> Message:
    """Read one line; ValueError when it is not an object."""
    message = json.loads(line)
    if not isinstance(message, dict):
        raise ValueError(f"expected an object, got {line[:80]!r}")
    return message
