"""What an air script is applied to: one plain matmul, named, whose op extends narrow inputs.

`emit_air`: a K-streaming schedule as a transform script for real MLIR.

The order of the steps is what fulfils the wishes. C is packed before the reduction is
tiled, so that its pack and unpack are outside of both loops from the start, and the fill
takes the pack's place. The packs of A and B then move into the outer loop, where what
they read is promoted to L2, and once more into the inner loop. Nothing has to be hoisted
and no iteration peeled.

"""

import textwrap

from tilewise.kernels.mlir.air.schedule import KStreaming, check_streaming, padded, require_streamed
from tilewise.kernels.mlir.payload.function import ENTRY
from tilewise.kernels.mlir.transform.module import HEADER_END, MODULE, mlir_version
from tilewise.kernels.mlir.transform.sequences import bufferize, cleanup
from tilewise.kernels.mlir.transform.writer import ANY, Writer
from tilewise.kernels.problem import DTYPES, Matmul, Problem


def streamed_payload(problem: Matmul) -> str:
    """The text of `func.func @kernel`: a fill of C and a `linalg.matmul` into it."""
    element = problem.element
    kinds = {
        name: f"tensor<{'x'.join(map(str, shape))}x"
        f"{element.name if name in ('A', 'B') else element.accumulator}>"
        for name, shape in problem.operand_shapes.items()
    }
    arguments = ", ".join(
        f"%{name}: {kind} {{bufferization.writable = {'true' if name == 'C' else 'false'}}}"
        for name, kind in kinds.items()
    )
    zero, result = "0.0" if element.is_float else "0", kinds["C"]
    return (
        f"func.func @{ENTRY}({arguments}) -> {result} {{\n"
        f"  %zero = arith.constant {zero} : {element.accumulator}\n"
        f"  %init = linalg.fill ins(%zero : {element.accumulator}) outs(%C : {result})"
        f" -> {result}\n"
        f"  %product = linalg.matmul ins(%A, %B : {kinds['A']}, {kinds['B']})"
        f" outs(%init : {result}) -> {result}\n"
        f"  return %product : {result}\n"
        "}\n"
    )


L3, L2, L1 = 0, 1, 2
"""Memory spaces, as MLIR-AIR numbers them; L3 is the default one."""
VALUE = "!transform.any_value"


def emit_air(problem: Problem, schedule: KStreaming, told: tuple[str, ...] = ()) -> str:
    """The transform module that streams K through L2 and L1.

    Args:
        problem: a matmul.
        schedule: its sizes; within a block and a chunk each divides the one around it.
        told: further lines of the header.

    Raises:
        UnsupportedError: no air script covers the problem.
        ScheduleError: a size does not divide the one around it.
    """
    matmul = require_streamed(problem)
    check_streaming(matmul, schedule)
    steps = _Steps(matmul, schedule)
    buffers = bufferize("C in place, and the allocations that the steps asked for.")
    body = "\n".join([_main(steps.run()), cleanup(), buffers])
    header = _header(matmul, schedule, told)
    return f"{header}{MODULE}\n{textwrap.indent(body, '  ')}}}\n"


def _header(problem: Matmul, schedule: KStreaming, told: tuple[str, ...]) -> str:
    lines = [
        f"problem:  {problem.canonical}",
        "flavor:   air",
        *told,
        f"mlir:     {mlir_version()}",
    ]
    return (
        "".join(f"// {line}\n" for line in lines)
        + HEADER_END
        + "".join(f"// {line}\n" for line in (*_pad_told(problem, schedule), *schedule.steps))
        + "//\n"
    )


def _pad_told(problem: Matmul, schedule: KStreaming) -> tuple[str, ...]:
    whole = padded(problem, schedule)
    return () if whole == problem else (f"pad    m={whole.m} n={whole.n} k={whole.k} in L3",)


def _main(lines: list[str]) -> str:
    whole = [
        f"transform.named_sequence @__transform_main(%root: {ANY} {{transform.consumed}}) {{",
        f'  %func = transform.structured.match ops{{["func.func"]}} in %root : ({ANY}) -> {ANY}',
        f'  %fill = transform.structured.match ops{{["linalg.fill"]}} in %root : ({ANY}) -> {ANY}',
        f'  %matmul = transform.structured.match ops{{["linalg.matmul"]}} in %root '
        f": ({ANY}) -> {ANY}",
        *(f"  {line}" for line in lines),
        "  transform.yield",
        "}",
        "",
    ]
    return "\n".join(whole)


