"""Views whose seconds from 1970 are those of their moment on SQLite too.

SQLite's earlier views took a moment of the last half millisecond of a second as one of the next.
"""

from tilewise.migrations.views import v0010
from tilewise.migrations.views.replacing import replaced

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with replaced(v0010.views, v0010.views):
        pass


def downgrade() -> None:
    """Leave the views: those of 0010 are made with the same columns."""
