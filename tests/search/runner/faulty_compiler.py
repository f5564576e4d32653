"""A compiling child that hangs or crashes over chosen register tiles, and notes what it was asked.

The rows of the register step choose the fault; any other schedule is only noted.
"""

import ctypes
import os
import time
from typing import Any

from tests.search.registers import register_of
from tilewise.kernels.errors import LoweringError
from tilewise.kernels.schedule import Schedule
from tilewise.search.runner.child.compiler import Compiler, answer_all
from tilewise.search.runner.protocol import CompileReply

HANG, CRASH, REFUSE = 2, 3, 6


class FaultyCompiler(Compiler):
    def compile(self, steps: Any) -> CompileReply:
        rows = register_of(Schedule.from_json(steps)).rows
        if rows == HANG:
            time.sleep(3600)
        if rows == CRASH:
            ctypes.string_at(0)
        if rows == REFUSE:
            raise LoweringError("no such instruction")
        return CompileReply(1000.0 + os.getpid())


if __name__ == "__main__":
    answer_all(FaultyCompiler, {"compile": FaultyCompiler.compile}.__getitem__)
