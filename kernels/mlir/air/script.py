"""`emit_air`: a K-streaming schedule as a transform script, and its payload.

The order of the steps fulfils the requirements of `inspection`. C is packed before the reduction is
tiled, so its pack and unpack are outside of both loops, and the fill replaces the pack. The packs
of A and B then move into the outer loop, where their sources are promoted to L2, and into the inner
loop. Nothing has to be hoisted or peeled.
"""

from tilewise.kernels.mlir.air.schedule import KStreaming, check_streaming, padded, require_streamed
from tilewise.kernels.mlir.payload.function import function_of
from tilewise.kernels.mlir.payload.tensors import tensor
from tilewise.kernels.mlir.transform.module import mlir_version, module_of, with_function
from tilewise.kernels.mlir.transform.sequences import bufferize, named_sequence
from tilewise.kernels.mlir.transform.writer import ANY, SequenceWriter
from tilewise.kernels.problem import DTYPES, Matmul, Problem

L3, L2, L1 = 0, 1, 2
"""Memory spaces as MLIR-AIR numbers them; L3 is the default."""


def streamed_payload(problem: Matmul) -> str:
    """Return a plain, named matmul as `func.func @kernel`; its op widens narrow inputs."""
    element, wide = problem.element.name, problem.element.accumulator
    a, b, c = (problem.operand_shapes[name] for name in "ABC")
    result = tensor(c, wide)
    return function_of(
        problem,
        [
            f"%init = linalg.fill ins(%zero : {wide}) outs(%C : {result}) -> {result}",
            f"%product = linalg.matmul ins(%A, %B : {tensor(a, element)}, {tensor(b, element)}) "
            f"outs(%init : {result}) -> {result}",
            f"return %product : {result}",
        ],
    )


def air_module(problem: Matmul, script: str) -> str:
    """Return `script` with the payload of `problem`, of any dtype."""
    return with_function(streamed_payload(problem), script)


def emit_air(problem: Problem, schedule: KStreaming, notes: tuple[str, ...] = ()) -> str:
    """Return the transform module that streams K through L2 and L1; `notes` extend its header.

    Raises:
        UnsupportedError: no air script covers the problem.
        ScheduleError: a size does not divide the one around it.
    """
    matmul = require_streamed(problem)
    check_streaming(matmul, schedule)
    whole = padded(matmul, schedule)
    pads = () if whole == matmul else (f"pad    m={whole.m} n={whole.n} k={whole.k} in L3",)
    facts = (
        f"problem:  {matmul.canonical}",
        "flavor:   air",
        *notes,
        f"mlir:     {mlir_version()}",
    )
    sequences = (
        _Steps(matmul, schedule).main(),
        named_sequence("cleanup"),
        bufferize("C in place, and the allocations that the steps request."),
    )
    return module_of(facts, (*pads, *schedule.steps), sequences)


