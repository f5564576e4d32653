"""The public function of an exported module: checks, scratch, and the call of the driver."""

from typing import Any

from tilewise.kernels.native.macrokernel.parameters import Addresses
from tilewise.kernels.native.plan import Plan
from tilewise.kernels.problem import Problem

_PUBLIC = '''
def {op}({first}, {second}, out=None, bias=None):
    """The result, in `out` where it is given; see the module's docstring.

    Raises ValueError for an operand of another shape or type, one that is not contiguous,
    and an `out` that overlaps another. Threads may call this at the same time.
    """
    _check("{first}", {first}, A_SHAPE, A_TYPE)
    {check_second}
{bias}
    if out is None:
        {out}
    else:
        _check("out", out, C_SHAPE, C_TYPE)
        _check_apart(out, ({reads}))
    try:
        scratch = _free.pop()
    except IndexError:
        scratch = [_aligned(size) for size in SCRATCH_BYTES]
{run}
    _free.append(scratch)
    return out


_free = []  # scratch that no call is using; a call takes one out, so threads never share


def _aligned(size):
    """The address of `size` bytes that start on a cache line, and what keeps them alive."""
    raw = np.zeros(size + 64, np.uint8)
    return raw.ctypes.data + -raw.ctypes.data % 64, raw


def _check(name, array, shape, dtype):
    """ValueError unless `array` is what the kernel takes its address for."""
    if not isinstance(array, np.ndarray):
        found = type(array).__name__
        raise ValueError(f"{{name}} is {{found}}, not a NumPy array {{dtype}}{{list(shape)}}")
    if array.shape != shape or array.dtype != dtype:
        found = f"{{array.dtype}}{{list(array.shape)}}"
        raise ValueError(f"{{name}} is {{found}}, not {{dtype}}{{list(shape)}}")
    flags = array.flags
    if not (flags.c_contiguous and flags.aligned):
        raise ValueError(f"{{name}} is not contiguous; give numpy.ascontiguousarray({{name}})")


def _check_apart(out, operands):
    """ValueError unless `out` can be written without changing an operand."""
    if not out.flags.writeable:
        raise ValueError("out is read-only; give an array that can be written")
    for operand in operands:
        if np.may_share_memory(out, operand):
            raise ValueError("out overlaps an operand; give it memory of its own")
'''

_RUN = """
    driver(
        {addresses},
    )
"""

_RUN_PARTS = """
    team = thread_pool(len(BOUNDS))
    first = ({addresses})
    rows = [
        (*first[:4], *(at + i * step for at, step in zip(first[4:6], SCRATCH_STEPS)),
         team.barrier, *bounds)
        for i, bounds in enumerate(BOUNDS)
    ]
    table = np.array(rows, np.int64)
    team.run(entry.address, [row.ctypes.data for row in table])
"""

_PACK = """
@njit
def _locate():
    return kernel_addresses()


ADDRESSES = _locate()
"""

_PACK_WEIGHTS = '''
def pack({second}):
    """The weights in panels, to be given to `{op}` in their place; once, for all calls."""
    _check("{second}", {second}, B_SHAPE, B_TYPE)
    address, raw = _aligned(PACKED_BYTES)
    prepare({second}.ctypes.data, address)
    start = address - raw.ctypes.data
    return raw[start : start + PACKED_BYTES]
'''


def operand_names(problem: Problem) -> tuple[str, str]:
    """What the public function calls A and B of the problem."""
    return ("image", "weights") if problem.spatial_axes else ("a", "b")


def call_text(problem: Problem, planned: Plan) -> str:
    """How the function is called, for the docstring."""
    first, second = operand_names(problem)
    bias = ", bias=bias" if problem.has_bias else ""
    if planned.is_ahead:
        before, names = f"packed = pack({second})  # once\n", f"{first}, packed"
    else:
        before, names = "", f"{first}, {second}"
    if problem.accumulates:
        return f"{before}{problem.op}({names}, out{bias})  # adds to out"
    return f"{before}out = {problem.op}({names}{bias})"


