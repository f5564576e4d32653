"""A kernel as IREE calls it: bitcode in the module's text, a shim and a function on tensors.

The shim passes addresses: a rank-0 memref with `llvm.bareptr` is a pointer in C. Panels take a
second result that nobody reads, so IREE allocates memory for each call and calls may run at once.
Threads are workgroups. A kernel that refuses its arguments, as misaligned, ends the program, and
so does Linux's refusal of tile registers: each call of a kernel that uses them asks.

Constant weights are packed by a dispatch on constants alone, which IREE runs when it loads the
module, unless the result exceeds the inputs by 1 MiB
(`--iree-opt-const-expr-max-size-increase-threshold`). Winograd weights do. The dispatch therefore
also reads a constant of its result's size, and overwrites it.

The kernel of a range takes its sizes as push constants. IREE's own code of the ops computes sizes
outside of the range.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tilewise.kernels.dispatches.layouts import (
    CallLines,
    check_layouts,
    copy_lines,
    given_back,
    laid,
)
from tilewise.kernels.dispatches.patterns.graph import ANY, Value
from tilewise.kernels.dispatches.patterns.pattern import Pattern
from tilewise.kernels.mlir.transform.sequences import filled
from tilewise.kernels.native.ir.vectors import LINE_BYTES
from tilewise.kernels.native.objects.make import KernelObject, make_object, make_range_object
from tilewise.kernels.oracle.operands import operand_type
from tilewise.kernels.problem import Problem, ProblemRange
from tilewise.kernels.range_schedule import RangeSchedule
from tilewise.kernels.schedule import Schedule
from tilewise.kernels.target.model import Target
from tilewise.kernels.target.tile_data import (
    ARCH_REQ_XCOMP_PERM,
    SYS_ARCH_PRCTL,
    XFEATURE_XTILEDATA,
)


@dataclass(frozen=True)
class LibraryEntry:
    """A kernel of a library.

    `stands_for` is the problem of the ops, which may differ from `problem` in layout and padding.
    With the schedules of a range, `problem` is its smallest.
    """

    problem: Problem
    schedule: Schedule | RangeSchedule
    stands_for: Problem | None = None

    @property
    def found(self) -> Problem:
        """The problem of the ops that the kernel replaces."""
        return self.stands_for or self.problem

    @classmethod
    def of(cls, problem: Problem, steps: list[Any], found: Problem | None = None) -> "LibraryEntry":
        """Return the entry of a schedule as JSON; raise ScheduleError if it is not one."""
        return cls(problem, Schedule.from_json(steps), found)

    @property
    def replaces(self) -> Problem | ProblemRange:
        """The problem of the ops, or the range of problems."""
        whole = self.schedule
        return whole.problems if isinstance(whole, RangeSchedule) else self.found


@dataclass(frozen=True, kw_only=True)
class CompiledEntry(LibraryEntry):
    """An entry with its code."""

    made: KernelObject

    @property
    def canonical(self) -> str:
        """The string of the problem, or of the range, that the kernel replaces."""
        return self.replaces.canonical

    @property
    def name(self) -> str:
        """The kernel's symbol, which names its executable and its code."""
        return self.made.interface.name


def compiled(entry: LibraryEntry, target: Target) -> CompiledEntry:
    """Compile an entry.

    Raises:
        ScheduleError: the schedule cannot be applied to the problem.
        LoweringError: the target lacks an instruction, or this machine is not x86-64.
        UnsupportedError: `problem` does not compute the ops in any layout.
    """
    if isinstance(entry.schedule, RangeSchedule):
        made = make_range_object(entry.schedule, target)
    else:
        check_layouts(entry.found, entry.problem)
        made = make_object(entry.problem, entry.schedule, target)
    return CompiledEntry(**vars(entry), made=made)


FORMATS = ("embedded-elf-x86_64", "system-elf-x86_64")
"""The ELF formats that IREE links on x86-64: with its own linker and with the system's."""

