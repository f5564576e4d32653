"""`emit_range_script`: the schedules of a range as one transform script, for a payload of any size.

The payload has `?` where an extent is a size. It has a function for each variant, and one that
calls that of its size. A script makes the loops of each; tiles of fewer rows than a register tile
have code of their own (`LoopEmitter`), so the script is right for every size.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import product

from tilewise.kernels.errors import KernelsError, UnsupportedError
from tilewise.kernels.mlir.cpu.script import checked_form, loops_of, notes, write_loops
from tilewise.kernels.mlir.payload.contraction import contraction
from tilewise.kernels.mlir.payload.form import LinalgForm
from tilewise.kernels.mlir.payload.function import ENTRY, payload
from tilewise.kernels.mlir.transform.module import module_of
from tilewise.kernels.mlir.transform.sequences import named_sequence
from tilewise.kernels.mlir.transform.writer import INCLUDE, SequenceWriter
from tilewise.kernels.nest import Role
from tilewise.kernels.problem import Problem, ProblemRange, Size, parse_problem, sizes_text
from tilewise.kernels.range_schedule import RangeSchedule, Span
from tilewise.kernels.schedule import Parallel, Schedule, Tile

_HEAD = re.compile(r"func\.func @kernel\((.*)\) -> (\S+) {")
_MARK = re.compile(r"\$([a-z]+)\$")
_KINDS = re.compile(r"tensor<[^>]*>")
_EMPTY = re.compile(r"(  %\w+) = tensor\.empty\(\) : (tensor<[^>]*\$[^>]*>)")
_ARGUMENT = re.compile(r"(%\w+): ([^ ,]+)")


def range_payload(whole: RangeSchedule) -> str:
    """Return the functions of a range: the public one takes operands of any size.

    Raises:
        UnsupportedError: extents are computed from the sizes.
    """
    marked = _marked(whole.problems)
    text = _of_any_size(whole.problems, marked)
    names = _functions(whole)
    if len(names) == 1:
        return text
    variants = [text.replace(f"func.func @{ENTRY}", f"func.func private @{name}") for name in names]
    return "".join([_dispatch(whole, marked), *variants])


def _of_any_size(problems: ProblemRange, marked: str) -> str:
    """Return the payload with `?` for the marked numbers, and lines that define the sizes."""
    largest = {_mark(dim): str(sizes[-1]) for dim, sizes in _ranges(problems)}
    text = _EMPTY.sub(lambda found: _part_of_largest(found[1], found[2], largest), marked)
    head, brace, body = _KINDS.sub(_unmarked, text).partition("{\n")
    if _MARK.search(body):
        body = "".join(f"  {line}\n" for line in _size_lines(marked)) + body
    return f"{head}{brace}{_MARK.sub(_size_name, body)}"


def _marked(problems: ProblemRange) -> str:
    """Return the payload of the largest size with a mark for each number that is a size."""
    sizes = {dim: values[-1] for dim, values in _ranges(problems)}
    numbers = re.split(r"(\d+)", payload(_problem(problems, sizes)))
    found = list(numbers)
    for dim, size in sizes.items():
        other = payload(_problem(problems, {**sizes, dim: 2 if size > 2 else 3}))
        for at, (one, two) in enumerate(zip(numbers, re.split(r"(\d+)", other), strict=True)):
            if one == two:
                continue
            if found[at] != str(size):
                raise UnsupportedError(
                    f"{problems}: no script: its payload has extents that are computed from {dim}; "
                    "give a single size",
                    dim,
                )
            found[at] = _mark(dim)
    return "".join(found)


def _mark(dim: str) -> str:
    return f"${dim}$"


def _unmarked(kind: re.Match[str]) -> str:
    return _MARK.sub("?", kind[0])


def _size_name(mark: re.Match[str]) -> str:
    """Return the value that is the size of a dim."""
    return f"%size_{mark[1]}"


def _part_of_largest(name: str, kind: str, largest: Mapping[str, str]) -> str:
    """Return lines that define a new tensor as a slice of one for the largest sizes.

    So its buffer is static, as scratch memory has to be.
    """
    extents = kind.removeprefix("tensor<").removesuffix(">").split("x")[:-1]
    offsets, steps = (", ".join([number] * len(extents)) for number in "01")
    part = f"[{offsets}] [{', '.join(extents)}] [{steps}]"
    whole = _MARK.sub(lambda mark: largest[mark[0]], kind)
    return (
        f"{name}_of_largest = tensor.empty() : {whole}\n"
        f"{name} = tensor.extract_slice {name.strip()}_of_largest{part} : {whole} to {kind}"
    )


def _ranges(problems: ProblemRange) -> Iterable[tuple[str, range]]:
    return zip(problems.dims, problems.ranges, strict=True)


def _problem(problems: ProblemRange, sizes: Mapping[str, int]) -> Problem:
    """Return the problem of any sizes."""
    return parse_problem({**problems.smallest.to_json(), **sizes})


def widest(whole: RangeSchedule) -> Problem:
    """Return the problem of the largest size."""
    return whole.problems.at(whole.problems.sizes[-1])


def proof_sizes(whole: RangeSchedule) -> tuple[Size, ...]:
    """Return the ends of each variant's sizes, and three between: of whole tiles, and around."""
    found, dims = set[Size](), whole.problems.dims
    for variant, shape in enumerate(forms(whole)):
        served, units = whole.sizes_of(variant), [shape.nest.unit(dim) for dim in dims]
        around = [size for size in served if all(map(_is_around, size, units))]
        middle = max(len(around) // 2 - 1, 0)
        found |= {served[0], served[-1], *around[middle : middle + 3]}
    return tuple(sorted(found))


def _is_around(size: int, tile: int) -> bool:
    return size % tile in (0, 1, tile - 1)


def _size_lines(marked: str) -> list[str]:
    """Return lines that define the sizes, which are extents of C."""
    found = _HEAD.search(marked)
    assert found
    extents, kind = found[2].removeprefix("tensor<").split("x"), _MARK.sub("?", found[2])
    lines = []
    for axis, extent in enumerate(extents):
        if mark := _MARK.match(extent):
            lines += [
                f"%axis_{mark[1]} = arith.constant {axis} : index",
                f"{_size_name(mark)} = tensor.dim %C, %axis_{mark[1]} : {kind}",
            ]
    return lines


def _functions(whole: RangeSchedule) -> list[str]:
    """Return the function of each variant."""
    count = len(whole.variants)
    return [f"variant_{index}" for index in range(count)] if count > 1 else [ENTRY]


def _dispatch(whole: RangeSchedule, marked: str) -> str:
    """Return the function that calls the variant of its size."""
    found = _HEAD.search(_KINDS.sub(_unmarked, marked))
    assert found
    given, result = found.groups()
    values, kinds = (", ".join(one) for one in zip(*_ARGUMENT.findall(given), strict=True))
    *spans, last = whole.spans
    lines = [*_size_lines(marked), f"%variant_of_last = arith.constant {last.variant} : index"]
    chosen = "%variant_of_last"
    for at, span in reversed(list(enumerate(spans))):
        held, is_held = _is_in(span, whole.problems, at)
        lines += [
            *held,
            f"%number_{at} = arith.constant {span.variant} : index",
            f"%variant_{at} = arith.select {is_held}, %number_{at}, {chosen} : index",
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


def _is_in(span: Span, problems: ProblemRange, number: int) -> tuple[list[str], str]:
    """Return lines that compare the sizes with a span, and the name of what they find."""
    lines, found = list[str](), ""
    for dim, *ends in zip(problems.dims, span.first, span.last, strict=True):
        for test, end in zip(("uge", "ule"), ends, strict=True):
            name = f"{test}_{dim}_{number}"
            lines += [
                f"%end_{name} = arith.constant {end} : index",
                f"%{name} = arith.cmpi {test}, %size_{dim}, %end_{name} : index",
            ]
            if found:
                lines.append(f"%and_{name} = arith.andi {found}, %{name} : i1")
            found = f"%and_{name}" if found else f"%{name}"
    return lines, found


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
        shape, sizes = shapes[index], whole.sizes_of(index)
        found, w, name = loops_of(shape), SequenceWriter(), f"loops_of_{function}"
        match = f'structured.match ops{{["func.func"]}} attributes{{sym_name = "{function}"}}'
        w.handle("func", f"{match} in %root")
        write_loops(w, shape, found.lines, "%func")
        main.include(name, "%root")
        sequences |= dict.fromkeys([w.main(name, "readonly"), *found.sequences])
        apart |= found.multiplies_apart
        served = sizes_text(whole.problems.dims, sizes[0], sizes[-1])
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


def _with_form(problems: ProblemRange, size: Size) -> Problem:
    """Return the problem of a size, with two for each one whose problem has its own op."""
    nearest = product(*((one,) if one > 1 else (1, 2) for one in size))
    found = [_problem(problems, dict(zip(problems.dims, one, strict=True))) for one in nearest]
    made = [(op.op, op.maps) for op in map(contraction, found)]
    return found[made.index(made[-1])]


def _form(whole: RangeSchedule, variant: int) -> LinalgForm:
    """Return the form of a variant's nest, at the largest size that it serves."""
    problems, steps = whole.problems, whole.variants[variant].steps
    last = whole.sizes_of(variant)[-1]
    problem = _with_form(problems, last)
    threads = sum(isinstance(step, Parallel) for step in steps)
    for dim, size in zip(problems.dims, last, strict=True):
        if dim != "m" and getattr(problem, dim) != size:
            steps = (*steps[:threads], Tile(dim, 1), *steps[threads:])  # none names one
    try:
        shape = checked_form(problem, Schedule(steps))
    except KernelsError as error:
        raise UnsupportedError(
            f"{problems}: variant {variant}: {error}", problems.dims[0]
        ) from error
    nest = shape.nest
    covered = (*nest.rows, *nest.named(Role.LEAD))
    for dim in problems.dims:
        if nest.group or dim not in covered:
            raise UnsupportedError(
                f"{problems}: scripts of ranges cover batch and m of a matmul, and n of a "
                "convolution without small groups; give a single size",
                dim,
            )
    return replace(shape, dynamic=frozenset(problems.dims))
