"""A client of the HTTP API, with and without `async`; needs httpx and nothing heavy.

Face: `Client`, `AsyncClient`, the results and events that they give.

with Client("http://localhost:8000") as client:
    best = client.tune("matmul:m=1024,n=512,k=2048,dtype=f32")
    script = client.script(best.problem)
"""

from tilewise.client.clients import AsyncClient, Client
from tilewise.client.events import Event, JobEnded, PhaseReached, TrialEnded
from tilewise.client.found import (
    File,
    Found,
    FoundProblem,
    ImportedModule,
    Model,
    ModelPart,
    ObjectFiles,
    OpScript,
    SkippedOp,
    Targets,
    Text,
    Worker,
)
from tilewise.client.plans.events import PartEnded, PlanEnded, PlanEvent
from tilewise.client.plans.results import ModelPlan, PlanTotals, PlanVariant
from tilewise.client.results import (
    Best,
    Difference,
    Job,
    Machine,
    Match,
    NewToken,
    Peer,
    Phase,
    Proof,
    Readiness,
    Result,
    StoredTrial,
    SuiteReport,
    Token,
    Trial,
    TrialCounts,
)

__all__ = [
    "AsyncClient", "Best", "Client", "Difference", "Event", "File", "Found", "FoundProblem",
    "ImportedModule", "Job", "JobEnded", "Machine", "Match", "Model", "ModelPart", "ModelPlan",
    "NewToken", "ObjectFiles", "OpScript", "PartEnded", "Peer", "Phase", "PhaseReached",
    "PlanEnded", "PlanEvent", "PlanTotals", "PlanVariant", "Proof", "Readiness", "Result",
    "SkippedOp", "StoredTrial", "SuiteReport", "Targets", "Text", "Token", "Trial", "TrialCounts",
    "TrialEnded", "Worker",
]  # fmt: skip
