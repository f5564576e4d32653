"""Modules as text: payloads of several kinds, each with other ways to write it."""

from itertools import count


def function(arguments: str, body: str, value: str, kind: str, name: str = "f") -> str:
    """A function that returns a value."""
    return f"func.func @{name}({arguments}) -> {kind} {{\n{body}\n  return {value} : {kind}\n}}\n"


def generic(
    name: str, sizes: tuple[int, ...], ins: list[str], out: str, body: str, reduces: int = 0,
    result: str = "r", element: str = "f32",
) -> str:  # fmt: skip
    """A linalg.generic over loops of `sizes`; its operands are like `%x[d0, d1]`.

    The body gives `%result` of %a, %b, %c and %o; an axis `0` has one element.
    """
    loops = len(sizes)
    space = ", ".join(f"d{i}" for i in range(loops))
    axes = [one.rstrip("]").split("[") for one in (*ins, out)]
    maps = ", ".join(f"affine_map<({space}) -> ({where})>" for _, where in axes)
    kinds = ", ".join('"reduction"' if i >= loops - reduces else '"parallel"' for i in range(loops))
    extent = {"0": 1} | {f"d{i}": size for i, size in enumerate(sizes)}
    types = [f"tensor<{''.join(f'{extent[a]}x' for a in w.split(', '))}{element}>" for _, w in axes]
    named = "".join(f"%{letter}: {element}, " for letter, _ in zip("abc", ins, strict=False))
    return f"""
  %{name} = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{kinds}]}}
      ins({", ".join(one for one, _ in axes[:-1])} : {", ".join(types[:-1])})
      outs({axes[-1][0]} : {types[-1]}) {{
    ^bb0({named}%o: {element}):
      {body}
      linalg.yield %{result} : {element}
  }} -> {types[-1]}"""


def pointwise(body: str, element: str = "f32") -> str:
    """A function of two tensors; the body gives %r of their elements %a and %b."""
    kind = f"tensor<61x{element}>"
    made = generic("0", (61,), ["%left[d0]", "%right[d0]"], "%e[d0]", body, element=element)
    return function(
        f"%left: {kind}, %right: {kind}", f"  %e = tensor.empty() : {kind}{made}", "%0", kind
    )


def filled(name: str, number: str, shape: str) -> str:
    """A tensor of f32 that is filled with a number."""
    kind = f"tensor<{shape}xf32>"
    return f"""
  %{name}_number = arith.constant {number} : f32
  %{name}_empty = tensor.empty() : {kind}
  %{name} = linalg.fill ins(%{name}_number : f32) outs(%{name}_empty : {kind}) -> {kind}"""


# The bits that f32 loses in types of its exponent: bf16, and what tensor cores call tf32.
LOST = {"bf16": 16, "tf32": 13}
_names = count()


def narrowed(value: str, to: str) -> tuple[str, str]:
    """Lines that take %value through another type, and the name of what comes out."""
    name = f"n{next(_names)}"
    if to == "f32":
        return "", value
    if to in LOST:
        return (
            f"%{name}b = arith.bitcast %{value} : f32 to i32\n"
            f"%{name}m = arith.constant {-(1 << LOST[to])} : i32\n"
            f"%{name}c = arith.andi %{name}b, %{name}m : i32\n"
            f"%{name} = arith.bitcast %{name}c : i32 to f32\n"
        ), name
    return (
        f"%{name}x = arith.truncf %{value} : f32 to {to}\n"
        f"%{name} = arith.extf %{name}x : {to} to f32\n"
    ), name


ROWS, KIND = (7, 131), "tensor<7x131xf32>"


def matmul(to: str = "f32", sums_in: str = "f32", m: int = 13, n: int = 17, k: int = 29) -> str:
    """C + A B, on operands taken through a type, with sums taken through another."""
    lines, a = narrowed("a", to)
    more, s = narrowed("s", sums_in)
    body = f"{lines}%p = arith.mulf %{a}, %b : f32\n%s = arith.addf %o, %p : f32\n{more}"
    kinds = [f"tensor<{shape}xf32>" for shape in (f"{m}x{k}", f"{k}x{n}", f"{m}x{n}")]
    product = generic("0", (m, n, k), ["%left[d0, d2]", "%right[d2, d1]"], "%sums[d0, d1]", body, 1,
                      s)  # fmt: skip
    arguments = f"%left: {kinds[0]}, %right: {kinds[1]}, %sums: {kinds[2]}"
    return function(arguments, product, "%0", kinds[2])


