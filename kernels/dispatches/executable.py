"""A kernel as IREE calls it: bitcode in the module's text, a shim and a function on tensors.

The shim passes addresses: a rank-0 memref with `llvm.bareptr` is a pointer in C. Panels take a
second result that nobody reads, so IREE allocates memory for each call and calls may run at once.
Threads are workgroups. A kernel that refuses its arguments, as misaligned, ends the program, and
so does Linux's refusal of tile registers: each call of a kernel that uses them asks.

Constant weights are packed by a dispatch on constants alone, which IREE runs when it loads the
module, unless the result exceeds the inputs by 1 MiB
(`--iree-opt-const-expr-max-size-increase-threshold`). Winograd weights do. The dispatch therefore
also reads a constant of its result's size, and overwrites it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tilewise.kernels.dispatches.layouts import (
    Laid,
    Transposed,
    check_layouts,
    copy_lines,
    given_back,
    laid,
)
from tilewise.kernels.dispatches.patterns.graph import tensor_type
from tilewise.kernels.dispatches.patterns.pattern import Pattern
from tilewise.kernels.native.ir.vectors import LINE_BYTES
from tilewise.kernels.native.objects.make import KernelObject, make_object
from tilewise.kernels.oracle.operands import operand_type
from tilewise.kernels.problem import Problem
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
    """

    problem: Problem
    schedule: Schedule
    stands_for: Problem | None = None

    @property
    def found(self) -> Problem:
        """The problem of the ops that the kernel replaces."""
        return self.stands_for or self.problem

    @classmethod
    def of(cls, problem: Problem, steps: list[Any], found: Problem | None = None) -> "LibraryEntry":
        """Return the entry of a schedule as JSON; raise ScheduleError if it is not one."""
        return cls(problem, Schedule.from_json(steps), found)


@dataclass(frozen=True)
class CompiledEntry:
    """An entry with its code."""

    problem: Problem
    made: KernelObject
    found: Problem

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
    check_layouts(entry.found, entry.problem)
    made = make_object(entry.problem, entry.schedule, target)
    return CompiledEntry(entry.problem, made, entry.found)


FORMATS = ("embedded-elf-x86_64", "system-elf-x86_64")
"""The ELF formats that IREE links on x86-64: with its own linker and with the system's."""

_PACKED, _READY, _SCRATCH, _SHARED = "packed", "ready", "scratch", "shared"
_BYTE = "i8"

_ASK_FOR_TILES = f"""
        %number = arith.constant {SYS_ARCH_PRCTL} : i64
        %request = arith.constant {ARCH_REQ_XCOMP_PERM} : i64
        %tiles = arith.constant {XFEATURE_XTILEDATA} : i64
        %answer = llvm.inline_asm has_side_effects "syscall", \
"={{ax}},{{ax}},{{di}},{{si}},~{{rcx}},~{{r11}},~{{memory}},~{{dirflag}},~{{fpsr}},~{{flags}}" \
%number, %request, %tiles : (i64, i64, i64) -> i64
        %given = arith.constant 0 : i64
        %is_refused = arith.cmpi ne, %answer, %given : i64
        scf.if %is_refused {{
          "llvm.intr.trap"() : () -> ()
        }}"""
"""Asks Linux, which answers at once where the process already has permission."""


@dataclass(frozen=True)
class Dispatch:
    """A function that IREE dispatches.

    Attributes:
        name: symbol, unique among all executables, since IREE links them into one.
        writes: results; one that is also in `reads` is changed in place.
        passes: arguments of the kernel's function `calls`.
        parts: workgroups; if several, each gets its number.
        uses_tiles: whether it needs the system's permission to use tile registers.
    """

    name: str
    calls: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    passes: tuple[str, ...]
    parts: int = 1
    uses_tiles: bool = False

    @property
    def bindings(self) -> tuple[str, ...]:
        """All operands and results, each once."""
        return (*self.reads, *(name for name in self.writes if name not in self.reads))


def executable_text(kernel: CompiledEntry) -> str:
    """Return the executable of a kernel."""
    name, dispatches = kernel.name, _dispatches(kernel)

    def element(of: str) -> str:
        return _element(kernel, of)

    exports = "".join(_export(dispatch, at) for at, dispatch in enumerate(dispatches))
    declared = dict.fromkeys(_declaration(dispatch, element) for dispatch in dispatches)
    shims = "".join([*declared, *(_shim(dispatch, element) for dispatch in dispatches)])
    held = f'#hal.executable.object<{{path = "{name}.bc", data = #code_{name}}}>'
    objects = ", ".join(f"#tilewise_{_alias(key)} = [{held}]" for key in FORMATS)
    return f"""
  "hal.executable.source"() <{{sym_name = "{name}_executable", sym_visibility = "private", \
objects = #hal.executable.objects<{{{objects}}}>}}> ({{{exports}
    builtin.module {{{shims}
    }}
    hal.executable.source_end
  }}) : () -> ()
"""