_PACKED, _READY, _SCRATCH = "packed", "ready", "scratch"
_BYTE = "i8"

TEMPLATES = Path(__file__).with_name("templates")


def template(name: str, /, **values: object) -> str:
    """Return the text of a template of MLIR."""
    return filled(TEMPLATES / f"{name}.mlir", **values)


@dataclass(frozen=True)
class Dispatch:
    """A function that IREE dispatches.

    Attributes:
        name: symbol, unique among all executables, since IREE links them into one.
        writes: results; one that is also in `reads` is changed in place.
        passes: arguments of the kernel's function `calls`.
        parts: workgroups; if several, each gets its number.
        uses_tiles: whether it needs the system's permission to use tile registers.
        sizes: how many sizes of a range it takes.
    """

    name: str
    calls: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    passes: tuple[str, ...]
    parts: int = 1
    uses_tiles: bool = False
    sizes: int = 0

    @property
    def numbers(self) -> tuple[str, ...]:
        """What the kernel takes behind its pointers."""
        return (*(f"%size{at}" for at in range(self.sizes)), *["%part"] * (self.parts > 1))

    @property
    def bindings(self) -> tuple[str, ...]:
        """All operands and results, each once."""
        return (*self.reads, *(name for name in self.writes if name not in self.reads))


def executable_text(kernel: CompiledEntry) -> str:
    """Return the executable of a kernel."""
    name, dispatches = kernel.name, _dispatches(kernel)
    exports = (
        template("export", name=one.name, ordinal=at, layout=_layout(one), parts=one.parts)
        for at, one in enumerate(dispatches)
    )
    declared = dict.fromkeys(
        template("declaration", calls=one.calls, types=_types(kernel, one)) for one in dispatches
    )
    shims = (*declared, *(_shim(kernel, one) for one in dispatches))
    held = f'#hal.executable.object<{{path = "{name}.bc", data = #code_{name}}}>'
    objects = ", ".join(f"#tilewise_{_alias(key)} = [{held}]" for key in FORMATS)
    return template("executable", name=name, objects=objects, exports="".join(exports),
                    shims="".join(shims))  # fmt: skip


def call_text(kernel: CompiledEntry, name: str, pattern: Pattern, *, copies: bool = False) -> str:
    """Return the function on tensors that replaces the ops of a pattern.

    IREE transposes operands in another order than the problem's before the call, and the result
    after it. Transposed constants are computed when the module is loaded. With `copies` the kernel
    adds to a copy of C.
    """
    main, *prepares = _dispatches(kernel)
    function = CallLines([*pattern.sizes])
    arguments, values = _read(kernel, pattern, main, function, copies=copies)
    *_, back = pattern.orders
    shape = pattern.result.shape
    kept = tuple(shape[at] for at in back or range(len(shape)))
    is_laid = kernel.found != kernel.problem
    made = Value(
        "%made", kernel.problem.operand_shapes["C"] if is_laid else kept, pattern.result.element
    )
    values = {"C": made, **_panels(kernel), **values}
    if prepares:
        packed = values[_PACKED]
        function.lines.append(f"{packed.name} = arith.constant dense<0> : {packed.type}")
        function.lines.append(_dispatch_line(kernel, prepares[0], f"%{_READY}", values))
    has_panels = len(main.writes) > 1
    call = _dispatch_line(kernel, main, "%made:2" if has_panels else "%made", values)
    made = replace(made, name="%made#0" if has_panels else "%made")
    start = len(function.lines)
    function.lines.append(call)
    made = given_back(function, kernel.found, kernel.problem, made, kept)
    made = function.transposed(made, [back.index(at) for at in range(len(back))])
    if isinstance(kernel.replaces, ProblemRange):
        function.lines[start:] = _guarded(kernel.replaces, pattern, function.lines[start:], made)
        made = replace(made, name="%chosen")
    return template("call", name=name, arguments=", ".join(arguments), type=made.type,
                    result=made.name, lines="\n".join(function.lines))  # fmt: skip


