"""Payloads of several kinds, each with other ways to write it, right ones and wrong ones.

Extents divide by nothing. `to` names the type that a value passes through on its way.
"""

from itertools import count

# The bits that f32 loses in types of its exponent: bf16, and what tensor cores call tf32.
LOST = {"bf16": 16, "tf32": 13}
ID, ROW = "affine_map<(i, j) -> (i, j)>", "affine_map<(i, j) -> (i)>"
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


def matmul(to: str = "f32", sums_in: str = "f32", m: int = 13, n: int = 17, k: int = 29) -> str:
    """C + A B, on operands taken through a type, with sums taken through another."""
    lines, x = narrowed("x", to)
    more, s = narrowed("s", sums_in)
    return f"""
func.func @f(%a: tensor<{m}x{k}xf32>, %b: tensor<{k}x{n}xf32>, %c: tensor<{m}x{n}xf32>)
    -> tensor<{m}x{n}xf32> {{
  %0 = linalg.generic {{indexing_maps = [affine_map<(m, n, k) -> (m, k)>,
      affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>],
      iterator_types = ["parallel", "parallel", "reduction"]}}
      ins(%a, %b : tensor<{m}x{k}xf32>, tensor<{k}x{n}xf32>) outs(%c : tensor<{m}x{n}xf32>) {{
  ^bb0(%x: f32, %y: f32, %z: f32):
    {lines}%p = arith.mulf %{x}, %y : f32
    %s = arith.addf %z, %p : f32
    {more}linalg.yield %{s} : f32
  }} -> tensor<{m}x{n}xf32>
  return %0 : tensor<{m}x{n}xf32>
}}"""


def gelu(to: str = "f32", function: str = "erf") -> str:
    """x (1 + erf(x / sqrt 2)) / 2, or by tanh; what the function gives is taken through a type."""
    lines, e = narrowed("e", to)
    inner = (
        "%u = arith.mulf %x, %root : f32"
        if function == "erf"
        else "%q = arith.mulf %x, %x : f32\n%r = arith.mulf %q, %cubic : f32\n"
        "%v = arith.addf %r, %one : f32\n%w = arith.mulf %v, %x : f32\n"
        "%u = arith.mulf %w, %slope : f32"
    )
    return f"""
func.func @f(%a: tensor<7x13xf32>) -> tensor<7x13xf32> {{
  %half = arith.constant 0.5 : f32
  %one = arith.constant 1.0 : f32
  %root = arith.constant 0.707106781 : f32
  %cubic = arith.constant 0.044715 : f32
  %slope = arith.constant 0.797884561 : f32
  %o = tensor.empty() : tensor<7x13xf32>
  %0 = linalg.generic {{indexing_maps = [{ID}, {ID}], iterator_types = ["parallel", "parallel"]}}
      ins(%a : tensor<7x13xf32>) outs(%o : tensor<7x13xf32>) {{
  ^bb0(%x: f32, %z: f32):
    {inner}
    %e = math.{function} %u : f32
    {lines}%t = arith.addf %{e}, %one : f32
    %h = arith.mulf %x, %half : f32
    %g = arith.mulf %t, %h : f32
    linalg.yield %g : f32
  }} -> tensor<7x13xf32>
  return %0 : tensor<7x13xf32>
}}"""


def softmax(to: str = "f32", by: str = "divf", low: str = "0xFF800000") -> str:
    """Of rows, less their largest; the exponentials are taken through a type.

    They are divided by their sum (`divf`), or multiplied by its inverse (`mulf`).
    """
    lines, e = narrowed("e", to)
    invert = "%i = arith.divf %one, %y : f32" if by == "mulf" else ""
    return f"""
func.func @f(%a: tensor<7x131xf32>) -> tensor<7x131xf32> {{
  %low = arith.constant {low} : f32
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  %r = tensor.empty() : tensor<7xf32>
  %o = tensor.empty() : tensor<7x131xf32>
  %m0 = linalg.fill ins(%low : f32) outs(%r : tensor<7xf32>) -> tensor<7xf32>
  %m = linalg.generic {{indexing_maps = [{ID}, {ROW}], iterator_types = ["parallel", "reduction"]}}
      ins(%a : tensor<7x131xf32>) outs(%m0 : tensor<7xf32>) {{
  ^bb0(%x: f32, %y: f32):
    %t = arith.maximumf %x, %y : f32
    linalg.yield %t : f32
  }} -> tensor<7xf32>
  %p = linalg.generic {{indexing_maps = [{ID}, {ROW}, {ID}],
      iterator_types = ["parallel", "parallel"]}}
      ins(%a, %m : tensor<7x131xf32>, tensor<7xf32>) outs(%o : tensor<7x131xf32>) {{
  ^bb0(%x: f32, %y: f32, %z: f32):
    %d = arith.subf %x, %y : f32
    %e = math.exp %d : f32
    {lines}linalg.yield %{e} : f32
  }} -> tensor<7x131xf32>
  %s0 = linalg.fill ins(%zero : f32) outs(%r : tensor<7xf32>) -> tensor<7xf32>
  %s = linalg.generic {{indexing_maps = [{ID}, {ROW}], iterator_types = ["parallel", "reduction"]}}
      ins(%p : tensor<7x131xf32>) outs(%s0 : tensor<7xf32>) {{
  ^bb0(%x: f32, %y: f32):
    %t = arith.addf %x, %y : f32
    linalg.yield %t : f32
  }} -> tensor<7xf32>
  %q = linalg.generic {{indexing_maps = [{ID}, {ROW}, {ID}],
      iterator_types = ["parallel", "parallel"]}}
      ins(%p, %s : tensor<7x131xf32>, tensor<7xf32>) outs(%o : tensor<7x131xf32>) {{
  ^bb0(%x: f32, %y: f32, %z: f32):
    {invert}
    %t = arith.{by} %x, {"%i" if invert else "%y"} : f32
    linalg.yield %t : f32
  }} -> tensor<7x131xf32>
  return %q : tensor<7x131xf32>
}}"""


