"""For developers: draft the migration for a change of the models.

`python -m tilewise.service.db.draft_migration WHAT IT DOES` writes it; then it is edited by hand.
"""

import sys
import tempfile
from pathlib import Path

from alembic import command

from tilewise.service.db import models, schema
from tilewise.service.db.session import make_engine, write_connection


def draft(message: str) -> None:
    """Write what the models have and the migrations lack to migrations/versions, to be edited."""
    number = f"{int(schema.HEAD) + 1:04d}"
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder) / 'draft.db'}"
        schema.upgrade(url)
        with write_connection(make_engine(url)) as connection:
            made = schema.alembic_config(connection)
            made.attributes["metadata"] = models.Job.metadata
            command.revision(made, message, autogenerate=True, rev_id=number)


if __name__ == "__main__":
    draft(" ".join(sys.argv[1:]))