def facts_text(problem: Problem, planned: Plan, dtypes: dict[str, str]) -> str:
    """Shapes, types and scratch, as assignments.

    Args:
        problem: what is computed.
        planned: its kernel.
        dtypes: NumPy's name of each operand's type.
    """
    lines = [
        f"{name.upper()}_SHAPE, {name.upper()}_TYPE = {shape}, np.dtype({dtypes[name]!r})"
        for name, shape in problem.operand_shapes.items()
    ]
    scratch = planned.scratch
    sizes, names = [scratch["A"].total], ["packed A"]
    if planned.is_ahead:
        lines.append(f"PACKED_BYTES = {scratch['B'].total}  # the weights in panels")
        sizes.append(0)
    else:
        sizes.append(scratch["B"].total)
        names.append("packed B")
    if len(planned.nest.parts) > 1:
        bounds = tuple(
            tuple(edge for edges in part.values() for edge in edges) for part in planned.nest.parts
        )
        lines.append(f"BOUNDS = {bounds}  # first and end of {', '.join(planned.nest.parts[0])}")
        lines.append(f"SCRATCH_STEPS = {(scratch['A'].step, scratch['B'].step)}")
    lines.append(f"SCRATCH_BYTES = {tuple(sizes)}  # {', '.join(names)}")
    return "\n".join(lines)


def locate_text(planned: Plan) -> str:
    """The addresses of the kernels for two functions to share; nothing where one needs them."""
    return _PACK if planned.is_ahead else ""


def public_text(problem: Problem, planned: Plan) -> str:
    """The functions that users call, and their checks."""
    first, second = operand_names(problem)
    taken = "packed" if planned.is_ahead else second
    pack = _PACK_WEIGHTS.format(op=problem.op, second=second) + "\n\n" if planned.is_ahead else ""
    return pack.lstrip() + _PUBLIC.format(
        op=problem.op,
        first=first,
        second=taken,
        check_second=_check_second(second, planned.is_ahead),
        reads=f"{first}, {taken}" + (", bias" if problem.has_bias else ""),
        run=_run_text(problem, planned, taken),
        **_outputs(problem),
    )


def _check_second(second: str, is_ahead: bool) -> str:
    if is_ahead:
        return '_check("packed", packed, (PACKED_BYTES,), np.dtype("uint8"))  # from pack()'
    return f'_check("{second}", {second}, B_SHAPE, B_TYPE)'


def _outputs(problem: Problem) -> dict[str, Any]:
    """What is done about `out` and `bias` before the kernel runs."""
    if problem.accumulates:
        out = 'raise ValueError("give out: this kernel adds to what it holds")'
    else:
        out = "out = np.empty(C_SHAPE, C_TYPE)"
    if problem.has_bias:
        return {"out": out, "bias": '    _check("bias", bias, BIAS_SHAPE, BIAS_TYPE)'}
    refusal = '    if bias is not None:\n        raise ValueError("this kernel adds no bias")'
    return {"out": out, "bias": refusal}


def _run_text(problem: Problem, planned: Plan, taken: str) -> str:
    """The call of the driver, or of the pool that runs it on its parts."""
    first, second = operand_names(problem)
    nest = planned.nest
    names = {"A": first, "B": second}
    a, b = names[nest.operand("A").name], names[nest.operand("B").name]
    panels = f"{taken}.ctypes.data" if planned.is_ahead else "scratch[1][0]"
    addresses = Addresses(
        a=f"{a}.ctypes.data",
        b="0" if planned.is_ahead else f"{b}.ctypes.data",
        c="out.ctypes.data",
        bias="bias.ctypes.data" if problem.has_bias else "0",
        a_panels="scratch[0][0]",
        b_panels=panels,
    )
    given = vars(addresses).values()
    if len(planned.nest.parts) == 1:
        return _RUN.format(addresses=",\n        ".join(given)).strip("\n")
    return _RUN_PARTS.format(addresses=", ".join(given)).strip("\n")
