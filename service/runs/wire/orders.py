"""What a run is to do, and how it goes on."""

from typing import Any, Literal, Self

from pydantic import create_model, model_validator

from tilewise.schema.base import declared
from tilewise.search.progress import Phase, PhaseName
from tilewise.search.records import TuneRequest
from tilewise.service.runs.keeper import Order
from tilewise.service.runs.wire.base import Name, Number, Wire

Word = Literal["go", "stop"]


class BeginWire(Wire):
    """Who begins a run, and with which compilers."""

    owner: Name
    toolchain: Name


class _SubjectWire(Wire):
    """What a run tunes, and where."""

    epoch: Number
    problem: str
    target: str


_FIELDS: dict[str, Any] = {name: (hint, ...) for name, (hint, _) in declared(TuneRequest).items()}
_Search: Any = create_model("_Search", __base__=_SubjectWire, **_FIELDS)


class OrderWire(_Search):  # type: ignore[misc]  # its fields are those of `TuneRequest`
    """What a run is to do, and the number of the run."""

    elapsed_s: float
    request_id: str

    @classmethod
    def of(cls, order: Order, epoch: int, request_id: str) -> "OrderWire":
        """An order as it is said."""
        return cls(
            epoch=epoch,
            problem=order.problem,
            target=order.target,
            elapsed_s=order.elapsed_s,
            request_id=request_id,
            **vars(order.request),
        )

    def order(self, job_id: int) -> Order:
        """The order that was said."""
        return Order(job_id, self.problem, self.target, TuneRequest.of(self), self.elapsed_s)


class PhaseWire(Wire):
    """What a run does now, and how much of it is done."""

    epoch: Number
    name: PhaseName
    done: Number
    total: Number

    @model_validator(mode="after")
    def _is_within_total(self) -> Self:
        if self.total and self.done > self.total:
            raise ValueError(f"done={self.done} is above total={self.total}")
        return self

    def phase(self) -> Phase:
        """The phase that was said."""
        return Phase(self.name, self.done, self.total)


class EpochWire(Wire):
    """Which run says something."""

    epoch: Number


class WordWire(Wire):
    """Whether a run goes on."""

    word: Word