class _Steps:
    """Writes the steps one by one; the handles are of the ops that the next step needs.

    A level with a single chunk of the reduction has no loop: MLIR would fold it, and
    everything else stays where it is.
    """

    def __init__(self, problem: Matmul, schedule: KStreaming) -> None:
        self._writer = Writer()
        self._schedule = schedule
        self._whole = padded(problem, schedule)
        self._whole_pads: list[str] = []
        self._pads = {
            operand
            for operand, dims in enumerate(("mk", "kn", "mn"))
            if any(getattr(problem, dim) != getattr(self._whole, dim) for dim in dims)
        }
        self._matmul, self._fill = "%matmul", "%fill"
        self._pack_a = self._pack_b = self._copy_a = self._copy_b = ""
        factor, result = (
            f"{'0.0' if DTYPES[name].is_float else '0'} : {name}"
            for name in (problem.element.name, problem.element.accumulator)
        )
        self._zeros = (factor, factor, result)

    def run(self) -> list[str]:
        """The lines of the main sequence."""
        if self._pads:
            self._pad()
        writes = (self._block, self._thread, self._pack, self._outer, self._inner, self._init)
        for step, write in zip(self._schedule.steps, writes, strict=True):
            self._writer.line(f"// {step}")
            write()
            self._writer.include("cleanup")
        w = self._writer
        w.line("// buffers")
        w.line(f"%buffers = transform.include @bufferize failures(propagate) (%root) "
               f": ({ANY}) -> {ANY}")  # fmt: skip
        for _ in range(2):  # the second removes subviews that the first left without a use
            w.line(f"transform.include @cleanup failures(propagate) (%buffers) : ({ANY}) -> ()")
        return w.lines

    def _pad(self) -> None:
        """Zeros up to whole blocks and chunks, around operands in L3 that need them."""
        w, s = self._writer, self._schedule
        w.line("// pad    to whole blocks and chunks in L3")
        self._copy(
            (), "linalg.copy", f"pad_to_multiple_of [{s.block_m}, {s.block_n}, {s.outer_k}] "
        )
        w.include("cleanup")
        self._fill = self._producer(2)
        self._whole_pads = [self._producer(operand) for operand in sorted(self._pads - {2})]
        if 2 in self._pads:
            self._allocate(self._fill, L3, "whole")
            self._fill = self._producer(2)

    def _block(self) -> None:
        s, w = self._schedule, self._writer
        self._spread(s.block_m, s.block_n, "block")
        if s.result == "l2":
            w.line("// the block's tile of C lies in L2 until its threads have ended")
            self._copy((2,), "linalg.copy")
            w.include("cleanup")
            self._allocate(self._producer(2), L2, "tile")
            self._fill = self._producer(2)

    def _thread(self) -> None:
        s = self._schedule
        self._spread(s.thread_m, s.thread_n, "thread")
        self._copy_a, self._copy_b = self._copy((0, 1), "none")

    def _copy(self, operands: tuple[int, ...], back: str, width: str = "") -> tuple[str, ...]:
        """Copy operands by a pad of width zero; the copies of A and B."""
        w = self._writer
        padded, pads, written = w.name("padded"), w.name("pads"), w.name("back")
        flags = [int(operand in operands) for operand in range(3)]
        w.line(
            f"{padded}, {pads}, {written} = transform.structured.pad {self._matmul} {width}"
            f"<{{padding_values = [{', '.join(self._zeros)}], padding_dimensions = [0, 1, 2], "
            f'nofold_flags = {flags}, copy_back_op = "{back}"}}> : ({ANY}) -> ({ANY}, {ANY}, {ANY})'
        )
        self._matmul = padded
        copies = []
        for operand in operands:
            if operand == 2:
                continue
            pad, copy = self._producer(operand), w.name(f"copy_{'ab'[operand]}")
            w.line(
                f"{copy} = transform.structured.rewrite_in_destination_passing_style {pad} "
                f": ({ANY}) -> {ANY}"
            )
            copies.append(copy)
        return tuple(copies)

    def _producer(self, operand: int) -> str:
        """What makes an operand of the matmul."""
        made = self._writer.name(f"made_{'abc'[operand]}")
        self._writer.line(
            f"{made} = transform.get_producer_of_operand {self._matmul}[{operand}] "
            f": ({ANY}) -> {ANY}"
        )
        return made

    def _spread(self, m: int, n: int, unit: str) -> None:
        """Tile C for parallel hardware, and bring its fill along."""
        w = self._writer
        tile, loop = w.name(f"{unit}_tile"), w.name(f"{unit}s")
        w.line(
            f"{tile}, {loop} = transform.structured.tile_using_forall {self._matmul} "
            f"tile_sizes [{m}, {n}] (mapping = [#gpu.{unit}<y>, #gpu.{unit}<x>]) "
            f": ({ANY}) -> ({ANY}, {ANY})"
        )
        self._matmul = tile
        self._fill, _ = self._writer.fuse(self._fill, loop, f"{unit}_fill")

    def _pack(self) -> None:
        w, s = self._writer, self._schedule
        packed = w.name("packed")
        w.line(
            f"{packed} = transform.structured.pack {self._matmul} "
            f"packed_sizes = [{s.pack_m}, {s.pack_n}, {s.pack_k}] : ({ANY}) -> {ANY}"
        )
        self._matmul = packed
        self._pack_a = self._transpose(
            "get_producer_of_operand", 0, "pack_a", "outer_perm = [1, 0]"
        )
        self._pack_b = self._transpose(
            "get_producer_of_operand", 1, "pack_b", "outer_perm = [1, 0] inner_perm = [1, 0]"
        )
        self._transpose("get_consumers_of_result", 0, "pack_c", "outer_perm = [1, 0]")

    def _transpose(self, of: str, index: int, hint: str, permutation: str) -> str:
        """Permute the pack of an operand (or the unpack of the result); the pack anew."""
        w = self._writer
        before, compute = w.name(f"{hint}_plain"), w.name("packed")
        pack, unpack = w.name(hint), w.name("unpack")
        w.line(f"{before} = transform.{of} {self._matmul}[{index}] : ({ANY}) -> {ANY}")
        w.line(
            f"{compute}, {pack}, {unpack} = transform.structured.pack_transpose {before} "
            f"with_compute_op({self._matmul}) {permutation} "
            f": ({ANY}, {ANY}) -> ({ANY}, {ANY}, {ANY})"
        )
        self._matmul = compute
        return pack

    def _outer(self) -> None:
        loop = self._stream(self._schedule.outer_k, self._whole.k, "outer")
        if loop:
            self._copy_a, loop = self._writer.fuse(self._copy_a, loop, "outer_copy_a")
            self._copy_b, _ = self._writer.fuse(self._copy_b, loop, "outer_copy_b")

    def _inner(self) -> None:
        self._stream(self._schedule.inner_k, self._schedule.outer_k, "inner")

    def _stream(self, depth: int, whole: int, hint: str) -> str:
        """Tile the packed reduction, and pack A and B chunk by chunk; the loop, if any."""
        if depth == whole:
            self._writer.line(f"// one chunk of {whole}: no loop")
            return ""
        w = self._writer
        tile, loop = w.name(f"{hint}_chunk"), w.name(f"{hint}_loop")
        w.line(
            f"{tile}, {loop} = transform.structured.tile_using_for {self._matmul} "
            f"tile_sizes [0, 0, {depth // self._schedule.pack_k}, 0, 0, 0] "
            f": ({ANY}) -> ({ANY}, {ANY})"
        )
        self._matmul = tile
        self._pack_a, loop = self._writer.fuse(self._pack_a, loop, f"{hint}_pack_a")
        self._pack_b, loop = self._writer.fuse(self._pack_b, loop, f"{hint}_pack_b")
        return loop

    def _init(self) -> None:
        """Allocate the packed tile of C, and the packed chunks of A and B, in L1."""
        w = self._writer
        fill = w.name("packed_fill")
        w.line(
            f'{fill} = transform.structured.match ops{{["linalg.fill"]}} in %func '
            f": ({ANY}) -> {ANY}"
        )
        for op, hint in ((fill, "c"), (self._pack_a, "a"), (self._pack_b, "b")):
            self._allocate(op, L1, hint)
        for op, hint in ((self._copy_a, "l2_a"), (self._copy_b, "l2_b")):
            self._allocate(op, L2, hint)
        for pad in self._whole_pads:
            self._allocate(pad, L3, "whole", "")

    def _allocate(
        self, op: str, space: int, hint: str, what: str = "bufferize_destination_only, "
    ) -> None:
        """Give what an op writes a buffer of its own, freed at the end of its scope."""
        w = self._writer
        buffer, anew = w.name(f"buffer_{hint}"), w.name(f"to_{hint}")
        where = f"memory_space = {space}, " if space else ""
        w.line(
            f"{buffer}, {anew} = transform.structured.bufferize_to_allocation {op} "
            f"<{{{where}{what}emit_dealloc}}> : {ANY}"
        )
