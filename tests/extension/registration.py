"""What `TILEWISE_EXTENSIONS` names: importing it registers the extension."""

from tests.extension.blocks import NAME, blocks, in_blocks
from tests.extension.fmuladd import FMULADDS
from tests.extension.fused_tile import FusedTile
from tests.extension.reorder import Reorder
from tilewise.kernels.instructions import register
from tilewise.kernels.native.microkernels.kinds import register_kind
from tilewise.kernels.steps import register_step
from tilewise.search.space.registry import register_parameter

register_step(Reorder)
register(*FMULADDS)
register_kind(FusedTile)
register_parameter(NAME, blocks, in_blocks)
