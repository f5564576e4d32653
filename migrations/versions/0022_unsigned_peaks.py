"""The view of machines has the peak of u8."""

from tilewise.migrations.views import v0021, v0022
from tilewise.migrations.views.replacing import replaced

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with replaced(v0021.views, v0022.views):
        pass


def downgrade() -> None:
    with replaced(v0022.views, v0021.views):
        pass
