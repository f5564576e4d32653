"""A runner's child in which every peer is absent, and the reason is its environment."""

import json
import os

from tilewise.search.runner.child.compiler import answer_all
from tilewise.search.runner.protocol import Message, PeerReply, Ready, Reply


def answer(_state: bool | None, request: Message) -> tuple[bool, Reply]:
    if request["do"] == "setup":
        return True, Ready()
    return True, PeerReply(absent=json.dumps(dict(os.environ)))


if __name__ == "__main__":
    answer_all(answer)
