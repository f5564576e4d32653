"""A client of the HTTP API, with and without `async`; needs httpx and nothing heavy.

with Client("http://localhost:8000") as client:
    best = client.tune("matmul:m=1024,n=512,k=2048,dtype=f32")
    script = client.script(best.problem)
"""

from tilewise.client.api import Result
from tilewise.client.clients import AsyncClient, Client
from tilewise.client.events import (
    Event,
    JobEnded,
    JobSubmitted,
    PartEnded,
    PhaseReached,
    PlanEnded,
    PlanEvent,
    TrialEnded,
)
from tilewise.schema.modules import (
    FoundProblem,
    ImportedModule,
    Model,
    ModelPart,
    ModelPlan,
    OpScript,
    PlanTotals,
    PlanVariant,
    SkippedOp,
)
from tilewise.schema.ranges import RangeLoss, RangeSample, StoredRange
from tilewise.schema.results import (
    Best,
    Difference,
    File,
    Found,
    Job,
    Machine,
    Match,
    ObjectFiles,
    Peer,
    Phase,
    Proof,
    StoredTrial,
    Text,
    Trial,
    TrialCounts,
)
from tilewise.schema.status import NewToken, Readiness, SuiteReport, Targets, Token, Worker

__all__ = [
    "AsyncClient", "Best", "Client", "Difference", "Event", "File", "Found", "FoundProblem",
    "ImportedModule", "Job", "JobEnded", "JobSubmitted", "Machine", "Match", "Model", "ModelPart",
    "ModelPlan", "NewToken", "ObjectFiles", "OpScript", "PartEnded", "Peer", "Phase",
    "PhaseReached", "PlanEnded", "PlanEvent", "PlanTotals", "PlanVariant", "Proof", "RangeLoss",
    "RangeSample", "Readiness", "Result", "SkippedOp", "StoredRange", "StoredTrial", "SuiteReport",
    "Targets", "Text", "Token", "Trial", "TrialCounts", "TrialEnded", "Worker",
]  # fmt: skip
