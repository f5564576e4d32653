"""Peers on every copy of the operands that the cold mode takes turns over."""

from collections.abc import Callable

from tilewise.kernels.oracle.operands import Operands
from tilewise.search.peers.variant import Variant
from tilewise.search.runner.child.session import Session
from tilewise.search.timing.cold import in_turn
from tilewise.search.timing.samples import Run


def on_every_place(
    session: Session, ways: list[Variant], made: Callable[[Operands], list[Variant]]
) -> list[Run]:
    """The peers' ways, on every copy that the cold mode wants.

    Args:
        session: has the copies.
        ways: on the first of them.
        made: gives the ways on the operands of another.
    """
    if len(session.places) == 1:
        return [way.run for way in ways]
    others = [
        {(way.peer, way.name): way for way in made(place.operands)} for place in session.places[1:]
    ]
    return [
        in_turn([way.run, *(other[way.peer, way.name].run for other in others)]) for way in ways
    ]
