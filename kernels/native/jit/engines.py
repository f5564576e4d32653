"""Object code in this process, by engines of LLVM's that hold a few objects each."""

from threading import Lock
from typing import Any

import llvmlite.binding as llvm

from tilewise.kernels.native.jit.object_code import ObjectCode, new_machine

OBJECTS_OF_AN_ENGINE = 16


class Loaded:
    """Functions of an object file in this process.

    Attributes:
        addresses: of the functions, in their order; they hold while this object lives.
    """

    def __init__(self, made: ObjectCode) -> None:
        with _loading:
            self._engine = engine = _engines.give()
            engine.add_object_file(llvm.ObjectFileRef.from_data(made.code))
            engine.finalize_object()
            self.addresses = [int(engine.get_function_address(f)) for f in made.functions]
        if not all(self.addresses):
            raise RuntimeError(f"not all of {', '.join(made.functions)} are in the object code")


class _Engines:
    """Engines of LLVM's, each for a few objects: the first takes 1.3 ms, any other 0.05.

    An engine that has its objects, and the memory of all of them, goes with the last.
    """

    def __init__(self) -> None:
        self._engine: Any = None
        self._given = 0

    def give(self) -> Any:
        """An engine for one more object."""
        if self._given % OBJECTS_OF_AN_ENGINE == 0:
            self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), new_machine())
        self._given += 1
        return self._engine


_engines, _loading = _Engines(), Lock()