class _Steps:
    """Writes the steps one by one, and keeps handles on the ops that later steps need.

    A level with a single chunk of the reduction has no loop, since MLIR would fold it.
    """

    def __init__(self, problem: Matmul, schedule: KStreaming) -> None:
        self._writer = w = SequenceWriter()
        w.handle("func", 'structured.match ops{["func.func"]} in %root')
        self._fill = w.handle("fill", 'structured.match ops{["linalg.fill"]} in %root')
        self._matmul = w.handle("matmul", 'structured.match ops{["linalg.matmul"]} in %root')
        self._schedule = schedule
        self._whole = padded(problem, schedule)
        self._whole_pads: list[str] = []
        self._pads = {
            operand
            for operand, dims in enumerate(("mk", "kn", "mn"))
            if any(getattr(problem, dim) != getattr(self._whole, dim) for dim in dims)
        }
        self._packs: list[str] = []
        self._copies: list[str] = []
        factor, result = (
            f"{'0.0' if DTYPES[name].is_float else '0'} : {name}"
            for name in (problem.element.name, problem.element.accumulator)
        )
        self._zeros = (factor, factor, result)

    def main(self) -> str:
        """Return the main sequence."""
        w = self._writer
        if self._pads:
            self._pad()
        writes = (self._block, self._thread, self._pack, self._outer, self._inner, self._init)
        for step, write in zip(self._schedule.steps, writes, strict=True):
            w.line(f"// {step}")
            write()
            w.include("cleanup")
        w.line("// buffers")
        w.handle("buffers", "include @bufferize failures(propagate) (%root)")
        for _ in range(2):  # the second removes subviews that the first left without a use
            w.line(f"transform.include @cleanup failures(propagate) (%buffers) : ({ANY}) -> ()")
        return w.main()

    def _pad(self) -> None:
        """Pad operands in L3 with zeros to whole blocks and chunks where needed."""
        w, s = self._writer, self._schedule
        w.line("// pad    to whole blocks and chunks in L3")
        multiples = f"pad_to_multiple_of [{s.block_m}, {s.block_n}, {s.outer_k}] "
        self._copy((), "linalg.copy", multiples)
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
        self._copy((0, 1), "none")
        self._copies = [
            self._writer.in_place(self._producer(operand), f"copy_{'ab'[operand]}")
            for operand in (0, 1)
        ]

    def _copy(self, operands: tuple[int, ...], back: str, options: str = "") -> None:
        """Copy operands by a pad of width zero."""
        flags = [int(operand in operands) for operand in range(3)]
        hints = ("padded", "pads", "back")
        self._matmul = self._writer.pad(
            self._matmul, hints, self._zeros, (0, 1, 2), flags, back, options
        )

    def _producer(self, operand: int) -> str:
        """Return a handle on the producer of an operand of the matmul."""
        return self._writer.producer(self._matmul, operand, f"made_{'abc'[operand]}")

    def _spread(self, m: int, n: int, unit: str) -> None:
        """Tile C for parallel hardware, with its fill inside."""
        self._matmul, loop = self._writer.handles(
            (f"{unit}_tile", f"{unit}s"),
            f"structured.tile_using_forall {self._matmul} tile_sizes [{m}, {n}] "
            f"(mapping = [#gpu.{unit}<y>, #gpu.{unit}<x>])",
        )
        self._fill, _ = self._writer.fuse(self._fill, loop, f"{unit}_fill")

    def _pack(self) -> None:
        s = self._schedule
        sizes = [s.pack_m, s.pack_n, s.pack_k]
        op = f"structured.pack {self._matmul} packed_sizes = {sizes}"
        self._matmul = self._writer.handle("packed", op)
        self._packs = [
            self._transpose("get_producer_of_operand", 0, "pack_a"),
            self._transpose("get_producer_of_operand", 1, "pack_b", " inner_perm = [1, 0]"),
        ]
        self._transpose("get_consumers_of_result", 0, "pack_c")

    def _transpose(self, of: str, index: int, hint: str, inner: str = "") -> str:
        """Permute the pack of an operand or the unpack of the result; return the new pack."""
        before = self._writer.handle(f"{hint}_plain", f"{of} {self._matmul}[{index}]")
        self._matmul, pack, _ = self._writer.handles(
            ("packed", hint, "unpack"),
            f"structured.pack_transpose {before} with_compute_op({self._matmul}) "
            f"outer_perm = [1, 0]{inner}",
            operands=2,
        )
        return pack

    def _outer(self) -> None:
        loop = self._stream(self._schedule.outer_k, self._whole.k, "outer")
        if loop:
            self._copies = self._fused(self._copies, loop, "outer_copy")[0]

    def _inner(self) -> None:
        self._stream(self._schedule.inner_k, self._schedule.outer_k, "inner")

    def _stream(self, depth: int, whole: int, hint: str) -> str:
        """Tile the packed reduction and pack A and B chunk by chunk; return the loop, if any."""
        if depth == whole:
            self._writer.line(f"// one chunk of {whole}: no loop")
            return ""
        sizes = [0, 0, depth // self._schedule.pack_k, 0, 0, 0]
        self._matmul, loop = self._writer.handles(
            (f"{hint}_chunk", f"{hint}_loop"),
            f"structured.tile_using_for {self._matmul} tile_sizes {sizes}",
        )
        self._packs, loop = self._fused(self._packs, loop, f"{hint}_pack")
        return loop

    def _fused(self, ops: list[str], loop: str, hint: str) -> tuple[list[str], str]:
        """Fuse the ops of A and B into a loop; return them and the loop."""
        moved = []
        for op, name in zip(ops, "ab", strict=True):
            inside, loop = self._writer.fuse(op, loop, f"{hint}_{name}")
            moved.append(inside)
        return moved, loop

    def _init(self) -> None:
        """Allocate the packed tile of C and the packed chunks of A and B in L1."""
        self._allocate(self._writer.match("linalg.fill", "packed_fill"), L1, "c")
        for ops, space, level in ((self._packs, L1, ""), (self._copies, L2, "l2_")):
            for op, name in zip(ops, "ab", strict=True):
                self._allocate(op, space, f"{level}{name}")
        for pad in self._whole_pads:
            self._allocate(pad, L3, "whole", "")

    def _allocate(
        self, op: str, space: int, hint: str, what: str = "bufferize_destination_only, "
    ) -> None:
        """Give the result of an op a buffer of its own, freed at the end of its scope."""
        w = self._writer
        buffer, anew = w.name(f"buffer_{hint}"), w.name(f"to_{hint}")
        where = f"memory_space = {space}, " if space else ""
        w.line(
            f"{buffer}, {anew} = transform.structured.bufferize_to_allocation {op} "
            f"<{{{where}{what}emit_dealloc}}> : {ANY}"
        )
