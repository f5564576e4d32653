"""The micro-kernel of a schedule whose instruction multiplies matrix tiles (AMX).

It has the interface of the outer product: the same macro-kernel packs and calls. A register tile
of C is a grid of tiles of 16 by 16; a step of the reduction loads 64 bytes of 16 rows of A and 16
rows of words of B for each of its rows and columns.
"""

from dataclasses import dataclass
from typing import ClassVar, Self

from tilewise.kernels.arithmetic import Arithmetic
from tilewise.kernels.errors import LoweringError
from tilewise.kernels.instructions import NAMES, Form, known_instruction
from tilewise.kernels.native.microkernels.abi import CONFIGURE, RELEASE, epilogue_flags
from tilewise.kernels.native.microkernels.matrix_tiles_code import (
    TILE,
    TILE_REGISTERS,
    MatrixTileSpec,
    emit_configure,
    emit_edge_tiles,
    emit_release,
    emit_tiles,
)
from tilewise.kernels.native.microkernels.microkernel import ANY_USE, Piece, Use, packs_of_a
from tilewise.kernels.native.microkernels.outer_product import lines_of_a_row, packs_of_b
from tilewise.kernels.native.packing.split_panels import emit_split_panel, emit_split_rows
from tilewise.kernels.native.strides import Strides
from tilewise.kernels.nest import LoopKind, Nest
from tilewise.kernels.target.model import Target

MOST_ROWS_OF_C = 2  # that a step fetches


@dataclass(frozen=True)
class MatrixTiles:
    """The micro-kernel of matrix tiles, and the packs that feed it.

    Attributes:
        spec: what its code depends on.
        packs_transposed: whether packing B transposes it.
        patch_stride: image columns between neighbouring patches where packing B gathers
            them; 0 where B is a matrix.
    """

    spec: MatrixTileSpec
    packs_transposed: bool
    patch_stride: int

    form: ClassVar[Form] = Form.TILES

    @classmethod
    def serves(cls, nest: Nest) -> bool:
        """Return whether the instruction multiplies matrix tiles."""
        name = nest.compute.instruction
        return name in NAMES and Form.TILES in known_instruction(name).forms

    @classmethod
    def of(cls, nest: Nest, target: Target, strides: Strides, how: Arithmetic) -> Self:
        """Return the one for a nest.

        Raises:
            LoweringError: its register tile does not fit the tile registers, or A is transposed.
        """
        tile, b = nest.tile, nest.operand("B")
        rows, cols = tile.rows // TILE, tile.cols // TILE
        used = rows * cols + min(rows, cols) + min(2, max(rows, cols))
        if tile.rows % TILE or tile.cols % TILE or used > TILE_REGISTERS:
            raise LoweringError(
                f"step register: {tile.rows}x{tile.cols} is no grid of tiles of {TILE}x{TILE} "
                f"that {TILE_REGISTERS} tile registers hold; try 32x32"
            )
        if strides.words.a_step != 1:
            raise LoweringError(
                f"{nest.problem}: rows of a transposed A are no rows of tiles; "
                "choose another instruction"
            )
        inner = [loop.dim for loop in nest.loops_of(LoopKind.MICRO)][-1]
        spec = MatrixTileSpec(
            how=how,
            rows=rows,
            vectors=cols,
            unroll=nest.compute.unroll,
            a_row=strides.words.a_row,
            in_tiles=_packs_whole_tiles(nest, strides, how),
            taps=strides.taps.loops,
            streams_b=inner == nest.col,
            rows_of_c=_rows_of_c(nest, how),
            lines_of_row=lines_of_a_row(nest.problem, tile.cols, strides),
            fetch=next(iter(nest.fetches), None),
            bias_rows=nest.row in strides.bias,
            epilogue=epilogue_flags(nest.store),
        )
        return cls(spec, strides.b.is_transposed, nest.problem.strides[-1] if b.is_gathered else 0)

    def pieces(self, use: Use = ANY_USE) -> dict[str, Piece]:
        """Return its functions as they are used; where no tile is cut, `edge` takes all."""
        spec, tile_rows = self.spec, TILE if self.spec.in_tiles else 0
        edge = (spec, use.cut or ANY_USE.cut)
        return {
            "full": Piece("full tiles", (spec,), emit_tiles, is_as_written=True),
            "edge": Piece("edge tiles", edge, emit_edge_tiles, is_as_written=True),
            CONFIGURE: Piece(CONFIGURE, (spec.rows, spec.vectors), emit_configure),
            RELEASE: Piece(RELEASE, (), emit_release),
            **packs_of_b(spec, self.packs_transposed, self.patch_stride, tile_rows),
            **(self._packs_of_parts() if spec.how.in_parts else packs_of_a(spec)),
        }

    def _packs_of_parts(self) -> dict[str, Piece]:
        """Return the packs of f32 operands to high and low bf16."""
        given = (self.spec.vectors, self.packs_transposed)
        return {
            "pack_b_panel": Piece("panel of parts of b", given, emit_split_panel),
            "copy_rows": Piece("rows of parts of a", (), emit_split_rows),
        }


def _packs_whole_tiles(nest: Nest, strides: Strides, how: Arithmetic) -> bool:
    """Return whether a pack's rows of a panel are the ones of a call.

    Where a call takes a line of taps as one reduction, each of them has to fill tiles.
    """
    rows = how.depth * how.instruction.words
    fills = nest.depth % rows == 0 and nest.extent(nest.k) % rows == 0
    return strides.taps.depth_factor == 1 or fills or how.in_parts


def _rows_of_c(nest: Nest, how: Arithmetic) -> int:
    """Return the rows of C that each step fetches, so that all are there at a call's end.

    Of short reductions none: fetching more of them at a time holds up the loads of tiles.
    """
    steps = max(1, nest.depth // (how.depth * how.instruction.words) * nest.taps)
    rows = -(-nest.tile.rows // steps)
    return rows if rows <= MOST_ROWS_OF_C else 0
