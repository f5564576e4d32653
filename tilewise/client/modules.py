"""What both clients ask of MLIR modules; each has the methods of one of the classes here."""

from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Unpack

from tilewise.client.calls import Calls, ModelOptions, OnWait, OpOptions
from tilewise.client.carriers import AsyncCarrier, Carrier
from tilewise.client.found import ImportedModule, Model, OpScript, Text
from tilewise.client.pages import first_page
from tilewise.client.plans import calls as plans
from tilewise.client.plans.calls import PATH, PlanOptions
from tilewise.client.plans.events import PlanEvent, PlanFollower
from tilewise.client.plans.results import ModelPlan
from tilewise.kernels.problem import Accuracy


class Modules:
    """Methods of `Client`."""

    _calls: Calls
    _carrier: Carrier

    def import_module(
        self, module: str | bytes, on_wait: OnWait | None = None, accuracy: Accuracy = "standard"
    ) -> ImportedModule:
        """The problems of an MLIR module, text or bytecode, waited for as `kernel` is.

        With `accuracy="strict"` they ask for direct methods alone.
        """
        return self._carrier.run(self._calls.import_module(module, on_wait, accuracy))

    def op_script(
        self, module: str | bytes, on_wait: OnWait | None = None, **options: Unpack[OpOptions]
    ) -> OpScript:
        """The script of one op of an MLIR module, proven at the service, waited for as `kernel` is.

        `place` is as `import_module` has it, or the number of the op among the problems.
        """
        return self._carrier.run(self._calls.op_script(module, on_wait, options))

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

    def submit_plan(
        self, module: str | bytes, on_wait: OnWait | None = None, **options: Unpack[PlanOptions]
    ) -> ModelPlan:
        """Ask for a plan of an MLIR module, under a key that makes it safe to ask again.

        Problems whose results are stored get no job. A worker of the target makes the plan once
        all jobs have ended.
        """
        return self._carrier.run(plans.submit(self._calls.url, module, on_wait, options))

    def plan(self, plan_id: int) -> ModelPlan:
        """One plan, with the state of each of its problems, and what was chosen once it is."""
        return self._carrier.run(plans.plan(self._calls.url, plan_id))

    def cancel_plan(self, plan_id: int) -> ModelPlan:
        """Call a plan off; its jobs go on, and `cancel` calls each of them off."""
        return self._carrier.run(plans.cancel(self._calls.url, plan_id))

    def plans(self, state: str | None = None) -> Iterator[ModelPlan]:
        """Every plan, or those of a state, newest first, without their problems."""
        first = first_page("plans", PATH, state=state)
        return map(plans.plan_of, self._carrier.pages(first))

    def plan_events(self, plan_id: int, after: int | None = None) -> Iterator[PlanEvent]:
        """What happens to a plan, from its first problem, or the one after `after`, to its end.

        A stream that breaks off is opened again where it was, so that each problem comes once.
        """
        return self._carrier.events(PlanFollower(plan_id, after))

    def plan_script(self, plan_id: int) -> Text:
        """The proven transform script that packs the module of a plan that is done."""
        return self._carrier.run(self._calls.text(f"{PATH}/{plan_id}/script", {}, None, None))

    def plan_runner(self, plan_id: int) -> Text:
        """A plan that is done as a Python module, whose `load` gives the network."""
        return self._carrier.run(self._calls.text(f"{PATH}/{plan_id}/runner", {}, None, None))


class AsyncModules:
    """Methods of `AsyncClient`."""

    _calls: Calls
    _carrier: AsyncCarrier

    async def import_module(
        self, module: str | bytes, on_wait: OnWait | None = None, accuracy: Accuracy = "standard"
    ) -> ImportedModule:
        """The problems of an MLIR module, text or bytecode, waited for as `kernel` is.

        With `accuracy="strict"` they ask for direct methods alone.
        """
        return await self._carrier.run(self._calls.import_module(module, on_wait, accuracy))

    async def op_script(
        self, module: str | bytes, on_wait: OnWait | None = None, **options: Unpack[OpOptions]
    ) -> OpScript:
        """The script of one op of an MLIR module, proven at the service, waited for as `kernel` is.

        `place` is as `import_module` has it, or the number of the op among the problems.
        """
        return await self._carrier.run(self._calls.op_script(module, on_wait, options))

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

    async def submit_plan(
        self, module: str | bytes, on_wait: OnWait | None = None, **options: Unpack[PlanOptions]
    ) -> ModelPlan:
        """Ask for a plan of an MLIR module, under a key that makes it safe to ask again.

        Problems whose results are stored get no job. A worker of the target makes the plan once
        all jobs have ended.
        """
        return await self._carrier.run(plans.submit(self._calls.url, module, on_wait, options))

    async def plan(self, plan_id: int) -> ModelPlan:
        """One plan, with the state of each of its problems, and what was chosen once it is."""
        return await self._carrier.run(plans.plan(self._calls.url, plan_id))

    async def cancel_plan(self, plan_id: int) -> ModelPlan:
        """Call a plan off; its jobs go on, and `cancel` calls each of them off."""
        return await self._carrier.run(plans.cancel(self._calls.url, plan_id))

    async def plans(self, state: str | None = None) -> AsyncIterator[ModelPlan]:
        """Every plan, or those of a state, newest first, without their problems."""
        first = first_page("plans", PATH, state=state)
        async for source in self._carrier.pages(first):
            yield plans.plan_of(source)

    async def plan_events(self, plan_id: int, after: int | None = None) -> AsyncIterator[PlanEvent]:
        """What happens to a plan, from its first problem, or the one after `after`, to its end.

        A stream that breaks off is opened again where it was, so that each problem comes once.
        """
        async with aclosing(self._carrier.events(PlanFollower(plan_id, after))) as found:
            async for event in found:
                yield event

    async def plan_script(self, plan_id: int) -> Text:
        """The proven transform script that packs the module of a plan that is done."""
        return await self._carrier.run(self._calls.text(f"{PATH}/{plan_id}/script", {}, None, None))

    async def plan_runner(self, plan_id: int) -> Text:
        """A plan that is done as a Python module, whose `load` gives the network."""
        return await self._carrier.run(self._calls.text(f"{PATH}/{plan_id}/runner", {}, None, None))
