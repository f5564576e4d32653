"""The views as revision 0021 makes them: a machine's jobs are searches, and no models."""

from tilewise.migrations.views import v0009, v0018
from tilewise.migrations.views.spelling import Spelling


def views(sql: Spelling) -> dict[str, str]:
    """The SELECT of each view, by name."""
    return {**v0018.views(sql), "machine_activity": machine_activity(sql)}


def machine_activity(sql: Spelling) -> str:
    """Those of 0009, over jobs of kind `tune`."""
    before, after = v0009.machine_activity(sql).split("  FROM jobs GROUP BY host\n")
    return f"{before}  FROM jobs WHERE kind = 'tune' GROUP BY host\n{after}"
