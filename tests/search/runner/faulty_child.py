"""A runner's child that misbehaves for chosen register tiles, as real candidates might.

The rows of the register step choose the fault; any other schedule runs as it should.
"""

import ctypes
import time
from typing import Any

from tests.search.registers import register_of
from tilewise.kernels.schedule import Schedule
from tilewise.search.runner.child.__main__ import answering
from tilewise.search.runner.child.compiler import answer_all
from tilewise.search.runner.child.session import Session

HANG, CRASH, EAT, WRONG, RAISE, EXIT = 2, 3, 4, 5, 6, 7
EATEN = 1 << 30  # bytes, held until somebody sees it


class FaultySession(Session):
    """A session whose candidates fail by their register rows."""

    def call(self, steps: Any) -> Any:
        rows = register_of(Schedule.from_json(steps)).rows
        if rows == HANG:
            time.sleep(3600)
        if rows == CRASH:
            ctypes.string_at(0)
        if rows == EAT:
            hoard = [b"x" * (64 << 20) for _ in range(EATEN >> 26)]
            time.sleep(3600 + len(hoard))
        if rows == RAISE:
            raise RuntimeError("no such luck")
        if rows == EXIT:
            raise SystemExit(7)
        call = super().call(steps)
        return self.spoiled(call) if rows == WRONG else call

    def spoiled(self, call: Any) -> Any:
        """The call, and one element of its result off by one."""

        def run(repeat: int) -> None:
            call(repeat)
            self.operands["C"][0, 0] += 1

        return run


if __name__ == "__main__":
    answer_all(FaultySession, answering)
