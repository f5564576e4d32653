"""What both clients ask of MLIR modules; each has the methods of one of the classes here."""

from typing import Unpack

from tilewise.client.calls import Calls, ModelOptions, OnWait
from tilewise.client.carriers import AsyncCarrier, Carrier
from tilewise.client.found import ImportedModule, Model


class Modules:
    """Methods of `Client`."""

    _calls: Calls
    _carrier: Carrier

    def import_module(self, module: str | bytes, on_wait: OnWait | None = None) -> ImportedModule:
        """The problems of an MLIR module, text or bytecode, waited for as `kernel` is."""
        return self._carrier.run(self._calls.import_module(module, on_wait))

    def submit_model(
        self, module: str | bytes, on_wait: OnWait | None = None, **options: Unpack[ModelOptions]
    ) -> Model:
        """Ask for a search of every problem of an MLIR module; it is read as `import_module` does.

        Problems whose results are stored get no job.
        """
        return self._carrier.run(self._calls.submit_model(module, on_wait, options))

    def model(self, model_id: int) -> Model:
        """One model, with the state of each of its problems."""
        return self._carrier.run(self._calls.model(model_id))


class AsyncModules:
    """Methods of `AsyncClient`."""

    _calls: Calls
    _carrier: AsyncCarrier

    async def import_module(
        self, module: str | bytes, on_wait: OnWait | None = None
    ) -> ImportedModule:
        """The problems of an MLIR module, text or bytecode, waited for as `kernel` is."""
        return await self._carrier.run(self._calls.import_module(module, on_wait))

    async def submit_model(
        self, module: str | bytes, on_wait: OnWait | None = None, **options: Unpack[ModelOptions]
    ) -> Model:
        """Ask for a search of every problem of an MLIR module; it is read as `import_module` does.

        Problems whose results are stored get no job.
        """
        return await self._carrier.run(self._calls.submit_model(module, on_wait, options))

    async def model(self, model_id: int) -> Model:
        """One model, with the state of each of its problems."""
        return await self._carrier.run(self._calls.model(model_id))
