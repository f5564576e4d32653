"""A small network as PyTorch's exporters write it: on torch's dialect, weights as constants."""

import numpy as np


def residual(batch: str = "1") -> bytes:
    """A stem, a pool, a depthwise filter, a sum with what came before, a classifier.

    Args:
        batch: images, or `?`.
    """
    net = _Network()
    x = net.image("%x", f"{batch},3,13,13")
    x = net.conv(x, f"{batch},16,7,7", (16, 3, 3, 3), stride=2)
    y = net.conv(net.relu(x), f"{batch},16,7,7", (16, 1, 3, 3), groups=16)
    y = net.conv(y, f"{batch},16,7,7", (16, 16, 1, 1), pad=0)
    kind = net.kinds[y]
    total = net.put(f"torch.aten.add.Tensor {y}, {x}, %one : {kind}, {kind}, !torch.int", kind)
    x = net.max_pool(net.relu(total), f"{batch},16,4,4")
    x = net.mean(x, f"{batch},16")
    out = net.linear(x, f"{batch},20", (20, 16))
    body = "\n  ".join(net.lines)
    return f"""func.func @main(%x: {net.kinds["%x"]}) -> {net.kinds[out]} {{
  {body}
  return {out} : {net.kinds[out]}
}}
""".encode()


class _Network:
    """Lines of a function."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(0)
        self.kinds: dict[str, str] = {}
        self.lines = [
            "%none = torch.constant.none",
            "%true = torch.constant.bool true",
            "%false = torch.constant.bool false",
            *(f"%{name} = torch.constant.int {number}" for name, number in
              [("zero", 0), ("one", 1), ("two", 2), ("three", 3), ("sixteen", 16),
               ("last", -1), ("but_last", -2)]),
        ]  # fmt: skip

    def image(self, name: str, shape: str) -> str:
        """What is given."""
        self.kinds[name] = f"!torch.vtensor<[{shape}],f32>"
        return name

    def put(self, text: str, kind: str) -> str:
        """An op's result."""
        name = f"%{len(self.lines)}"
        self.lines.append(f"{name} = {text} -> {kind}")
        self.kinds[name] = kind
        return name

    def weight(self, shape: tuple[int, ...]) -> str:
        """Random values."""
        values = self.random.standard_normal(shape).round(3).tolist()
        name, sizes = f"%{len(self.lines)}", "x".join(map(str, shape))
        self.kinds[name] = f"!torch.vtensor<[{','.join(map(str, shape))}],f32>"
        self.lines.append(
            f"{name} = torch.vtensor.literal(dense<{values}> : tensor<{sizes}xf32>) "
            f": {self.kinds[name]}"
        )
        return name

    def pair(self, number: str) -> str:
        """A list of a number twice."""
        name = f"%{len(self.lines)}"
        self.lines.append(
            f"{name} = torch.prim.ListConstruct {number}, {number} "
            ": (!torch.int, !torch.int) -> !torch.list<int>"
        )
        return name

    def conv(
        self,
        x: str,
        out: str,
        filters: tuple[int, ...],
        *,
        stride: int = 1,
        pad: int = 1,
        groups: int = 1,
    ) -> str:
        """A convolution with a bias."""
        w, bias = self.weight(filters), self.weight(filters[:1])
        step, around, ones, zeros = (
            self.pair(f"%{name}")
            for name in (("two" if stride == 2 else "one"), ("one" if pad else "zero"), "one",
                         "zero")
        )  # fmt: skip
        kinds = [self.kinds[one] for one in (x, w, bias)]
        lists = ", ".join(["!torch.list<int>"] * 3)
        return self.put(
            f"torch.aten.convolution {x}, {w}, {bias}, {step}, {around}, {ones}, %false, {zeros}, "
            f"%{'sixteen' if groups > 1 else 'one'} : {', '.join(kinds)}, {lists}, !torch.bool, "
            "!torch.list<int>, !torch.int",
            f"!torch.vtensor<[{out}],f32>",
        )

    def relu(self, x: str) -> str:
        """Nothing below zero."""
        return self.put(f"torch.aten.relu {x} : {self.kinds[x]}", self.kinds[x])

    def max_pool(self, x: str, out: str) -> str:
        """The largest of 3x3, stride 2, padding 1."""
        three, two, one = (self.pair(f"%{name}") for name in ("three", "two", "one"))
        lists = ", ".join(["!torch.list<int>"] * 4)
        return self.put(
            f"torch.aten.max_pool2d {x}, {three}, {two}, {one}, {one}, %false : {self.kinds[x]}, "
            f"{lists}, !torch.bool",
            f"!torch.vtensor<[{out}],f32>",
        )

    def mean(self, x: str, out: str) -> str:
        """Of the pixels of each channel."""
        name = f"%{len(self.lines)}"
        self.lines.append(
            f"{name} = torch.prim.ListConstruct %last, %but_last "
            ": (!torch.int, !torch.int) -> !torch.list<int>"
        )
        return self.put(
            f"torch.aten.mean.dim {x}, {name}, %false, %none : {self.kinds[x]}, "
            "!torch.list<int>, !torch.bool, !torch.none",
            f"!torch.vtensor<[{out}],f32>",
        )

    def linear(self, x: str, out: str, shape: tuple[int, int]) -> str:
        """A product with weights, and a bias."""
        w, bias = self.weight(shape), self.weight(shape[:1])
        return self.put(
            f"torch.aten.linear {x}, {w}, {bias} : "
            f"{', '.join(self.kinds[one] for one in (x, w, bias))}",
            f"!torch.vtensor<[{out}],f32>",
        )
