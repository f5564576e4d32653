"""linalg on tensors, with named contractions on nhwc images, as people write it by hand."""

from collections.abc import Sequence
from typing import Any

from examples.models.graph import Layer, Shape
from examples.models.spellings.writer import Writer, tensor


class Linalg(Writer):
    """Named contractions; a bias and a relu in one generic after them."""

    channel_axis = 3

    def leave(self) -> str:
        return "return"

    def constant_op(self) -> str:
        return "arith.constant"

    def conv(self, layer: Layer, x: str) -> str:
        given, out = layer.reads[0].shape, layer.gives.shape
        first, second = layer.weights
        filters, bias = self.graph.weights[first], self.weight(self.graph.weights[second], second)
        op = "linalg.conv_2d_nhwc_hwcf"
        if layer.settings["groups"] > 1:
            op, filters = "linalg.depthwise_conv_2d_nhwc_hwc", filters[:, :, 0]
        x, shape = self.padded(x, given, layer.settings["pad"], "0.0")
        product = self.put(
            f"{op} {{dilations = dense<1> : tensor<2xi64>, strides = "
            f"dense<{layer.settings['stride']}> : tensor<2xi64>}} ins({x}, "
            f"{self.weight(filters, first)} : {tensor(shape, 'f32')}, "
            f"{tensor(filters.shape, 'f32')}) "
            f"outs({self.filled(out)} : {tensor(out, 'f32')}) -> {tensor(out, 'f32')}"
        )
        return self.finished(product, bias, out, layer.settings)

    def linear(self, layer: Layer, x: str) -> str:
        out, dtype = layer.gives.shape, layer.reads[0].dtype
        weights, bias = self._weights(layer, dtype)
        product = self.put(
            f"linalg.matmul ins({x}, {weights} : {self.type_of(layer.reads[0])}, "
            f"{self._type(layer.weights[0], dtype)}) outs({self.filled(out)} : "
            f"{tensor(out, 'f32')}) -> {tensor(out, 'f32')}"
        )
        return self.finished(product, bias, out, layer.settings)

    def finished(self, product: str, bias: str, out: Shape, settings: dict[str, Any]) -> str:
        """The product with its bias, and with relu if requested, which may have a ceiling."""
        rank = len(out)
        body, gives = ["%s = arith.addf %a, %b : f32"], "%s"
        if settings["relu"]:
            body, gives = [*body, *self.relu("%s")], "%r"
        if (ceiling := settings.get("ceiling")) is not None:
            body += [f"%c = arith.constant {ceiling}.0 : f32", "%l = arith.minimumf %r, %c : f32"]
            gives = "%l"
        last = f"d{rank - 1}"
        return self.generic([(product, all_of(rank)), (bias, last)], out, body, gives)

    def narrow(self, layer: Layer, x: str) -> str:
        body = ["%s = arith.truncf %a : f32 to bf16"]
        return self.elementwise(layer, [x], body, "%s", "bf16")

    def add(self, layer: Layer, x: str, y: str) -> str:
        body, relu = ["%s = arith.addf %a, %b : f32"], layer.settings["relu"]
        if relu:
            body += self.relu("%s")
        return self.elementwise(layer, [x, y], body, "%r" if relu else "%s")

    def relu(self, x: str) -> list[str]:
        """The lines that give %r."""
        return ["%z = arith.constant 0.0 : f32", f"%r = arith.maximumf {x}, %z : f32"]

    def max_pool(self, layer: Layer, x: str) -> str:
        return self.pooled(layer, x, "linalg.pooling_nhwc_max", "tensor")

    def pooled(self, layer: Layer, x: str, op: str, container: str) -> str:
        """A named pooling of 3x3, stride 2, padding 1."""
        given, out = layer.reads[0].shape, self.shape_of(layer.gives.shape)
        x, shape = self.padded(x, given, 1, "0xFF800000")
        window = self.put("tensor.empty() : tensor<3x3xf32>")
        return self.put(
            f"{op} {{dilations = dense<1> : {container}<2xi64>, strides = dense<2> : "
            f"{container}<2xi64>}} ins({x}, {window} : {tensor(shape, 'f32')}, tensor<3x3xf32>) "
            f"outs({self.filled(out, '0xFF800000')} : {tensor(out, 'f32')}) -> "
            f"{tensor(out, 'f32')}"
        )

    def mean_pool(self, layer: Layer, x: str) -> str:
        n, h, w, c = layer.reads[0].shape
        shape = self.shape_of((n, h, w, c))
        total = self.reduced(x, shape, [0, self.channel_axis], "arith.addf", "0.0")
        body = [f"%n = arith.constant {float(h * w)} : f32", "%s = arith.divf %a, %n : f32"]
        return self.elementwise(layer, [total], body, "%s")

    def split_heads(self, layer: Layer, x: str) -> str:
        (heads, m, d), dtype = layer.gives.shape, layer.gives.dtype
        wide = self.put(
            f"tensor.expand_shape {x} [[0], [1, 2]] output_shape [{m}, {heads}, {d}] : "
            f"{tensor((m, heads * d), dtype)} into {tensor((m, heads, d), dtype)}"
        )
        return self.transposed(wide, (m, heads, d), (1, 0, 2), dtype)

    def merge_heads(self, layer: Layer, x: str) -> str:
        (heads, m, d), dtype = layer.reads[0].shape, layer.gives.dtype
        swapped = self.transposed(x, (heads, m, d), (1, 0, 2), dtype)
        return self.put(
            f"tensor.collapse_shape {swapped} [[0], [1, 2]] : {tensor((m, heads, d), dtype)} "
            f"into {tensor((m, heads * d), dtype)}"
        )

    def transpose(self, layer: Layer, x: str) -> str:
        return self.transposed(x, layer.reads[0].shape, (1, 0), layer.gives.dtype)

    def scores(self, layer: Layer, q: str, k: str) -> str:
        maps = ", ".join(
            f"affine_map<(z, m, n, k) -> (z, {at})>" for at in ("m, k", "n, k", "m, n")
        )
        return self.batched(layer, q, k, f" indexing_maps = [{maps}]")

    def mix(self, layer: Layer, p: str, v: str) -> str:
        return self.batched(layer, p, v, "")

    def batched(self, layer: Layer, a: str, b: str, maps: str) -> str:
        """A product of each head."""
        out = layer.gives.shape
        return self.put(
            f"linalg.batch_matmul{maps} ins({a}, {b} : {self.type_of(layer.reads[0])}, "
            f"{self.type_of(layer.reads[1])}) outs({self.filled(out)} : {tensor(out, 'f32')}) "
            f"-> {tensor(out, 'f32')}"
        )

    def scaled(self, layer: Layer, x: str) -> str:
        by = f"%f = arith.constant {layer.settings['by']:.9e} : f32"
        return self.elementwise(layer, [x], [by, "%s = arith.mulf %a, %f : f32"], "%s")

    def softmax(self, layer: Layer, x: str) -> str:
        shape = layer.gives.shape
        rank = len(shape)
        rows = ", ".join(f"d{i}" for i in range(rank - 1))
        lead = list(range(rank - 1))
        most = self.reduced(x, shape, lead, "arith.maximumf", "0xFF800000")
        body = ["%t = arith.subf %a, %b : f32", "%s = math.exp %t : f32"]
        powers = self.generic([(x, all_of(rank)), (most, rows)], shape, body, "%s")
        total = self.reduced(powers, shape, lead, "arith.addf", "0.0")
        body = ["%s = arith.divf %a, %b : f32"]
        return self.generic([(powers, all_of(rank)), (total, rows)], shape, body, "%s")

    def gelu(self, layer: Layer, x: str) -> str:
        body = [
            "%h = arith.constant 5.000000e-01 : f32",
            "%o = arith.constant 1.000000e+00 : f32",
            "%q = arith.constant 0.707106769 : f32",
            "%t = arith.mulf %a, %q : f32",
            "%u = math.erf %t : f32",
            "%v = arith.addf %u, %o : f32",
            "%w = arith.mulf %v, %h : f32",
            "%s = arith.mulf %a, %w : f32",
        ]
        return self.elementwise(layer, [x], body, "%s")

    def layer_norm(self, layer: Layer, x: str) -> str:
        m, n = shape = layer.gives.shape
        scale, shift = self._weights(layer)
        divide = [f"%n = arith.constant {float(n)} : f32", "%s = arith.divf %a, %n : f32"]
        total = self.reduced(x, shape, [0], "arith.addf", "0.0")
        mean = self.generic([(total, "d0")], (m,), divide, "%s")
        body = ["%s = arith.subf %a, %b : f32"]
        centred = self.generic([(x, "d0, d1"), (mean, "d0")], shape, body, "%s")
        square = self.generic([(centred, "d0, d1")], shape, ["%s = arith.mulf %a, %a : f32"], "%s")
        total = self.reduced(square, shape, [0], "arith.addf", "0.0")
        body = [
            *divide,
            f"%e = arith.constant {layer.settings['epsilon']:.9e} : f32",
            "%t = arith.addf %s, %e : f32",
            "%r = math.rsqrt %t : f32",
        ]
        spread = self.generic([(total, "d0")], (m,), body, "%r")
        body = [
            "%t = arith.mulf %a, %b : f32",
            "%u = arith.mulf %t, %c : f32",
            "%s = arith.addf %u, %d : f32",
        ]
        reads = [(centred, "d0, d1"), (spread, "d0"), (scale, "d1"), (shift, "d1")]
        return self.generic(reads, shape, body, "%s")

    def padded(self, x: str, shape: Shape, pad: int, value: str) -> tuple[str, Shape]:
        """An image with a border, in this spelling's layout, and its shape."""
        here = self.shape_of(shape)
        if not pad:
            return x, here
        n, h, w, c = shape
        grown = self.shape_of((n, h + 2 * pad, w + 2 * pad, c))
        by = [(new - old) // 2 for new, old in zip(grown, here, strict=True)]
        edge = self.put(f"arith.constant {value} : f32")
        name = self.fresh()
        self.lines += [
            f"{name} = tensor.pad {x} low{by} high{by} {{",
            "^bb0(%i: index, %j: index, %k: index, %l: index):",
            f"  tensor.yield {edge} : f32",
            f"}} : {tensor(here, 'f32')} to {tensor(grown, 'f32')}",
        ]
        return name, grown

    def filled(self, shape: Shape, value: str = "0.0") -> str:
        """A tensor of one value, f32."""
        kind = tensor(shape, "f32")
        splat = self.put(f"arith.constant {value} : f32")
        empty = self.put(f"tensor.empty() : {kind}")
        return self.put(f"linalg.fill ins({splat} : f32) outs({empty} : {kind}) -> {kind}")

    def transposed(self, x: str, shape: Shape, order: tuple[int, ...], dtype: str = "f32") -> str:
        """X with its dimensions in another order."""
        swapped = tensor(tuple(shape[i] for i in order), dtype)
        empty = self.put(f"tensor.empty() : {swapped}")
        return self.put(
            f"linalg.transpose ins({x} : {tensor(shape, dtype)}) outs({empty} : {swapped}) "
            f"permutation = [{', '.join(map(str, order))}]"
        )

    def elementwise(
        self, layer: Layer, reads: Sequence[str], body: list[str], gives: str, dtype: str = "f32"
    ) -> str:
        """One generic over the whole shape."""
        shape = self.shape_of(layer.gives.shape)
        whole = all_of(len(shape))
        return self.generic([(name, whole) for name in reads], shape, body, gives, dtype)

    def generic(
        self,
        reads: Sequence[tuple[str, str]],
        shape: Shape,
        body: list[str],
        gives: str,
        dtype: str = "f32",
    ) -> str:
        """A parallel generic; its operands are %a, %b, ... of f32, each read at its dimensions."""
        out = self.put(f"tensor.empty() : {tensor(shape, dtype)}")
        iterators = ["parallel"] * len(shape)
        reads_at = [(name, at, tensor(taken(shape, at), "f32")) for name, at in reads]
        return self._generic(reads_at, (out, all_of(len(shape)), tensor(shape, dtype)),
                             iterators, body, (gives, dtype))  # fmt: skip

    def reduced(self, x: str, shape: Shape, keeps: list[int], op: str, start: str) -> str:
        """X summed, or its largest, over all dimensions but those that it keeps."""
        kept = tuple(shape[i] for i in keeps)
        out = self.filled(kept, start)
        iterators = ["parallel" if i in keeps else "reduction" for i in range(len(shape))]
        at = ", ".join(f"d{i}" for i in keeps)
        reads = [(x, all_of(len(shape)), tensor(shape, "f32"))]
        body = [f"%s = {op} %a, %out : f32"]
        return self._generic(reads, (out, at, tensor(kept, "f32")), iterators, body, ("%s", "f32"))

    def _generic(
        self,
        reads: list[tuple[str, str, str]],
        out: tuple[str, str, str],
        iterators: list[str],
        body: list[str],
        gives: tuple[str, str],
    ) -> str:
        space = all_of(len(iterators))
        at = [where for _, where, _ in (*reads, out)]
        maps = ", ".join(f"affine_map<({space}) -> ({where})>" for where in at)
        kinds = ", ".join(f'"{one}"' for one in iterators)
        names = ", ".join(f"%{letter}: f32" for letter, _ in zip("abcd", reads, strict=False))
        result = self.fresh()
        self.lines += [
            f"{result} = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{kinds}]}} "
            f"ins({', '.join(one[0] for one in reads)} : {', '.join(one[2] for one in reads)}) "
            f"outs({out[0]} : {out[2]}) {{",
            f"^bb0({names}, %out: {gives[1]}):",
            *(f"  {line}" for line in body),
            f"  linalg.yield {gives[0]} : {gives[1]}",
            f"}} -> {out[2]}",
        ]
        return result

    def _weights(self, layer: Layer, dtype: str = "f32") -> tuple[str, str]:
        """The layer's weights in its dtype, and its bias."""
        first, second = layer.weights
        values = self.graph.weights
        return self.weight(values[first], first, dtype), self.weight(values[second], second)

    def _type(self, name: str, dtype: str = "f32") -> str:
        return tensor(self.graph.weights[name].shape, dtype)


def all_of(rank: int) -> str:
    """`d0, d1, ...`."""
    return ", ".join(f"d{i}" for i in range(rank))


def taken(shape: Shape, at: str) -> Shape:
    """The sizes of the dimensions that a map names."""
    return tuple(shape[int(name[1:])] for name in at.split(", ") if name)