def layer_norm(to: str = "f32", root: str = "rsqrt") -> str:
    """Rows less their mean, by the root of their variance; the mean is taken through a type."""
    lines, y = narrowed("y", to)
    scale = (
        "%k = math.rsqrt %v : f32"
        if root == "rsqrt"
        else "%q = math.sqrt %v : f32\n%k = arith.divf %one, %q : f32"
    )
    return f"""
func.func @f(%a: memref<7x131xf32>, %b: memref<7x131xf32>, %s: memref<7xf32>, %w: memref<7xf32>) {{
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  %tiny = arith.constant 1.0e-5 : f32
  %count = arith.constant 131.0 : f32
  linalg.fill ins(%zero : f32) outs(%s : memref<7xf32>)
  linalg.fill ins(%zero : f32) outs(%w : memref<7xf32>)
  linalg.generic {{indexing_maps = [{ID}, {ROW}], iterator_types = ["parallel", "reduction"]}}
      ins(%a : memref<7x131xf32>) outs(%s : memref<7xf32>) {{
  ^bb0(%x: f32, %z: f32):
    %t = arith.addf %x, %z : f32
    linalg.yield %t : f32
  }}
  linalg.generic {{indexing_maps = [{ID}, {ROW}, {ROW}],
      iterator_types = ["parallel", "reduction"]}}
      ins(%a, %s : memref<7x131xf32>, memref<7xf32>) outs(%w : memref<7xf32>) {{
  ^bb0(%x: f32, %y: f32, %z: f32):
    {lines}%m = arith.divf %{y}, %count : f32
    %d = arith.subf %x, %m : f32
    %p = arith.mulf %d, %d : f32
    %t = arith.addf %p, %z : f32
    linalg.yield %t : f32
  }}
  linalg.generic {{indexing_maps = [{ID}, {ROW}, {ROW}, {ID}],
      iterator_types = ["parallel", "parallel"]}}
      ins(%a, %s, %w : memref<7x131xf32>, memref<7xf32>, memref<7xf32>)
      outs(%b : memref<7x131xf32>) {{
  ^bb0(%x: f32, %y: f32, %u: f32, %z: f32):
    {lines}%m = arith.divf %{y}, %count : f32
    %d = arith.subf %x, %m : f32
    %e = arith.divf %u, %count : f32
    %v = arith.addf %e, %tiny : f32
    {scale}
    %t = arith.mulf %d, %k : f32
    linalg.yield %t : f32
  }}
  return
}}"""


def split_matmul(m: int = 13, n: int = 17, k: int = 28, parts: int = 4) -> str:
    """C + A B in sums of `parts` products each, with fused multiplications, added in the end."""
    rest = k // parts
    partial, result = f"tensor<{rest}x{m}x{n}xf32>", f"tensor<{m}x{n}xf32>"
    a, b = f"tensor<{m}x{parts}x{rest}xf32>", f"tensor<{parts}x{rest}x{n}xf32>"
    return f"""
func.func @f(%a: tensor<{m}x{k}xf32>, %b: tensor<{k}x{n}xf32>, %c: {result}) -> {result} {{
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : {partial}
  %i = linalg.fill ins(%zero : f32) outs(%e : {partial}) -> {partial}
  %x = tensor.expand_shape %a [[0], [1, 2]] output_shape [{m}, {parts}, {rest}]
      : tensor<{m}x{k}xf32> into {a}
  %y = tensor.expand_shape %b [[0, 1], [2]] output_shape [{parts}, {rest}, {n}]
      : tensor<{k}x{n}xf32> into {b}
  %p = linalg.generic {{indexing_maps = [affine_map<(m, n, o, i) -> (m, o, i)>,
      affine_map<(m, n, o, i) -> (o, i, n)>, affine_map<(m, n, o, i) -> (i, m, n)>],
      iterator_types = ["parallel", "parallel", "reduction", "parallel"]}}
      ins(%x, %y : {a}, {b}) outs(%i : {partial}) {{
  ^bb0(%u: f32, %v: f32, %w: f32):
    %s = math.fma %u, %v, %w : f32
    linalg.yield %s : f32
  }} -> {partial}
  %r = linalg.generic {{indexing_maps = [affine_map<(m, n, i) -> (i, m, n)>,
      affine_map<(m, n, i) -> (m, n)>], iterator_types = ["parallel", "parallel", "reduction"]}}
      ins(%p : {partial}) outs(%c : {result}) {{
  ^bb0(%u: f32, %w: f32):
    %s = arith.addf %u, %w : f32
    linalg.yield %s : f32
  }} -> {result}
  return %r : {result}
}}"""
