"""What is stored nearest to what was asked for, and what differs; never silently.

Nearest is the target itself, under the present toolchain before others; then, if somebody asks
for it, the same number of threads of a processor whose kernels the asked one can run.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import select
from sqlalchemy.orm import Session

from tilewise.kernels.target import canonical_target, parse_target, target_kind
from tilewise.kernels.target.compatible import can_run, likeness
from tilewise.search.records import CacheMode
from tilewise.service.db import models
from tilewise.service.host.machine import MachineInfo
from tilewise.service.results import schedules

Match = Literal["exact", "nearest"]
"""How near an answer has to be: `exact` is of the target itself."""

Kind = Literal["exact", "toolchain", "processor"]
"""How near an answer is; `processor` may be of another toolchain, too."""


@dataclass(frozen=True)
class Asked:
    """What a look-up is for.

    Attributes:
        target: canonical.
        toolchain: what counts as present.
        cache: None takes hot ones before cold ones.
        match: how near an answer has to be.
    """

    target: str
    toolchain: str
    cache: CacheMode | None = None
    match: Match = "exact"


def kind_of(target: str, toolchain: str, asked: Asked) -> Kind:
    """How near a result of this target and toolchain is to what was asked."""
    if target != asked.target:
        return "processor"
    return "exact" if toolchain == asked.toolchain else "toolchain"


def find(
    session: Session, keys: Iterable[str], asked: Asked, here: MachineInfo
) -> dict[str, models.Schedule]:
    """For each key of a problem that has one, the nearest schedule.

    Args:
        session: an open session.
        keys: of problems.
        asked: for which target, and how near.
        here: this machine, whose features are known whatever the database says.
    """
    wanted = set(keys)
    found = schedules.find_schedules(session, wanted, asked.target, asked.toolchain, asked.cache)
    if asked.match == "exact":
        return found
    for target in compatible_targets(session, asked.target, here):
        missing = wanted - found.keys()
        if not missing:
            break
        found |= schedules.find_schedules(session, missing, target, asked.toolchain, asked.cache)
    return found


def compatible_targets(session: Session, target: str, here: MachineInfo) -> list[str]:
    """The targets whose kernels a target can run, the most alike first; without itself."""
    name, threads = parse_target(target)
    kind = target_kind(target)
    known = _features(session) | {here.cpu: frozenset(here.features)}
    own = known.get(name)
    if not own:
        return []
    others = {
        cpu: likeness(features, own)
        for cpu, features in known.items()
        if cpu != name and features and can_run(features, own)
    }
    nearest = sorted(others, key=lambda cpu: (-others[cpu], cpu))
    return [canonical_target(kind, cpu, threads) for cpu in nearest]


def _features(session: Session) -> dict[str, frozenset[str]]:
    """The features of each processor that any machine has; of several rows, the newest one's."""
    query = select(models.Machine.cpu, models.Machine.features).order_by(models.Machine.seen_at)
    return {
        cpu: frozenset(map(str, features))
        for cpu, features in session.execute(query)
        if isinstance(features, list)
    }
