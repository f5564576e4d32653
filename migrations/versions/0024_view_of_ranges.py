"""A view of tuned ranges; jobs of ranges and rechecks are among a machine's jobs."""

from tilewise.migrations.views import v0022, v0024
from tilewise.migrations.views.replacing import replaced

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with replaced(v0022.views, v0024.views):
        pass


def downgrade() -> None:
    with replaced(v0024.views, v0022.views):
        pass
