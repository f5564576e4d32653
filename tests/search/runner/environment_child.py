"""A runner's child in which every peer is absent, and the reason is its environment."""

import json
import os

from tilewise.search.runner.child.compiler import answer_all
from tilewise.search.runner.protocol import PeerReply


def absent(_setup: dict[str, object], **_request: object) -> PeerReply:
    return PeerReply(absent=json.dumps(dict(os.environ)))


if __name__ == "__main__":
    answer_all(dict, {"peer": absent}.__getitem__)
