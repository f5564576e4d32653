"""${message}

Rules: import nothing of the application; name every constraint by the convention of
service/db/base.py, inside op.f(), which keeps Alembic from prefixing it again; alter tables only inside `op.batch_alter_table`, for SQLite; give a
downgrade that works with data present.
"""

import sqlalchemy as sa
from alembic import op
${imports if imports else ""}
revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = ${repr(branch_labels)}
depends_on = ${repr(depends_on)}


def upgrade() -> None:
    ${upgrades if upgrades else "pass"}


def downgrade() -> None:
    ${downgrades if downgrades else "pass"}
