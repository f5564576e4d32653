"""The tables: requests, machines, results and tokens."""

from tilewise.service.db.models.jobs import (
    ACTIVE,
    ENDED,
    Candidate,
    IdempotencyKey,
    Job,
    JobKind,
    Network,
    Offer,
    OfferRole,
    Plan,
    PlanCompletion,
    PlanSource,
    Problem,
)
from tilewise.service.db.models.places import Machine, Token, Toolchain, Worker
from tilewise.service.db.models.results import (
    PastSchedule,
    Proof,
    Schedule,
    Script,
    SuiteReport,
    Trial,
    TunedRange,
)

__all__ = [
    "ACTIVE", "ENDED", "Candidate", "IdempotencyKey", "Job", "JobKind", "Machine", "Network",
    "Offer", "OfferRole", "PastSchedule", "Plan", "PlanCompletion", "PlanSource", "Problem",
    "Proof", "Schedule", "Script", "SuiteReport", "Token", "Toolchain", "Trial", "TunedRange",
    "Worker",
]  # fmt: skip
