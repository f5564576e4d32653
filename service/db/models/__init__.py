"""The tables: what was asked for, where it was timed, what came of it, and who may ask.

Face: every model, `OfferRole`.
"""

from tilewise.service.db.models.access import Token
from tilewise.service.db.models.asked import ACTIVE, IdempotencyKey, Job, Problem
from tilewise.service.db.models.networks import Network
from tilewise.service.db.models.offers import Candidate, Offer, OfferRole
from tilewise.service.db.models.places import Machine, Toolchain, Worker
from tilewise.service.db.models.plans import Plan, PlanEnding, PlanSource
from tilewise.service.db.models.results import PastSchedule, Proof, Schedule, Script, Trial
from tilewise.service.db.models.suites import SuiteReport

__all__ = [
    "ACTIVE", "Candidate", "IdempotencyKey", "Job", "Machine", "Network", "Offer",
    "OfferRole", "PastSchedule", "Plan", "PlanEnding", "PlanSource",
    "Problem", "Proof", "Schedule", "Script", "SuiteReport", "Token", "Toolchain",
    "Trial", "Worker",
]  # fmt: skip
