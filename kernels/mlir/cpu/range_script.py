"""`emit_range_script`: the schedules of a range as one transform script, for a payload of any size.

The payload has `?` where an extent is the size. It has a function for each variant, and one that
calls that of its size. A script makes the loops of each; tiles of fewer rows than a register tile
have code of their own (`LoopEmitter`), so the script is right for every size.
"""

import re
from dataclasses import replace

from tilewise.kernels.errors import KernelsError, UnsupportedError
from tilewise.kernels.mlir.cpu.script import (
    checked_form,
    loops_of,
    notes,
    write_loops,
)
from tilewise.kernels.mlir.payload.contraction import contraction
from tilewise.kernels.mlir.payload.form import LinalgForm
from tilewise.kernels.mlir.payload.function import ENTRY, payload
from tilewise.kernels.mlir.transform.module import module_of
from tilewise.kernels.mlir.transform.sequences import named_sequence
from tilewise.kernels.mlir.transform.writer import INCLUDE, SequenceWriter
from tilewise.kernels.nest import Role
from tilewise.kernels.problem import Problem, ProblemRange, parse_problem
from tilewise.kernels.range_schedule import RangeSchedule
from tilewise.kernels.schedule import Parallel, Schedule, Tile

_HEAD = re.compile(r"func\.func @kernel\((.*)\) -> (\S+) {")
_EMPTY = re.compile(r"tensor\.empty\(\) : (tensor<[^>]*\?)")
_ARGUMENT = re.compile(r"(%\w+): ([^ ,]+)")


def range_payload(whole: RangeSchedule) -> str:
    """Return the functions of a range: the public one takes operands of any size.

    Raises:
        UnsupportedError: extents are computed from the size, or a tensor as large as the result
            would hold the sums.
    """
    text = _of_any_size(whole.problems)
    names = _functions(whole)
    if len(names) == 1:
        return text
    variants = [text.replace(f"func.func @{ENTRY}", f"func.func private @{name}") for name in names]
    return "".join([_dispatch(whole, text), *variants])


def _of_any_size(problems: ProblemRange) -> str:
    """Return the payload with `?` for what differs between the payloads of two sizes."""
    size, dim = problems.ranges[0][-1], _dim(problems)
    both = (payload(_problem(problems, one)) for one in (size, 2 if size > 2 else 3))
    pairs = list(zip(*(re.split(r"(\d+)", text) for text in both), strict=True))
    if any(one != other and one != str(size) for one, other in pairs):
        raise UnsupportedError(
            f"{problems}: no script: its payload has extents that are computed from {dim}; give "
            "a single size",
            dim,
        )
    text = "".join(one if one == other else "?" for one, other in pairs)
    text = _EMPTY.sub(r"tensor.empty(%size) : \1", text.replace("[?", "[%size"))
    if "%size" not in text:
        return text
    head, brace, body = text.partition("{\n")
    return "".join([head, brace, *(f"  {line}\n" for line in _size_lines(text)), body])


def _problem(problems: ProblemRange, size: int) -> Problem:
    """Return the problem of any size."""
    return parse_problem({**problems.smallest.to_json(), _dim(problems): size})


def _dim(problems: ProblemRange) -> str:
    """Return the only dim that has a range; raise UnsupportedError for two."""
    dim, *others = problems.dims
    if others:
        raise UnsupportedError(f"{problems}: a script has one range; give one size of {dim}", dim)
    return dim


def _served(whole: RangeSchedule, variant: int) -> list[int]:
    return [size for (size,) in whole.sizes_of(variant)]


def widest(whole: RangeSchedule) -> Problem:
    """Return the problem of the largest size."""
    return _problem(whole.problems, whole.problems.ranges[0][-1])