def call_text(kernel: CompiledEntry, name: str, pattern: Pattern, *, copies: bool = False) -> str:
    """Return the function on tensors that replaces the ops of a pattern.

    IREE transposes operands in another order than the problem's before the call, and the result
    after it. Transposed constants are computed when the module is loaded. With `copies` the kernel
    adds to a copy of C.
    """
    main, *prepares = _dispatches(kernel)
    names = tuple("B" if name == _READY else name for name in main.reads)
    *given, result = _transposed_operands((*names, "C"), pattern)
    types = {one.name: one.type for one in (*given, result)}
    bias: tuple[str, ...] = ()
    if pattern.bias:
        types["bias"] = tensor_type(kernel.found.operand_shapes["bias"], _element(kernel, "bias"))
        bias = (f"%bias = arith.constant dense<{pattern.bias}> : {types['bias']}",)
    arguments = ", ".join(f"%{one.given}: {one.value.type}" for one in given)
    copy = list[str]()
    if copies:
        started = given[-1]
        arguments = arguments.replace(f"%{started.given}:", f"%{_SHARED}:")
        copy = copy_lines(f"%{_SHARED}", f"%{started.given}", started.value.shape or (),
                          started.value.element)  # fmt: skip
    held = laid(kernel.found, kernel.problem, names, types)
    first = "#0" if len(main.writes) > 1 else ""
    after, value = given_back(kernel.found, kernel.problem, f"%made{first}", types["C"])
    last, back = result.transposed_back(value)
    made = [
        *copy,
        *(line for one in given for line in one.lines),
        *bias,
        *held.lines,
        *(f"%{_PACKED} = arith.constant dense<0> : {_tensor(kernel, _PACKED)}" for _ in prepares),
        *(_dispatch_line(kernel, dispatch, held) for dispatch in (*prepares, main)),
        *after,
    ]
    lines = "".join(f"\n    {line}" for line in (*made, *back))
    return f"""  util.func private @{name}({arguments}) \
-> {result.value.type} {{{lines}
    util.return {last} : {result.value.type}
  }}
"""


def aliases_text(codes: Mapping[str, bytes]) -> str:
    """Return the aliases of targets and code that the executables use."""
    lines = [
        f'#tilewise_{_alias(key)} = #hal.executable.target<"llvm-cpu", "{key}">' for key in FORMATS
    ]
    for name, code in codes.items():
        lines.append(f'#code_{name} = dense<"0x{code.hex().upper()}"> : vector<{len(code)}xi8>')
    return "\n".join(lines) + "\n"


def _transposed_operands(names: tuple[str, ...], pattern: Pattern) -> list[Transposed]:
    """Return a pattern's operands and result under the names that dispatches have for them."""
    values = (*pattern.operands, pattern.result)
    names = tuple(name for name in names if not (pattern.bias and name == "bias"))
    return [Transposed(*one) for one in zip(names, values, pattern.orders, strict=True)]


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
    return f"#hal.pipeline.layout<bindings = [{listed}]>"


def _export(dispatch: Dispatch, at: int) -> str:
    return f"""
    hal.executable.export public @{dispatch.name} ordinal({at}) layout({_layout(dispatch)}) \
count(%device: !hal.device) -> (index, index, index) {{
      %one = arith.constant 1 : index
      %parts = arith.constant {dispatch.parts} : index
      hal.return %parts, %one, %one : index, index, index
    }}"""


def _declaration(dispatch: Dispatch, element: Callable[[str], str]) -> str:
    types = [f"memref<{element(name)}>" for name in dispatch.passes]
    taken = ", ".join([*types, "i64"] if dispatch.parts > 1 else types)
    return f"""
      func.func private @{dispatch.calls}({taken}) -> i64 attributes \
{{hal.import.static, llvm.bareptr = true}}"""


def _shim(dispatch: Dispatch, element: Callable[[str], str]) -> str:
    layout = _layout(dispatch)
    bound = "".join(
        f"""
        %{name} = hal.interface.binding.subspan layout({layout}) binding({at}) \
alignment({LINE_BYTES}) offset(%zero) : memref<{element(name)}>"""
        for at, name in enumerate(dispatch.bindings)
    )
    given = [f"%{name}" for name in dispatch.passes]
    types = [f"memref<{element(name)}>" for name in dispatch.passes]
    if dispatch.parts > 1:
        given.append("%part")
        types.append("i64")
        bound += """
        %group = hal.interface.workgroup.id[0] : index
        %part = arith.index_cast %group : index to i64"""
    taken = ", ".join(types)
    asks = _ASK_FOR_TILES if dispatch.uses_tiles else ""
    return f"""
      func.func @{dispatch.name}() {{
        %zero = arith.constant 0 : index{bound}{asks}
        %status = func.call @{dispatch.calls}({", ".join(given)}) : ({taken}) -> i64
        %ok = arith.constant 0 : i64
        %refused = arith.cmpi ne, %status, %ok : i64
        scf.if %refused {{
          "llvm.intr.trap"() : () -> ()
        }}
        return
      }}"""


def _element(kernel: CompiledEntry, name: str) -> str:
    return _BYTE if name in (_PACKED, _READY, _SCRATCH) else operand_type(kernel.problem, name)


def _tensor(kernel: CompiledEntry, name: str) -> str:
    """Return the type of memory for panels."""
    interface = kernel.made.interface
    size = interface.scratch_bytes if name == _SCRATCH else interface.packed_bytes
    return tensor_type((size,), _BYTE)


def _dispatch_line(kernel: CompiledEntry, dispatch: Dispatch, held: Laid) -> str:
    types = held.types
    made = "made" if dispatch.name.startswith("run_") else _READY
    count = f":{len(dispatch.writes)}" if len(dispatch.writes) > 1 else ""
    given = ", ".join(_value(held, name) for name in dispatch.reads)
    taken = ", ".join(types.get(name) or _tensor(kernel, name) for name in dispatch.reads)
    results = ", ".join(
        _value(held, name) if name in dispatch.reads else types.get(name) or _tensor(kernel, name)
        for name in dispatch.writes
    )
    return (
        f"%{made}{count} = flow.dispatch @{kernel.name}_executable::@{dispatch.name}({given}) : "
        f"({taken}) -> {f'({results})' if count else results}"
    )


def _value(held: Laid, name: str) -> str:
    """Return the value of a dispatch's operand."""
    return held.values.get(name, f"%{name}")
