"""The linalg-on-tensors function of a problem: what a transform script is applied to.

The function takes the operands in the order A, B, bias (where there is one), C and
returns C. Arguments that are only read say so, and C is the buffer that the result
is written to, so that bufferisation copies neither.
"""

from kernels.errors import UnsupportedError
from kernels.problem import Conv2d, Matmul, Problem
from kernels.support import check_scripted

ENTRY = "kernel"


def argument_names(problem: Problem) -> tuple[str, ...]:
    """The operands in the order in which the payload takes them."""
    return ("A", "B", "bias", "C") if "bias" in problem.operand_shapes else ("A", "B", "C")


def payload(problem: Problem) -> str:
    """The text of `func.func @kernel` for `problem`.

    Raises:
        UnsupportedError: no script covers the problem; names the key.
    """
    check_scripted(problem)
    return unchecked_payload(problem)


def unchecked_payload(problem: Problem) -> str:
    """The same for any dtype; where it is narrower than the accumulator, the op extends it."""
    if isinstance(problem, Conv2d):
        body = _convolution(problem)
    elif isinstance(problem, Matmul):
        body = _matmul(problem)
    else:
        raise UnsupportedError(f"{problem}: no payload", "op")
    arguments = ", ".join(_argument(problem, name) for name in argument_names(problem))
    result = _tensor(problem, "C")
    lines = [*_initial(problem), *body, *_epilogue(problem)]
    text = "\n".join(f"  {line}" for line in lines)
    return f"func.func @{ENTRY}({arguments}) -> {result} {{\n{text}\n}}\n"


def _tensor(problem: Problem, name: str) -> str:
    element = problem.element
    narrow = name in ("A", "B")
    return _type(problem.operand_shapes[name], element.name if narrow else element.accumulator)


def _type(shape: tuple[int, ...], element: str) -> str:
    return f"tensor<{'x'.join(map(str, shape))}x{element}>"


def _argument(problem: Problem, name: str) -> str:
    writable = "true" if name == "C" else "false"
    return f"%{name}: {_tensor(problem, name)} {{bufferization.writable = {writable}}}"


def _zero(problem: Problem) -> str:
    literal = "0.0" if problem.element.is_float else "0"
    return f"%zero = arith.constant {literal} : {problem.element.accumulator}"


def _add(problem: Problem) -> str:
    return "arith.addf" if problem.element.is_float else "arith.addi"


def _initial(problem: Problem) -> list[str]:
    """What the contraction adds to: zero, the bias, or what C holds."""
    element, result = problem.element.accumulator, _tensor(problem, "C")
    rank = len(problem.operand_shapes["C"])
    accumulates = getattr(problem, "init", "zero") == "accumulate"
    lines = [_zero(problem)]
    if not getattr(problem, "bias", False):
        if accumulates:
            return lines
        fill = f"%init = linalg.fill ins(%zero : {element}) outs(%C : {result}) -> {result}"
        return [*lines, fill]
    if not accumulates:
        leading = ", ".join(map(str, range(rank - 1)))
        broadcast = (
            f"%init = linalg.broadcast ins(%bias : {_tensor(problem, 'bias')}) "
            f"outs(%C : {result}) dimensions = [{leading}]"
        )
        return [*lines, broadcast]
    dims = ", ".join(f"d{i}" for i in range(rank))
    return [
        *lines,
        f"%init = linalg.generic {{indexing_maps = [affine_map<({dims}) -> (d{rank - 1})>, "
        f"affine_map<({dims}) -> ({dims})>], iterator_types = [{_parallel(rank)}]}} "
        f"ins(%bias : {_tensor(problem, 'bias')}) outs(%C : {result}) {{",
        f"^bb0(%b: {element}, %c: {element}):",
        f"  %s = {_add(problem)} %c, %b : {element}",
        f"  linalg.yield %s : {element}",
        f"}} -> {result}",
    ]


def _parallel(rank: int) -> str:
    return ", ".join(['"parallel"'] * rank)


def _init_name(problem: Problem) -> str:
    accumulates = getattr(problem, "init", "zero") == "accumulate"
    return "%C" if accumulates and not getattr(problem, "bias", False) else "%init"


def _matmul(problem: Matmul) -> list[str]:
    op = "linalg.batch_matmul" if problem.batch > 1 else "linalg.matmul"
    return _contraction(problem, op, "%A", _tensor(problem, "A"))


def _convolution(problem: Conv2d) -> list[str]:
    lines: list[str] = []
    image, image_type = "%A", _tensor(problem, "A")
    if problem.pad:
        padded = _type(padded_image(problem), problem.dtype)
        low = f"[0, {problem.pad}, {problem.pad}, 0]"
        lines += [
            f"%padded = tensor.pad %A low{low} high{low} {{",
            "^bb0(%i: index, %y: index, %x: index, %c: index):",
            f"  tensor.yield %zero : {problem.dtype}",
            f"}} : {image_type} to {padded}",
        ]
        image, image_type = "%padded", padded
    op = (
        f"linalg.conv_2d_nhwc_hwcf {{dilations = dense<{problem.dilation}> : tensor<2xi64>, "
        f"strides = dense<{problem.stride}> : tensor<2xi64>}}"
    )
    return lines + _contraction(problem, op, image, image_type)


def padded_image(problem: Conv2d) -> tuple[int, ...]:
    """The shape of the image with its zero padding, [n, h, w, ci]."""
    n, h, w, ci = problem.operand_shapes["A"]
    return n, h + 2 * problem.pad, w + 2 * problem.pad, ci


def _contraction(problem: Problem, op: str, image: str, image_type: str) -> list[str]:
    result = _tensor(problem, "C")
    return [
        f"%product = {op} ins({image}, %B : {image_type}, {_tensor(problem, 'B')}) "
        f"outs({_init_name(problem)} : {result}) -> {result}"
    ]


def _epilogue(problem: Problem) -> list[str]:
    result, element = _tensor(problem, "C"), problem.element.accumulator
    if getattr(problem, "epilogue", "none") != "relu":
        return [f"return %product : {result}"]
    rank = len(problem.operand_shapes["C"])
    dims = ", ".join(f"d{i}" for i in range(rank))
    maximum = "arith.maximumf" if problem.element.is_float else "arith.maxsi"
    return [
        f"%activated = linalg.generic {{indexing_maps = [affine_map<({dims}) -> ({dims})>], "
        f"iterator_types = [{_parallel(rank)}]}} outs(%product : {result}) {{",
        f"^bb0(%p: {element}):",
        f"  %r = {maximum} %p, %zero : {element}",
        f"  linalg.yield %r : {element}",
        f"}} -> {result}",
        f"return %activated : {result}",
    ]