def proof_sizes(whole: RangeSchedule) -> tuple[int, ...]:
    """Return the ends of each variant's sizes, and three between: of whole tiles, and around."""
    sizes = set[int]()
    for variant, shape in enumerate(forms(whole)):
        served, rows = _served(whole, variant), shape.nest.unit(shape.dynamic)
        around = [size for size in served if size % rows in (0, 1, rows - 1)]
        middle = max(len(around) // 2 - 1, 0)
        sizes |= {served[0], served[-1], *around[middle : middle + 3]}
    return tuple(sorted(sizes))


def _size_lines(text: str) -> list[str]:
    """Return lines that define %size, an extent of C."""
    found = _HEAD.search(text)
    assert found
    kind = found[2]
    axis = kind.removeprefix("tensor<").split("x").index("?")
    return [
        f"%axis = arith.constant {axis} : index",
        f"%size = tensor.dim %C, %axis : {kind}",
    ]


def _functions(whole: RangeSchedule) -> list[str]:
    """Return the function of each variant."""
    count = len(whole.variants)
    return [f"variant_{index}" for index in range(count)] if count > 1 else [ENTRY]


def _dispatch(whole: RangeSchedule, text: str) -> str:
    """Return the function that calls the variant of its size."""
    found = _HEAD.search(text)
    assert found
    given, result = found.groups()
    values, kinds = (", ".join(one) for one in zip(*_ARGUMENT.findall(given), strict=True))
    *spans, last = whole.spans
    lines = [*_size_lines(text), f"%variant_of_last = arith.constant {last.variant} : index"]
    chosen = "%variant_of_last"
    for at, span in reversed(list(enumerate(spans))):
        lines += [
            f"%last_{at} = arith.constant {span.last[0]} : index",
            f"%is_{at} = arith.cmpi ule, %size, %last_{at} : index",
            f"%number_{at} = arith.constant {span.variant} : index",
            f"%variant_{at} = arith.select %is_{at}, %number_{at}, {chosen} : index",
        ]
        chosen = f"%variant_{at}"
    lines.append(f"%result = scf.index_switch {chosen} -> {result}")
    *names, other = _functions(whole)
    for case, name in [
        *((f"case {at}", name) for at, name in enumerate(names)),
        ("default", other),
    ]:
        lines += [
            f"{case} {{",
            f"  %called = func.call @{name}({values}) : ({kinds}) -> {result}",
            f"  scf.yield %called : {result}",
            "}",
        ]
    body = "".join(f"  {line}\n" for line in [*lines, f"return %result : {result}"])
    return f"func.func @{ENTRY}({given}) -> {result} {{\n{body}}}\n"


def emit_range_script(whole: RangeSchedule) -> str:
    """Return the transform module that makes the loops of each variant.

    Raises:
        UnsupportedError: no script covers the dim of the range, or a variant.
        LoweringError: blocks of a variant cannot be made static.
    """
    main, sequences, facts = SequenceWriter(), dict[str, None](), list[str]()
    shapes, apart = forms(whole), False
    for index, (schedule, function) in enumerate(
        zip(whole.variants, _functions(whole), strict=True)
    ):
        shape, sizes = shapes[index], _served(whole, index)
        found, w, name = loops_of(shape), SequenceWriter(), f"loops_of_{function}"
        match = f'structured.match ops{{["func.func"]}} attributes{{sym_name = "{function}"}}'
        w.handle("func", f"{match} in %root")
        write_loops(w, shape, found.lines, "%func")
        main.include(name, "%root")
        sequences |= dict.fromkeys([w.main(name, "readonly"), *found.sequences])
        apart |= found.multiplies_apart
        served = f"{shape.dynamic} of {sizes[0]} to {sizes[-1]}"
        facts += [f"{function}, for {served}: {schedule.hash}", *map(str, schedule.steps), ""]
    main.line("// buffers, and vectors that the machine has")
    main.handle("buffers", "include @bufferize failures(propagate) (%root)")
    each = ["lower_vectors", *(["fuse_products"] if apart else [])]
    main.foreach("%buffers", [INCLUDE.format(name, "%op") for name in each])
    if "@peel_ops" in "".join(sequences):
        sequences[named_sequence("peel_ops")] = None
    header = (
        f"problem:  {whole.problems}",
        f"schedule: {whole.hash}",
        *(f"note:     {note}" for note in notes(widest(whole))),
    )
    return module_of(header, facts[:-1], [main.main(), *sequences])


def forms(whole: RangeSchedule) -> list[LinalgForm]:
    """Return the forms of the variants' nests; raise as `emit_range_script`."""
    return [_form(whole, variant) for variant in range(len(whole.variants))]


def _with_form(problems: ProblemRange, size: int) -> Problem:
    """Return the problem of a size, or of two if a size of one has an op of its own."""
    both = _problem(problems, size), _problem(problems, 2)
    one, other = ((op.op, op.maps) for op in map(contraction, both))
    return both[0] if one == other else both[1]


def _form(whole: RangeSchedule, variant: int) -> LinalgForm:
    """Return the form of a variant's nest, at the largest size that it serves."""
    problems, dim = whole.problems, _dim(whole.problems)
    last, steps = _served(whole, variant)[-1], whole.variants[variant].steps
    problem = _with_form(problems, last)
    if dim != "m" and getattr(problem, dim) != last:
        threads = sum(isinstance(step, Parallel) for step in steps)
        steps = (*steps[:threads], Tile(dim, 1), *steps[threads:])  # none names one
    try:
        shape = checked_form(problem, Schedule(steps))
    except KernelsError as error:
        raise UnsupportedError(f"{problems}: variant {variant}: {error}", dim) from error
    nest = shape.nest
    if nest.group or dim not in (*nest.rows, *nest.named(Role.LEAD)):
        raise UnsupportedError(
            f"{problems}: scripts of ranges cover batch and m of a matmul, and n of a convolution "
            "without small groups; give a single size",
            dim,
        )
    return replace(shape, dynamic=dim)