def _read(
    kernel: CompiledEntry, pattern: Pattern, main: Dispatch, function: CallLines, *, copies: bool
) -> tuple[list[str], dict[str, Value]]:
    """Return the arguments of a pattern's function, and what the kernel reads by its names."""
    names = ["B" if name == _READY else name for name in main.reads]
    values, arguments = dict[str, Value](), list[str]()
    if pattern.bias:
        names.remove("bias")
        shape = kernel.found.operand_shapes["bias"]
        values["bias"] = bias = Value("%bias", shape, _element(kernel, "bias"))
        function.lines.append(f"{bias.name} = arith.constant dense<{pattern.bias}> : {bias.type}")
    for name, one, axes in zip(names, pattern.operands, pattern.orders, strict=False):
        value = one
        arguments.append(f"{value.name}: {value.type}")
        if copies and name == "C":
            function.lines += copy_lines(value.name, "%copied", value.shape, value.element)
            value = replace(value, name="%copied")
        value = function.transposed(value, axes)
        values[name] = laid(function, kernel.found, kernel.problem, name, value)
    return arguments, values


def _panels(kernel: CompiledEntry) -> dict[str, Value]:
    """Return the memory of panels, which only this module reads."""
    interface = kernel.made.interface
    packed, scratch = interface.packed_bytes, interface.scratch_bytes
    sizes = {_PACKED: packed, _READY: packed, _SCRATCH: scratch}
    return {name: Value(f"%{name}", (size,), _BYTE) for name, size in sizes.items()}


def _dispatch_line(
    kernel: CompiledEntry, dispatch: Dispatch, made: str, values: Mapping[str, Value]
) -> str:
    """Return the line that makes the results of a dispatch."""
    read = [values[name] for name in dispatch.reads]
    numbers = [Value(f"%number{at}", (), "i32", is_scalar=True) for at in range(dispatch.sizes)]
    names, types = (", ".join(getattr(value, of) for value in (*read, *numbers))
                    for of in ("name", "sized"))  # fmt: skip
    results = ", ".join(values[name].name if name in dispatch.reads else values[name].sized
                        for name in dispatch.writes)  # fmt: skip
    gives = f"({results})" if len(dispatch.writes) > 1 else results
    return (f"{made} = flow.dispatch @{kernel.name}_executable::@{dispatch.name}({names}) : "
            f"({types}) -> {gives}")  # fmt: skip


def _guarded(
    problems: ProblemRange, pattern: Pattern, call: Sequence[str], made: Value
) -> list[str]:
    """Return lines that call the kernel for sizes of a range, and compute others as IREE does."""
    lines, fits = ["%fits = arith.constant true"], "%fits"
    for at, sizes in enumerate(problems.ranges):
        lines += [
            f"%first{at} = arith.constant {sizes[0]} : index",
            f"%span{at} = arith.constant {sizes[-1] - sizes[0]} : index",
            f"%step{at} = arith.constant {sizes.step} : index",
            f"%none{at} = arith.constant 0 : index",
            f"%above{at} = arith.subi %size{at}, %first{at} : index",
            f"%within{at} = arith.cmpi ule, %above{at}, %span{at} : index",
            f"%rest{at} = arith.remui %above{at}, %step{at} : index",
            f"%whole{at} = arith.cmpi eq, %rest{at}, %none{at} : index",
            f"%both{at} = arith.andi %within{at}, %whole{at} : i1",
            f"%fits{at} = arith.andi {fits}, %both{at} : i1",
            f"%number{at} = arith.index_cast %size{at} : index to i32",
        ]
        fits = f"%fits{at}"
    own = pattern.text.replace(f" {ANY}", "").splitlines()
    return [
        *lines,
        f"%chosen = scf.if {fits} -> {made.type} {{",
        *(f"  {line}" for line in call),
        f"  scf.yield {made.name} : {made.type}",
        "} else {",
        *(f"  {line}" for line in own),
        f"  scf.yield {pattern.result.name} : {made.type}",
        "}",
    ]


