"""An object in this process, called as C calls it."""

import ctypes
from collections.abc import Mapping

from tilewise.kernels.native.jit.loading import Loaded
from tilewise.kernels.native.jit.object_code import ObjectCode
from tilewise.kernels.native.objects.interface import Interface


class LoadedObject:
    """The functions of an object file.

    Args:
        interface: what the file says that it has.
        data: the file.
    """

    def __init__(self, interface: Interface, data: bytes) -> None:
        self.interface = interface
        self._owner = Loaded(ObjectCode(interface.functions, data))
        addresses = dict(zip(interface.functions, self._owner.addresses, strict=True))
        pointers = [ctypes.c_void_p] * len(interface.arguments)
        name, integer = interface.name, ctypes.c_int
        self._supported = ctypes.CFUNCTYPE(integer)(addresses[f"{name}_supported"])
        self._run = ctypes.CFUNCTYPE(integer, *pointers)(addresses[name])
        self._part = ctypes.CFUNCTYPE(integer, *pointers, ctypes.c_int64)(addresses[f"{name}_part"])
        if interface.weights:
            prepare = addresses[f"{name}_prepare"]
            self._prepare = ctypes.CFUNCTYPE(integer, *[ctypes.c_void_p] * 2)(prepare)

    def is_supported(self) -> bool:
        """Whether it finds here what it needs."""
        return bool(self._supported())

    def prepare(self, weights: int, packed: int) -> int:
        """Make constant weights ready; the return code."""
        return int(self._prepare(weights, packed))

    def run(self, addresses: Mapping[str, int]) -> int:
        """Compute all; the return code.

        Args:
            addresses: by the names of the arguments.
        """
        return int(self._run(*self._in_order(addresses)))

    def run_part(self, addresses: Mapping[str, int], part: int) -> int:
        """Compute one part; the return code."""
        return int(self._part(*self._in_order(addresses), part))

    def _in_order(self, addresses: Mapping[str, int]) -> list[int]:
        return [addresses[argument.name] for argument in self.interface.arguments]
