"""Who may call a row off, and until when."""

from tilewise.service.db.models import Job, Plan
from tilewise.service.errors import ConflictError, ForbiddenError


def is_to_call_off(kind: str, row: Job | Plan, only_of: int | None) -> bool:
    """Whether a row is still to be called off; False where it was before, which is as good.

    Args:
        kind: of a row, for messages: `job`.
        row: read in a transaction that writes.
        only_of: the token that must have asked for it first; None for whoever.

    Raises:
        ForbiddenError: another token has asked for it.
        ConflictError: it has ended.
    """
    if only_of is not None and row.token_id != only_of:
        raise ForbiddenError(
            f"{kind} {row.id} was asked for with another token; that one, or one of scope admin, "
            "may cancel it"
        )
    if row.state in ("done", "failed"):
        raise ConflictError(f"{kind} {row.id} is {row.state} and cannot be cancelled")
    return row.state != "cancelled"
