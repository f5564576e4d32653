"""Small networks, one of each family, packed and proven in this process."""

import json
import tempfile
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

from examples.models.bert import bert
from examples.models.graph import Graph, Value
from examples.models.mixer import mixer as mixed
from examples.models.mlp import mlp
from examples.models.spellings import spelled
from tilewise.kernels.mlir.network.pack import run_request
from tilewise.kernels.mlir.network.packing import Blocks
from tilewise.kernels.mlir.network.plan import PackPlan
from tilewise.kernels.mlir.proof.proof import ProofReply
from tilewise.kernels.system.typed_json import from_json


def residual(spelling: str = "linalg") -> bytes:
    """A stem, a pool, a block with an identity, one with a projection, a classifier."""
    graph = Graph("residual", Value("given", (1, 24, 24, 3)))
    x = graph.max_pool(graph.conv(graph.given, 16, 7, 2))
    y = graph.conv(graph.conv(x, 16, 3), 16, 3, relu=False, gain=0.3)
    x = graph.add(y, x, relu=True)
    y = graph.conv(graph.conv(x, 32, 3, 2), 32, 1, relu=False, gain=0.3)
    x = graph.add(y, graph.conv(x, 32, 1, 2, relu=False), relu=True)
    graph.linear(graph.mean_pool(x), 24)
    return spelled(graph, spelling).encode()


def perceptron() -> bytes:
    """Three layers in bf16."""
    return spelled(mlp(small=True)).encode()


def encoder() -> bytes:
    """One layer of attention with its feed-forward part."""
    graph = bert(small=True)
    half = len(graph.layers) // 2
    del graph.layers[half:]
    return spelled(graph).encode()


def separable(spelling: str = "linalg") -> bytes:
    """An inverted residual block: widened, each channel by itself, narrowed, added."""
    graph = Graph("separable", Value("given", (1, 6, 6, 32)))
    y = graph.conv(graph.given, 48, 1, ceiling=6)
    y = graph.conv(y, 48, 3, ceiling=6, depthwise=True)
    graph.add(graph.conv(y, 32, 1, relu=False), graph.given)
    return spelled(graph, spelling).encode()


def mixer() -> bytes:
    """Tokens mixed for each channel, then channels for each token; both with a shortcut."""
    return spelled(mixed(small=True)).encode()


def products(m: int = 8, sizes: tuple[int, ...] = (24, 20)) -> bytes:
    """Products one after the other, with nothing between; weights are arguments."""
    given = "".join(f", %w{i}: tensor<{k}x{n}xf32>" for i, (k, n) in enumerate(pairwise(sizes)))
    lines, value = ["%zero = arith.constant 0.0 : f32"], "%x"
    for i, (k, n) in enumerate(pairwise(sizes)):
        kind = f"tensor<{m}x{n}xf32>"
        lines += [
            f"%e{i} = tensor.empty() : {kind}",
            f"%f{i} = linalg.fill ins(%zero : f32) outs(%e{i} : {kind}) -> {kind}",
            f"%p{i} = linalg.matmul ins({value}, %w{i} : tensor<{m}x{k}xf32>, tensor<{k}x{n}xf32>) "
            f"outs(%f{i} : {kind}) -> {kind}",
        ]
        value = f"%p{i}"
    kind = f"tensor<{m}x{sizes[-1]}xf32>"
    body = "\n  ".join(lines)
    return f"""func.func @main(%x: tensor<{m}x{sizes[0]}xf32>{given}) -> {kind} {{
  {body}
  return {value} : {kind}
}}
""".encode()


def pack(module: bytes, blocks: Blocks | None = None) -> PackPlan:
    """What `pack_module` gives."""
    from tilewise.kernels.mlir.network.child.pack import answer

    with tempfile.NamedTemporaryFile(suffix=".mlir") as file:
        Path(file.name).write_bytes(module)
        reply = answer({"path": file.name, **asdict(blocks or Blocks())})
    return from_json(PackPlan, json.loads(json.dumps(reply["plan"])))


def prove(plan: PackPlan) -> ProofReply:
    """What the child of `prove_packs` finds."""
    from tilewise.kernels.mlir.network.child.prove import prove_here

    return prove_here(run_request(plan))
