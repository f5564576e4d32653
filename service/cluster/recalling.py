"""Helpers leave their workers to jobs that wait."""

import logging
from collections.abc import Collection, Mapping

from tilewise.service.cluster.facts import Facts
from tilewise.service.db.session import Sessions, reading, writing
from tilewise.service.runs import helping, offers

Kind = tuple[tuple[str, ...], str]
"""What a worker can time: its targets and its toolchain."""

log = logging.getLogger(__name__)


def kind_of(facts: Facts) -> Kind:
    """What a worker can time."""
    return facts.targets, facts.toolchain


def recall_for_waiting(
    sessions: Sessions, helpers: Mapping[str, Facts], idle: Collection[Kind]
) -> None:
    """Recall as many helpers as jobs wait that could run on their workers.

    Args:
        sessions: of the database.
        helpers: the workers that help, by address.
        idle: kinds of workers that no job waits for.
    """
    kinds: dict[Kind, set[str]] = {}
    for address, facts in helpers.items():
        kinds.setdefault(kind_of(facts), set()).add(address)
    for kind, addresses in kinds.items():
        if kind in idle:
            continue
        with reading(sessions) as session:
            waiting = offers.waiting(session, *kind)
        if not waiting:
            continue
        with writing(sessions) as session:
            recalled = helping.recall(session, addresses, waiting)
        for address in recalled:
            log.info("the helper on %s is recalled, for a job that waits", address)
