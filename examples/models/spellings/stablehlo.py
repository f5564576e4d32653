"""StableHLO on nhwc images, as JAX writes it."""

from examples.models.graph import Layer, Shape
from examples.models.spellings.writer import Writer, tensor


class StableHlo(Writer):
    """Whole-tensor operations; a bias is broadcast and added."""

    def leave(self) -> str:
        return "return"

    def constant_op(self) -> str:
        return "stablehlo.constant"

    def conv(self, layer: Layer, x: str) -> str:
        first, second = layer.weights
        stride, pad = layer.settings["stride"], layer.settings["pad"]
        filters = self.weight(self.graph.weights[first], first)
        product = self.put(
            f"stablehlo.convolution({x}, {filters}) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->"
            f"[b, 0, 1, f], window = {{stride = [{stride}, {stride}], pad = [[{pad}, {pad}], "
            f"[{pad}, {pad}]]}} {{batch_group_count = 1 : i64, feature_group_count = "
            f"{layer.settings['groups']} : i64}} : "
            f"({self.type_of(layer.reads[0])}, {tensor(self.graph.weights[first].shape, 'f32')}) "
            f"-> {self.type_of(layer.gives)}"
        )
        return self._finished(layer, product, second)

    def linear(self, layer: Layer, x: str) -> str:
        first, second = layer.weights
        dtype = layer.reads[0].dtype
        weights = self.weight(self.graph.weights[first], first, dtype)
        product = self.put(
            f"stablehlo.dot_general {x}, {weights}, contracting_dims = [1] x [0] : "
            f"({self.type_of(layer.reads[0])}, {tensor(self.graph.weights[first].shape, dtype)}) "
            f"-> {self.type_of(layer.gives)}"
        )
        return self._finished(layer, product, second)

    def narrow(self, layer: Layer, x: str) -> str:
        given, out = self.type_of(layer.reads[0]), self.type_of(layer.gives)
        return self.put(f"stablehlo.convert {x} : ({given}) -> {out}")

    def add(self, layer: Layer, x: str, y: str) -> str:
        total = self._both("add", x, y, layer.gives.shape)
        return self._relu(total, layer.gives.shape) if layer.settings["relu"] else total

    def max_pool(self, layer: Layer, x: str) -> str:
        start, out = self._number(float("-inf"), ()), self.type_of(layer.gives)
        name = self.fresh()
        self.lines += [
            f'{name} = "stablehlo.reduce_window"({x}, {start}) ({{',
            "^bb0(%a: tensor<f32>, %b: tensor<f32>):",
            "  %m = stablehlo.maximum %a, %b : tensor<f32>",
            "  stablehlo.return %m : tensor<f32>",
            "}) {window_dimensions = array<i64: 1, 3, 3, 1>, window_strides = "
            "array<i64: 1, 2, 2, 1>, padding = dense<[[0, 0], [1, 1], [1, 1], [0, 0]]> : "
            f"tensor<4x2xi64>}} : ({self.type_of(layer.reads[0])}, tensor<f32>) -> {out}",
        ]
        return name

    def mean_pool(self, layer: Layer, x: str) -> str:
        given, out = layer.reads[0].shape, layer.gives.shape
        total = self._reduced("add", x, given, (1, 2))
        return self._both("divide", total, self._number(given[1] * given[2], out), out)

    def split_heads(self, layer: Layer, x: str) -> str:
        (heads, m, d), dtype = layer.gives.shape, layer.gives.dtype
        wide = self._reshaped(x, (m, heads * d), (m, heads, d), dtype)
        return self._transposed(wide, (m, heads, d), layer.gives.shape, dtype)

    def merge_heads(self, layer: Layer, x: str) -> str:
        (heads, m, d), dtype = layer.reads[0].shape, layer.gives.dtype
        swapped = self._transposed(x, (heads, m, d), (m, heads, d), dtype)
        return self._reshaped(swapped, (m, heads, d), (m, heads * d), dtype)

    def transpose(self, layer: Layer, x: str) -> str:
        given, out = self.type_of(layer.reads[0]), self.type_of(layer.gives)
        return self.put(f"stablehlo.transpose {x}, dims = [1, 0] : ({given}) -> {out}")

    def scores(self, layer: Layer, q: str, k: str) -> str:
        return self._batched(layer, q, k, "[2] x [2]")

    def mix(self, layer: Layer, p: str, v: str) -> str:
        return self._batched(layer, p, v, "[2] x [1]")

    def scaled(self, layer: Layer, x: str) -> str:
        shape = layer.gives.shape
        return self._both("multiply", x, self._number(layer.settings["by"], shape), shape)

    def softmax(self, layer: Layer, x: str) -> str:
        shape = layer.gives.shape
        last = len(shape) - 1
        most = self._along(self._reduced("maximum", x, shape, (last,)), shape)
        powers = self._one("exponential", self._both("subtract", x, most, shape), shape)
        total = self._along(self._reduced("add", powers, shape, (last,)), shape)
        return self._both("divide", powers, total, shape)

    def gelu(self, layer: Layer, x: str) -> str:
        shape = layer.gives.shape
        kind = tensor(shape, "f32")
        inner = self._both("multiply", x, self._number(0.5**0.5, shape), shape)
        erf = self.put(f"chlo.erf {inner} : {kind} -> {kind}")
        half = self._both("multiply", x, self._number(0.5, shape), shape)
        return self._both(
            "multiply", half, self._both("add", erf, self._number(1.0, shape), shape), shape
        )

    def layer_norm(self, layer: Layer, x: str) -> str:
        shape = m, n = layer.gives.shape
        scale, shift = (self.weight(self.graph.weights[w], w) for w in layer.weights)
        count = self._number(n, (m,))
        mean = self._both("divide", self._reduced("add", x, shape, (1,)), count, (m,))
        centred = self._both("subtract", x, self._along(mean, shape), shape)
        square = self._both("multiply", centred, centred, shape)
        spread = self._both("divide", self._reduced("add", square, shape, (1,)), count, (m,))
        near = self._both("add", spread, self._number(layer.settings["epsilon"], (m,)), (m,))
        unit = self._along(self._one("rsqrt", near, (m,)), shape)
        normal = self._both("multiply", centred, unit, shape)
        scaled = self._both("multiply", normal, self._over(scale, (n,), shape, 1), shape)
        return self._both("add", scaled, self._over(shift, (n,), shape, 1), shape)

    def _finished(self, layer: Layer, product: str, bias: str) -> str:
        shape = layer.gives.shape
        values = self.graph.weights[bias]
        wide = self._over(self.weight(values, bias), values.shape, shape, len(shape) - 1)
        total = self._both("add", product, wide, shape)
        if (ceiling := layer.settings.get("ceiling")) is not None:
            limits = self._number(0.0, ()), self._number(ceiling, ())
            kind = tensor(shape, "f32")
            return self.put(
                f"stablehlo.clamp {limits[0]}, {total}, {limits[1]} : "
                f"(tensor<f32>, {kind}, tensor<f32>) -> {kind}"
            )
        return self._relu(total, shape) if layer.settings["relu"] else total

    def _relu(self, x: str, shape: Shape) -> str:
        return self._both("maximum", x, self._number(0.0, shape), shape)

    def _batched(self, layer: Layer, a: str, b: str, over: str) -> str:
        return self.put(
            f"stablehlo.dot_general {a}, {b}, batching_dims = [0] x [0], contracting_dims = {over}"
            f" : ({self.type_of(layer.reads[0])}, {self.type_of(layer.reads[1])}) -> "
            f"{self.type_of(layer.gives)}"
        )

    def _number(self, value: float, shape: Shape) -> str:
        shown = "0xFF800000" if value == float("-inf") else f"{value:.9e}"
        return self.put(f"stablehlo.constant dense<{shown}> : {tensor(shape, 'f32')}")

    def _both(self, op: str, x: str, y: str, shape: Shape) -> str:
        return self.put(f"stablehlo.{op} {x}, {y} : {tensor(shape, 'f32')}")

    def _one(self, op: str, x: str, shape: Shape) -> str:
        return self.put(f"stablehlo.{op} {x} : {tensor(shape, 'f32')}")

    def _along(self, x: str, shape: Shape) -> str:
        """One value a row, as wide as the rows."""
        lead = ", ".join(map(str, range(len(shape) - 1)))
        kinds = tensor(shape[:-1], "f32"), tensor(shape, "f32")
        return self.put(
            f"stablehlo.broadcast_in_dim {x}, dims = [{lead}] : ({kinds[0]}) -> {kinds[1]}"
        )

    def _over(self, x: str, given: Shape, shape: Shape, axis: int) -> str:
        kinds = tensor(given, "f32"), tensor(shape, "f32")
        return self.put(
            f"stablehlo.broadcast_in_dim {x}, dims = [{axis}] : ({kinds[0]}) -> {kinds[1]}"
        )

    def _reduced(self, op: str, x: str, shape: Shape, over: tuple[int, ...]) -> str:
        start = self._number(float("-inf") if op == "maximum" else 0.0, ())
        kept = tensor(tuple(s for i, s in enumerate(shape) if i not in over), "f32")
        return self.put(
            f"stablehlo.reduce({x} init: {start}) applies stablehlo.{op} across dimensions = "
            f"{list(over)} : ({tensor(shape, 'f32')}, tensor<f32>) -> {kept}"
        )

    def _reshaped(self, x: str, given: Shape, shape: Shape, dtype: str) -> str:
        return self.put(
            f"stablehlo.reshape {x} : ({tensor(given, dtype)}) -> {tensor(shape, dtype)}"
        )

    def _transposed(self, x: str, given: Shape, shape: Shape, dtype: str) -> str:
        return self.put(
            f"stablehlo.transpose {x}, dims = [1, 0, 2] : ({tensor(given, dtype)}) -> "
            f"{tensor(shape, dtype)}"
        )
