"""The HTTP API's responses, as OpenAPI shows them.

Face: every view.
"""

from service.api.schemas.errors import (
    FieldError,
    ProblemDetails,
    RefusedView,
    UnfinishedView,
)
from service.api.schemas.jobs import (
    JobPage,
    JobView,
    Page,
    PhaseView,
    StoredTrialPage,
    StoredTrialView,
    TrialPage,
    TrialView,
)
from service.api.schemas.results import (
    BestView,
    DifferenceView,
    FileView,
    FiniteView,
    Flavor,
    FoundView,
    LookupView,
    MachineView,
    MatchView,
    MeasuredView,
    ProblemKey,
    ProofView,
    ResultView,
    SpaceView,
    TrialCounts,
)
from service.api.schemas.status import (
    NewTokenView,
    ReadyView,
    StatusView,
    TargetsView,
    TokensView,
    TokenView,
    WorkersView,
)
from service.api.schemas.suites import (
    SuiteReport,
    SuiteReportPage,
    SuiteReportView,
    WholeReportView,
)

__all__ = [
    "BestView",
    "DifferenceView",
    "FieldError",
    "FileView",
    "FiniteView",
    "Flavor",
    "FoundView",
    "JobPage",
    "JobView",
    "LookupView",
    "MachineView",
    "MatchView",
    "MeasuredView",
    "NewTokenView",
    "Page",
    "PhaseView",
    "ProblemDetails",
    "ProblemKey",
    "ProofView",
    "ReadyView",
    "RefusedView",
    "ResultView",
    "SpaceView",
    "StatusView",
    "StoredTrialPage",
    "StoredTrialView",
    "SuiteReport",
    "SuiteReportPage",
    "SuiteReportView",
    "TargetsView",
    "TokenView",
    "TokensView",
    "TrialCounts",
    "TrialPage",
    "TrialView",
    "UnfinishedView",
    "WholeReportView",
    "WorkersView",
]
