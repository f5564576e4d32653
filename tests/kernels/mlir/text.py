"""Modules as text: functions, and generics on f32."""


def function(arguments: str, body: str, value: str, kind: str, name: str = "f") -> str:
    """A function that returns a value."""
    return f"func.func @{name}({arguments}) -> {kind} {{\n{body}\n  return {value} : {kind}\n}}\n"


def generic(
    name: str, sizes: tuple[int, ...], ins: list[str], out: str, body: str, reduces: int = 0,
    result: str = "r",
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
    types = [f"tensor<{''.join(f'{extent[a]}x' for a in w.split(', '))}f32>" for _, w in axes]
    named = "".join(f"%{letter}: f32, " for letter, _ in zip("abc", ins, strict=False))
    return f"""
  %{name} = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{kinds}]}}
      ins({", ".join(one for one, _ in axes[:-1])} : {", ".join(types[:-1])})
      outs({axes[-1][0]} : {types[-1]}) {{
    ^bb0({named}%o: f32):
      {body}
      linalg.yield %{result} : f32
  }} -> {types[-1]}"""


def filled(name: str, number: str, shape: str) -> str:
    """A tensor of f32 that is filled with a number."""
    kind = f"tensor<{shape}xf32>"
    return f"""
  %{name}_number = arith.constant {number} : f32
  %{name}_empty = tensor.empty() : {kind}
  %{name} = linalg.fill ins(%{name}_number : f32) outs(%{name}_empty : {kind}) -> {kind}"""