def gelu(to: str = "f32", function_of: str = "erf") -> str:
    """x (1 + erf(x / sqrt 2)) / 2, or by tanh; what the function gives is taken through a type."""
    lines, e = narrowed("e", to)
    inner = (
        "%u = arith.mulf %a, %root : f32"
        if function_of == "erf"
        else "%q = arith.mulf %a, %a : f32\n%c = arith.mulf %q, %cubic : f32\n"
        "%v = arith.addf %c, %one : f32\n%w = arith.mulf %v, %a : f32\n"
        "%u = arith.mulf %w, %slope : f32"
    )
    numbers = {"half": 0.5, "one": 1.0, "root": 0.707106781, "cubic": 0.044715,
               "slope": 0.797884561}  # fmt: skip
    constants = "\n".join(
        f"  %{name} = arith.constant {one} : f32" for name, one in numbers.items()
    )
    made = generic("0", (7, 13), ["%x[d0, d1]"], "%empty[d0, d1]", f"""{inner}
      %e = math.{function_of} %u : f32
      {lines}%t = arith.addf %{e}, %one : f32
      %h = arith.mulf %a, %half : f32
      %r = arith.mulf %t, %h : f32""")  # fmt: skip
    empty = "  %empty = tensor.empty() : tensor<7x13xf32>"
    kind = "tensor<7x13xf32>"
    return function(f"%x: {kind}", f"{constants}\n{empty}{made}", "%0", kind)


def softmax(to: str = "f32", by: str = "divf", low: str = "0xFF800000") -> str:
    """Of rows, less their largest; the exponentials are taken through a type.

    They are divided by their sum (`divf`), or multiplied by its inverse (`mulf`).
    """
    lines, e = narrowed("e", to)
    quotient = "%r = arith.divf %a, %b : f32" if by == "divf" else (
        "%one = arith.constant 1.0 : f32\n%i = arith.divf %one, %b : f32\n"
        "%r = arith.mulf %a, %i : f32")  # fmt: skip
    power = f"%d = arith.subf %a, %b : f32\n%e = math.exp %d : f32\n{lines}"
    return function(f"%x: {KIND}", "".join([
        f"  %wide = tensor.empty() : {KIND}",
        filled("lows", low, "7"),
        generic("m", ROWS, ["%x[d0, d1]"], "%lows[d0]", "%r = arith.maximumf %a, %o : f32", 1),
        generic("p", ROWS, ["%x[d0, d1]", "%m[d0]"], "%wide[d0, d1]", power, result=e),
        filled("zeros", "0.0", "7"),
        generic("s", ROWS, ["%p[d0, d1]"], "%zeros[d0]", "%r = arith.addf %a, %o : f32", 1),
        generic("q", ROWS, ["%p[d0, d1]", "%s[d0]"], "%wide[d0, d1]", quotient),
    ]), "%q", KIND)  # fmt: skip


def layer_norm(to: str = "f32", root: str = "rsqrt") -> str:
    """Rows less their mean, by the root of their variance; the mean is taken through a type."""
    lines, b = narrowed("b", to)
    off = f"{lines}%m = arith.divf %{b}, %count : f32\n%d = arith.subf %a, %m : f32\n"
    scale = (
        "%k = math.rsqrt %v : f32"
        if root == "rsqrt"
        else "%one = arith.constant 1.0 : f32\n%q = math.sqrt %v : f32\n"
        "%k = arith.divf %one, %q : f32"
    )
    square = f"{off}%p = arith.mulf %d, %d : f32\n%r = arith.addf %p, %o : f32"
    scaled = (f"{off}%e = arith.divf %c, %count : f32\n%v = arith.addf %e, %tiny : f32\n{scale}\n"
              "%r = arith.mulf %d, %k : f32")  # fmt: skip
    return function(f"%x: {KIND}", "".join([
        "  %tiny = arith.constant 1.0e-5 : f32\n  %count = arith.constant 131.0 : f32\n",
        f"  %wide = tensor.empty() : {KIND}",
        filled("zeros", "0.0", "7"),
        generic("s", ROWS, ["%x[d0, d1]"], "%zeros[d0]", "%r = arith.addf %a, %o : f32", 1),
        generic("w", ROWS, ["%x[d0, d1]", "%s[d0]"], "%zeros[d0]", square, 1),
        generic("0", ROWS, ["%x[d0, d1]", "%s[d0]", "%w[d0]"], "%wide[d0, d1]", scaled),
    ]), "%0", KIND)  # fmt: skip


def split_matmul(m: int = 13, n: int = 17, k: int = 28, parts: int = 4) -> str:
    """C + A B in sums of `parts` products each, with fused multiplications, added in the end."""
    rest = k // parts
    a, b = f"tensor<{m}x{parts}x{rest}xf32>", f"tensor<{parts}x{rest}x{n}xf32>"
    whole = [f"tensor<{shape}xf32>" for shape in (f"{m}x{k}", f"{k}x{n}", f"{m}x{n}")]
    return function(f"%left: {whole[0]}, %right: {whole[1]}, %sums: {whole[2]}", "".join([
        filled("zeros", "0.0", f"{rest}x{m}x{n}"),
        f"""
  %x = tensor.expand_shape %left [[0], [1, 2]] output_shape [{m}, {parts}, {rest}]
      : {whole[0]} into {a}
  %y = tensor.expand_shape %right [[0, 1], [2]] output_shape [{parts}, {rest}, {n}]
      : {whole[1]} into {b}""",
        generic("p", (rest, m, n, parts), ["%x[d1, d3, d0]", "%y[d3, d0, d2]"],
                "%zeros[d0, d1, d2]", "%r = math.fma %a, %b, %o : f32", 1),
        generic("0", (m, n, rest), ["%p[d2, d0, d1]"], "%sums[d0, d1]",
                "%r = arith.addf %a, %o : f32", 1),
    ]), "%0", whole[2])  # fmt: skip
