"""The HTTP API's responses, as OpenAPI shows them: models of the objects in `tilewise.schema`."""

import dataclasses
import functools
import inspect
import operator
from types import GenericAlias, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, StringConstraints, create_model

from tilewise.schema.base import ALWAYS, NAME, Finite
from tilewise.schema.modules import (
    ImportedModule,
    Model,
    ModelPart,
    ModelPlan,
    OpScript,
    PlanHead,
    PlanPart,
    PlanTotals,
    PlanVariant,
)
from tilewise.schema.ranges import StoredRange
from tilewise.schema.results import (
    Found,
    Job,
    ObjectFiles,
    Phase,
    ProofOfObject,
    SpaceSize,
    StoredResult,
    StoredTrial,
    Trial,
    TrialCounts,
)
from tilewise.schema.status import (
    NewToken,
    Readiness,
    SuiteReport,
    SuiteReportHead,
    Targets,
    Token,
    Worker,
)

Flavor = Literal["cpu", "air", "iree", "iree-spec"]
ProblemKey = Annotated[str, StringConstraints(pattern="^[0-9A-Za-z]*$", max_length=64)]
"""A problem's SHA-256 in a path; other letters and digits are the key of no problem."""

NAMES: dict[type, str] = {
    ImportedModule: "ImportedView",
    Model: "NetworkView",
    ModelPart: "PartView",
    ModelPlan: "PlanView",
    ObjectFiles: "ObjectView",
    PlanTotals: "TotalsView",
    PlanVariant: "VariantView",
    ProofOfObject: "ObjectProofView",
    Readiness: "ReadyView",
    SpaceSize: "SpaceView",
    StoredRange: "RangeView",
    StoredResult: "ResultView",
    SuiteReport: "WholeReportView",
    SuiteReportHead: "SuiteReportView",
    TrialCounts: "TrialCounts",
    Worker: "WorkersView",
}
"""Names in OpenAPI that are not the object's own with `View` behind it."""


class FiniteView(BaseModel):
    """Base of models with numbers of the database, which must be finite for JSON."""

    model_config = ConfigDict(allow_inf_nan=False)


class FieldError(BaseModel):
    """One field of the request, and what is wrong with it."""

    field: str
    message: str


class ProblemDetails(BaseModel):
    """An error, by RFC 9457."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    errors: list[FieldError] | None = None


class UnfinishedView(BaseModel):
    """The result is being generated; request `location` again."""

    detail: str
    location: str


class StatusView(BaseModel):
    """The state of the service and its version."""

    status: Literal["ok"] = "ok"
    version: str


class Page(BaseModel):
    """Rows of the database.

    `next` is the path of the page after, null at the end. `unreadable` rows are damaged in the
    database and left out of this page; the service's log names them.
    """

    next: str | None
    unreadable: int = 0


@functools.cache
def view(kind: type) -> type[BaseModel]:
    """Return the model of an object of the API; of its docstring what precedes `Attributes`."""
    hints = get_type_hints(kind, include_extras=True)
    fields: dict[str, Any] = {}
    for field in dataclasses.fields(kind):
        if field.name != "document":
            name = field.metadata.get(NAME, field.name)
            fields[name] = (_promised(hints[field.name]), _default(field))
    return create_model(
        NAMES.get(kind, f"{kind.__name__}View"),
        __base__=FiniteView if issubclass(kind, Finite) else BaseModel,
        __doc__=inspect.cleandoc(kind.__doc__ or "").partition("\n\nAttributes:")[0],
        **fields,
    )


def _default(field: "dataclasses.Field[Any]") -> Any:
    """Return a field's default; `...` for one that every answer has."""
    if ALWAYS in field.metadata:
        return ...
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return ... if field.default is dataclasses.MISSING else field.default


def _promised(hint: Any) -> Any:
    """Return what the service promises of a field, with views in place of objects."""
    origin, parts = get_origin(hint), get_args(hint)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return view(hint)
    if origin is Annotated:
        return _promised(parts[1])
    if origin in (Union, UnionType):
        return functools.reduce(operator.or_, map(_promised, parts))
    if origin is tuple and parts[-1] is ...:
        return GenericAlias(list, (_promised(parts[0]),))
    if origin in (dict, tuple):
        return GenericAlias(origin, tuple(map(_promised, parts)))
    return hint


def _with_list(name: str, text: str, **lists: type) -> type[BaseModel]:
    """Return the model of a page of objects."""
    fields: dict[str, Any] = {
        field: (GenericAlias(list, (view(kind),)), ...) for field, kind in lists.items()
    }
    return create_model(name, __base__=Page, __doc__=text, **fields)


FoundView, ImportedView, JobView, NetworkView = map(view, (Found, ImportedModule, Job, Model))
NewTokenView, ObjectView, OpScriptView = map(view, (NewToken, ObjectFiles, OpScript))
PartView, PhaseView, PlanHeadView, PlanPartView = map(view, (ModelPart, Phase, PlanHead, PlanPart))
PlanView, ReadyView, ResultView = map(view, (ModelPlan, Readiness, StoredResult))
RangeView = view(StoredRange)
StoredTrialView, SuiteReportView, TargetsView = map(view, (StoredTrial, SuiteReportHead, Targets))
TokenView, TrialView, VariantView, WholeReportView = map(
    view, (Token, Trial, PlanVariant, SuiteReport)
)

JobPage = _with_list("JobPage", "Jobs, newest first.", jobs=Job)
TrialPage = _with_list("TrialPage", "Trials by number.", trials=Trial)
StoredTrialPage = _with_list("StoredTrialPage", "Trials as they were stored.", trials=StoredTrial)
PlanPage = _with_list("PlanPage", "Plans, newest first.", plans=PlanHead)
SuiteReportPage = _with_list(
    "SuiteReportPage", "Reports of suites, newest first.", reports=SuiteReportHead
)


class TokensView(BaseModel):
    """All tokens, by name."""

    tokens: list[TokenView]  # type: ignore[valid-type]  # a class made at run time


class LookupView(BaseModel):
    """The results of a look-up, in the order of the request."""

    target: str
    toolchain: str
    schedules: list[FoundView]  # type: ignore[valid-type]  # a class made at run time
