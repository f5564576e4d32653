"""The tables: what was asked for, where it was timed, what came of it, and who may ask.

Face: every model, `JobState`, `OfferRole`, `PlanLayouts`, `PlanState`, `Scope`.
"""

from tilewise.service.db.models.access import Scope, Token
from tilewise.service.db.models.asked import ACTIVE, IdempotencyKey, Job, JobState, Problem
from tilewise.service.db.models.networks import Network
from tilewise.service.db.models.offers import Candidate, Offer, OfferRole
from tilewise.service.db.models.places import Machine, Toolchain, Worker
from tilewise.service.db.models.plans import Plan, PlanEnding, PlanLayouts, PlanSource, PlanState
from tilewise.service.db.models.results import PastSchedule, Proof, Schedule, Script, Trial
from tilewise.service.db.models.suites import SuiteReport

__all__ = [
    "ACTIVE", "Candidate", "IdempotencyKey", "Job", "JobState", "Machine", "Network", "Offer",
    "OfferRole", "PastSchedule", "Plan", "PlanEnding", "PlanLayouts", "PlanSource", "PlanState",
    "Problem", "Proof", "Schedule", "Scope", "Script", "SuiteReport", "Token", "Toolchain",
    "Trial", "Worker",
]  # fmt: skip