def aliases_text(codes: Mapping[str, bytes]) -> str:
    """Return the aliases of targets and code that the executables use."""
    lines = [
        f'#tilewise_{_alias(key)} = #hal.executable.target<"llvm-cpu", "{key}">' for key in FORMATS
    ]
    for name, code in codes.items():
        lines.append(f'#code_{name} = dense<"0x{code.hex().upper()}"> : vector<{len(code)}xi8>')
    return "\n".join(lines) + "\n"


def _alias(key: str) -> str:
    return key.partition("-")[0]


def _dispatches(kernel: CompiledEntry) -> tuple[Dispatch, ...]:
    problem, interface = kernel.problem, kernel.made.interface
    weights = _READY if problem.has_constant_weights else "B"
    more = tuple(problem.extras)
    scratch = (_SCRATCH,) if interface.scratch_bytes else ()
    started = ("C",) if problem.accumulates else ()
    parted = "_part" if interface.parts > 1 else ""
    main = Dispatch(
        name=f"run_{kernel.name}",
        calls=f"{kernel.name}{parted}",
        reads=("A", weights, *more, *started),
        writes=("C", *scratch),
        passes=("A", weights, *more, "C", _SCRATCH if scratch else "C"),
        parts=interface.parts,
        uses_tiles="amx-tile" in kernel.made.features,
        sizes=len(interface.sizes),
    )
    if not problem.has_constant_weights:
        return (main,)
    prepare = Dispatch(
        name=f"prepare_{kernel.name}",
        calls=f"{kernel.name}_prepare",
        reads=("B", _PACKED),
        writes=(_PACKED,),
        passes=("B", _PACKED),
    )
    return main, prepare


def _layout(dispatch: Dispatch) -> str:
    kinds = (
        "storage_buffer" + ("" if name in dispatch.writes else ", ReadOnly")
        for name in dispatch.bindings
    )
    listed = ", ".join(f"#hal.pipeline.binding<{kind}>" for kind in kinds)
    constants = f"constants = {dispatch.sizes}, " if dispatch.sizes else ""
    return f"#hal.pipeline.layout<{constants}bindings = [{listed}]>"


def _types(kernel: CompiledEntry, dispatch: Dispatch) -> str:
    """Return the types of the arguments of a kernel's function."""
    types = [f"memref<{_element(kernel, name)}>" for name in dispatch.passes]
    return ", ".join([*types, *["i64"] * len(dispatch.numbers)])


def _shim(kernel: CompiledEntry, dispatch: Dispatch) -> str:
    layout = _layout(dispatch)
    bindings = [
        f"%{name} = hal.interface.binding.subspan layout({layout}) binding({at}) "
        f"alignment({LINE_BYTES}) offset(%zero) : memref<{_element(kernel, name)}>"
        for at, name in enumerate(dispatch.bindings)
    ]
    for at in range(dispatch.sizes):
        bindings += [
            f"%given{at} = hal.interface.constant.load layout({layout}) ordinal({at}) : i32",
            f"%size{at} = arith.extui %given{at} : i32 to i64",
        ]
    asks = template("ask_for_tiles", number=SYS_ARCH_PRCTL, request=ARCH_REQ_XCOMP_PERM,
                    tiles=XFEATURE_XTILEDATA) if dispatch.uses_tiles else ""  # fmt: skip
    given = (*(f"%{name}" for name in dispatch.passes), *dispatch.numbers)
    return template(
        "shim", name=dispatch.name, bindings="\n".join(bindings),
        part=template("part") if dispatch.parts > 1 else "", asks=asks, calls=dispatch.calls,
        given=", ".join(given), types=_types(kernel, dispatch),
    )  # fmt: skip


def _element(kernel: CompiledEntry, name: str) -> str:
    return _BYTE if name in (_PACKED, _READY, _SCRATCH) else operand_type(kernel.problem, name)
