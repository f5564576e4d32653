"""What both clients ask of MLIR modules; each has the methods of one of the classes here."""

from tilewise.client.calls import Calls, OnWait
from tilewise.client.carriers import AsyncCarrier, Carrier
from tilewise.client.found import ImportedModule


class Modules:
    """Methods of `Client`."""

    _calls: Calls
    _carrier: Carrier

    def import_module(self, module: str | bytes, on_wait: OnWait | None = None) -> ImportedModule:
        """The problems of an MLIR module, text or bytecode, waited for as `kernel` is."""
        return self._carrier.run(self._calls.import_module(module, on_wait))


class AsyncModules:
    """Methods of `AsyncClient`."""

    _calls: Calls
    _carrier: AsyncCarrier

    async def import_module(
        self, module: str | bytes, on_wait: OnWait | None = None
    ) -> ImportedModule:
        """The problems of an MLIR module, text or bytecode, waited for as `kernel` is."""
        return await self._carrier.run(self._calls.import_module(module, on_wait))
