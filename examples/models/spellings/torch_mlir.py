"""linalg as torch-mlir lowers PyTorch's models: nchw, weights transposed, biases first."""

from examples.models.graph import Layer, Shape
from examples.models.spellings.linalg import Linalg, all_of
from examples.models.spellings.writer import tensor


class TorchMlir(Linalg):
    """A convolution's bias is what it adds to; relu is a comparison and a choice."""

    channel_axis = 1

    def shape_of(self, shape: Shape) -> Shape:
        if len(shape) != 4:
            return shape
        n, h, w, c = shape
        return n, c, h, w

    def conv(self, layer: Layer, x: str) -> str:
        first, second = layer.weights
        values = self.graph.weights
        moved, op = values[first].transpose(3, 2, 0, 1), "linalg.conv_2d_nchw_fchw"
        if layer.settings["groups"] > 1:
            moved, op = moved[:, 0], "linalg.depthwise_conv_2d_nchw_chw"
        filters, bias = self.weight(moved, first), self.weight(values[second], second)
        out = tensor(self.shape_of(layer.gives.shape), "f32")
        x, shape = self.padded(x, layer.reads[0].shape, layer.settings["pad"], "0.0")
        empty = self.put(f"tensor.empty() : {out}")
        start = self.put(
            f"linalg.broadcast ins({bias} : {tensor(values[second].shape, 'f32')}) "
            f"outs({empty} : {out}) dimensions = [0, 2, 3]"
        )
        product = self.put(
            f"{op} {{dilations = dense<1> : vector<2xi64>, strides = "
            f"dense<{layer.settings['stride']}> : vector<2xi64>}} ins({x}, {filters} : "
            f"{tensor(shape, 'f32')}, {tensor(moved.shape, 'f32')}) outs({start} : {out}) -> {out}"
        )
        total = self._chosen(layer, product) if layer.settings["relu"] else product
        return total if layer.settings["ceiling"] is None else self._least(layer, total)

    def linear(self, layer: Layer, x: str) -> str:
        first, second = layer.weights
        values, dtype, out = self.graph.weights, layer.reads[0].dtype, layer.gives.shape
        held = values[first].T
        weights, bias = self.weight(held, first, dtype), self.weight(values[second], second)
        moved = self.transposed(weights, held.shape, (1, 0), dtype)
        kind = tensor(out, "f32")
        product = self.put(
            f"linalg.matmul ins({x}, {moved} : {self.type_of(layer.reads[0])}, "
            f"{tensor(values[first].shape, dtype)}) outs({self.filled(out)} : {kind}) -> {kind}"
        )
        body = ["%s = arith.addf %a, %b : f32"]
        total = self.generic([(product, all_of(2)), (bias, "d1")], out, body, "%s")
        return self._chosen(layer, total) if layer.settings["relu"] else total

    def add(self, layer: Layer, x: str, y: str) -> str:
        total = self.elementwise(layer, [x, y], ["%s = arith.addf %a, %b : f32"], "%s")
        return self._chosen(layer, total) if layer.settings["relu"] else total

    def max_pool(self, layer: Layer, x: str) -> str:
        return self.pooled(layer, x, "linalg.pooling_nchw_max", "vector")

    def scores(self, layer: Layer, q: str, k: str) -> str:
        shape, dtype = layer.reads[1].shape, layer.reads[1].dtype
        moved = self.transposed(k, shape, (0, 2, 1), dtype)
        out = tensor(layer.gives.shape, "f32")
        return self.put(
            f"linalg.batch_matmul ins({q}, {moved} : {self.type_of(layer.reads[0])}, "
            f"{tensor((shape[0], shape[2], shape[1]), dtype)}) "
            f"outs({self.filled(layer.gives.shape)} : {out}) -> {out}"
        )

    def _least(self, layer: Layer, x: str) -> str:
        """At most a ceiling, which is an operand."""
        ceiling = self.put(
            f"arith.constant dense<{layer.settings['ceiling']:.6e}> : {tensor((), 'f32')}"
        )
        body = ["%p = arith.cmpf olt, %a, %b : f32", "%s = arith.select %p, %a, %b : f32"]
        shape = self.shape_of(layer.gives.shape)
        return self.generic([(x, all_of(len(shape))), (ceiling, "")], shape, body, "%s")

    def _chosen(self, layer: Layer, x: str) -> str:
        zero = self.put("arith.constant 0.000000e+00 : f32")
        body = [f"%p = arith.cmpf ugt, %a, {zero} : f32", f"%s = arith.select %p, %a, {zero} : f32"]
        return self.elementwise(layer, [x], body, "%s")
