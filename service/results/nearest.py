"""Find the stored result nearest to a request, and describe the differences.

Nearest is the target itself, under the present toolchain before others; then, if
requested, the same number of threads of a processor whose kernels the target can run: another
model, or the same one with other features. A result whose features were not recorded is never
exact.
"""

from collections.abc import Iterable
from dataclasses import replace

from sqlalchemy import select
from sqlalchemy.orm import Session

from tilewise.kernels.errors import TargetError
from tilewise.kernels.target import TargetName, parse_target
from tilewise.kernels.target.features import can_run, implied, likeness
from tilewise.schema.base import MatchKind
from tilewise.service.db import models
from tilewise.service.results import schedules
from tilewise.service.results.stored import Lookup, among


def kind_of(target: str, toolchain: str, lookup: Lookup) -> MatchKind:
    """Return how a result of this target and toolchain matches the request."""
    if target != lookup.target or why_not_exact(target, lookup.target) is not None:
        return "processor"
    return "exact" if toolchain == lookup.toolchain else "toolchain"


def why_not_exact(given: str, requested: str) -> str | None:
    """Return how the features of a result's target differ from the requested ones; None if not."""
    result, wanted = _parsed(given), _parsed(requested)
    return None if result is None or wanted is None else result.why_not(wanted)


def find(session: Session, keys: Iterable[str], lookup: Lookup) -> dict[str, models.Schedule]:
    """Return the nearest schedule for each key of a problem that has one."""
    wanted = set(keys)
    found = schedules.find_schedules(session, wanted, lookup)
    if lookup.match != "nearest" or wanted == found.keys():
        return found
    for target in compatible_targets(session, wanted - found.keys(), lookup.target):
        if missing := wanted - found.keys():
            found |= schedules.find_schedules(session, missing, replace(lookup, target=target))
    return found


def compatible_targets(session: Session, keys: Iterable[str], target: str) -> list[str]:
    """Return the targets of stored schedules that `target` can run, most alike first."""
    own = parse_target(target)
    of_these = among(session, models.Problem.__table__.c.key, set(keys))
    query = select(models.Schedule.target).join(models.Schedule.problem).where(of_these).distinct()
    others = [
        other
        for text in set(session.scalars(query)) - {target}
        if (other := _parsed(text)) is not None and _serves(other, own)
    ]

    def distance(other: TargetName) -> tuple[bool, float, bool, str]:
        alike = likeness(_features(other), own.features)
        return not other.is_known, -alike, other.cpu != own.cpu, other.canonical

    return [other.canonical for other in sorted(others, key=distance)]


def _serves(other: TargetName, own: TargetName) -> bool:
    """Whether kernels of a target run on another one, as far as their features are known."""
    if (other.kind, other.threads) != (own.kind, own.threads) or not own.is_known:
        return False
    is_same_model = other.cpu == own.cpu and not other.is_known
    return is_same_model or can_run(_features(other), own.features)


def _features(other: TargetName) -> frozenset[str]:
    """The features of a target; those that its name implies where nothing was recorded."""
    return other.features if other.is_known else implied(other.cpu)


def _parsed(text: str) -> TargetName | None:
    """A target of the database; None for a damaged one."""
    try:
        return parse_target(text)
    except TargetError:
        return None
