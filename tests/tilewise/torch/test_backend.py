"""Models compiled with kernels: which are used, and that results are those of eager f64."""

import ctypes
import importlib.metadata
import json
import sys
import threading
from unittest.mock import Mock

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

import tilewise.torch as door
from tests.cases import some
from tests.tilewise.torch.stored import Stored, check, exact, is_right, linear, lines
from tilewise.errors import BadInputError, TilewiseError
from tilewise.kernels.oracle.reference import reference
from tilewise.kernels.problem import parse_problem
from tilewise.linked import verdicts
from tilewise.linked.libraries import cache_folder
from tilewise.search.records import TuneRequest
from tilewise.torch import background
from tilewise.torch import verdicts as own
from tilewise.torch.operators import load_operators

nn = torch.nn
backend_module = sys.modules["tilewise.torch.backend"]  # the package names its function so
FLOATS = some([("float32", 1e-6), ("bfloat16", 1e-2), ("float64", 1e-14)], of=3)
LINEAR = "matmul:m=6,n=32,k=20,dtype=f32,bias,weights=constant"
WITH_RELU = "matmul:m=6,n=32,k=20,dtype=f32,bias,epilogue=relu,weights=constant"


class Block(nn.Module):
    """A residual block with folded norms, a projection, and a depthwise convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(16, 16, 3, padding=(1, 0)), nn.BatchNorm2d(16)
        self.second, self.short = nn.Conv2d(16, 32, 3, 2, 1), nn.Conv2d(16, 32, (1, 3), 2)
        self.wide = nn.Conv2d(32, 32, 3, padding=1, groups=32)
        nn.init.normal_(self.norm.weight)

    def forward(self, x):  # type: ignore[no-untyped-def]
        y = torch.relu(self.norm(self.first(x)))
        return nn.functional.relu6(self.wide(torch.relu(self.second(y) + self.short(x))))


@pytest.mark.parametrize(("dtype", "tolerance"), FLOATS)
def test_a_layer_and_its_epilogue_are_one_kernel(stored, dtype: str, tolerance: float) -> None:
    kind = getattr(torch, dtype)
    (op,) = check(linear().to(kind), torch.randn(6, 20).to(kind), tolerance=tolerance)
    assert op.kernel and "epilogue=relu,weights=constant" in op.problem
    assert (op.kernel_us, op.torch_us) == (1.0, 2.0)


def test_convolutions_with_epilogues_and_either_form_of_a_residual(stored: Stored) -> None:
    model = Block().eval().to(memory_format=torch.channels_last)
    x = torch.randn(2, 16, 9, 11).to(memory_format=torch.channels_last)
    ops = check(model, x)
    assert len(ops) == 4 and all(op.kernel for op in ops)
    assert [op.problem.partition("dtype=f32,")[2] for op in ops] == [
        "bias,epilogue=relu,weights=constant",
        "bias,weights=constant",
        "init=accumulate,bias,epilogue=relu,weights=constant",
        "bias,epilogue=relu6,weights=constant",
    ]

    for left_out, used in (("init=accumulate", ",add,"), (",add,", "init=accumulate")):
        torch.compiler.reset()
        stored.leaves_out = left_out
        assert any(op.kernel and used in op.problem for op in check(model, x)[-4:])


class Tails(nn.Module):
    """Linears whose results are read in many ways; those of `ENDINGS` are epilogues."""

    ENDINGS = (
        "epilogue=gelu", "epilogue=gelu_tanh", "add,epilogue=silu", "epilogue=gelu_tanh",
        "epilogue=silu", "add", "add,epilogue=relu6", *[""] * 5, "add", "", "", "epilogue=silu",
    )  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(20, 32) for _ in self.ENDINGS)
        for one in self.layers[-1].parameters():
            nn.init.zeros_(one)

    def forward(self, x, r, wide):  # type: ignore[no-untyped-def]
        y = [layer(x) for layer in self.layers]
        root, hidden = (2 / torch.pi) ** 0.5, torch.sigmoid(y[8])
        outs = [
            nn.functional.gelu(y[0]),
            nn.functional.gelu(y[1], approximate="tanh"),
            nn.functional.silu(r + y[2]),
            0.5 * y[3] * (1.0 + torch.tanh(root * (y[3] + 0.044715 * torch.pow(y[3], 3.0)))),
            (y[4] / (1 + torch.exp(-y[4]))).reshape(3, 2, 32).reshape(2, 3, 32),
            y[5] + r,
            nn.functional.relu6(y[6].reshape(6, 32) + r.reshape(6, 32)).reshape(2, 3, 32),
            y[7] * torch.sigmoid(1.702 * y[7]),  # no epilogue
            y[8] * hidden,  # something else reads a part of it
            nn.functional.gelu(y[9]) + y[9].abs(),
            nn.functional.leaky_relu(y[10]).clamp(-1, 2),
            y[11] + wide,  # broadcast
            y[12] + y[13],  # the sum is part of one of them
            y[14].clamp(min=1e-7),  # no relu
            (nn.functional.silu(y[15]) + 5e-7) * 1e6,  # of zeros
        ]
        return torch.cat([*outs, hidden])


@pytest.mark.parametrize(("dtype", "tolerance"), FLOATS[:2])
def test_linears_with_residual_and_smooth_epilogues(stored, dtype: str, tolerance: float) -> None:
    kind = getattr(torch, dtype)
    inputs = [torch.randn(*shape).mul(3).to(kind) for shape in ((2, 3, 20), (2, 3, 32), (32,))]
    ops = check(Tails().to(kind), *inputs, tolerance=tolerance)
    assert len(ops) == 16 and all(op.kernel for op in ops)
    found = [op.problem.partition("bias")[2] for op in ops]
    assert sorted(one.removesuffix("weights=constant").strip(",") for one in found) == sorted(
        Tails.ENDINGS
    )


def test_a_residual_of_other_strides_and_a_sum_that_is_accumulated(stored: Stored) -> None:
    class Sums(nn.Module):
        def forward(self, a, b, r):  # type: ignore[no-untyped-def]
            return nn.functional.silu(torch.addmm(r.t(), a, b)) + (r.t() + a @ b)

    a, b, r = torch.randn(6, 20), torch.randn(20, 32), torch.randn(32, 6)
    with torch.no_grad():
        got = torch.compile(Sums(), backend="tilewise", dynamic=False)(a, b, r)
    assert is_right(got, exact(Sums(), a, b, r))
    problem = "matmul:m=6,n=32,k=20,dtype=f32,add"
    assert stored.made == [f"{problem},epilogue=silu", problem]


@pytest.mark.parametrize(("dtype", "key"), [("float32", ",accuracy=bf16x3"), ("float64", "")])
def test_problems_have_the_accuracy_that_is_asked_for(stored: Stored, dtype: str, key: str) -> None:
    model, x = linear().to(getattr(torch, dtype)), torch.randn(6, 20, dtype=getattr(torch, dtype))
    expected = WITH_RELU.replace("f32", {"float32": "f32", "float64": "f64"}[dtype]) + key
    assert door.problems(model, x, accuracy="bf16x3") == [expected] and not stored.made
    assert door.problems(linear(), (torch.randn(2, 20),)) == [WITH_RELU.replace("m=6", "m=2")]
    torch.compiler.reset()
    (op,) = check(model, x, accuracy="bf16x3", tolerance=1e-4)
    assert op.kernel and op.problem == expected


def test_products_of_variable_operands(stored: Stored) -> None:
    class Scores(nn.Module):
        def forward(self, a, b, c):  # type: ignore[no-untyped-def]
            return (a @ b.transpose(1, 2)) @ c

    a, b, c = (torch.randn(3, *shape) for shape in ((8, 20), (16, 20), (16, 32)))
    ops = check(Scores(), a, b, c)
    assert {op.problem for op in ops if op.kernel} >= {
        "matmul:batch=3,m=8,n=16,k=20,dtype=f32,transpose_b",
        "matmul:batch=3,m=8,n=32,k=16,dtype=f32",
    }


def test_batched_products_of_constants_and_of_operands_in_another_order(stored: Stored) -> None:
    class Experts(nn.Linear):
        def forward(self, x):  # type: ignore[no-untyped-def]
            return torch.bmm(x, self.weight)

    experts = Experts(1, 1)
    experts.weight = nn.Parameter(torch.randn(3, 20, 16))
    (op,) = check(experts, torch.randn(3, 8, 20))
    assert op.kernel and op.problem == "matmul:batch=3,m=8,n=16,k=20,dtype=f32"
    torch.compiler.reset()
    *_, op = check(experts, torch.randn(8, 3, 20).transpose(0, 1))
    assert not op.kernel  # whose copy would cost more


def test_reduced_precision_of_f32_is_left_to_pytorch(stored: Stored) -> None:
    torch.set_float32_matmul_precision("medium")
    try:
        (op,) = check(linear(), torch.randn(6, 20), tolerance=0.1)
    finally:
        torch.set_float32_matmul_precision("highest")
    is_less = torch.ops.mkldnn._is_mkldnn_bf16_supported()
    assert op.reason == ("PyTorch computes f32 in bf16" if is_less else "")


def test_a_buffer_that_is_written_to_between_graphs(stored: Stored) -> None:
    class Cache(nn.BatchNorm1d):
        def forward(self, x):  # type: ignore[no-untyped-def]
            self.running_mean.copy_(x)
            torch._dynamo.graph_break()
            return self.running_mean * 2 + x

    fast = torch.compile(Cache(4), backend="tilewise")
    with torch.no_grad():
        assert [fast(torch.full((4,), value)).sum() for value in (1.0, 2.0, 3.0)] == [12, 24, 36]
    assert door.report(fast.forward) == door.report()


@torch.no_grad()
def test_weights_and_statistics_that_are_written_to(stored: Stored) -> None:
    model = nn.Sequential(nn.Conv2d(16, 16, 1), nn.BatchNorm2d(16)).eval()
    compiled = torch.compile(model, backend="tilewise", dynamic=False)
    x, weight = torch.randn(4, 16, 5, 5).to(memory_format=torch.channels_last), model[0].weight
    for number, one in enumerate((torch.ones(1), weight, model[1].running_mean, *[weight] * 3)):
        one.add_(1.0)
        assert is_right(compiled(x), exact(model, x))
        (op,) = door.report(model)
        assert op.kernel and ("weights=constant" in op.problem) == (number < 4)
    assert len(stored.made) == 2


@pytest.mark.full
@torch.no_grad()
def test_statistics_that_a_graph_writes_itself_are_inputs(stored: Stored) -> None:
    model, x = nn.Sequential(nn.Conv2d(16, 16, 1), nn.BatchNorm2d(16)), torch.randn(4, 16, 5, 5)
    count = CompileCounterWithBackend("tilewise")
    compiled = torch.compile(model, backend=count)
    for _ in range(4):
        expected = exact(model, x)
        assert is_right(compiled(x), expected, 1e-5)
    assert count.frame_count == 3


def test_threads_share_the_parts_of_a_kernel(stored: Stored) -> None:
    torch.set_num_threads(2)
    (op,) = check(linear(), torch.randn(6, 20))
    texts = [path.read_text() for path in cache_folder().glob("kernel-*.json")]  # some are damaged
    cached = [json.loads(text) for text in texts if op.kernel.rpartition("_")[0] in text]
    assert ["threads=2" in one["target"] for one in cached if one["parts"] == 2] == [True]


def test_the_parts_of_a_kernel_run_at_the_same_time() -> None:
    both, x = threading.Barrier(2, timeout=20), torch.zeros(1)

    @ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4, ctypes.c_int64)
    def part(*_: object) -> int:
        return both.wait() < 0

    torch.set_num_threads(2)
    sizes = [ctypes.c_int64(one) for one in (0, 0, 2)]  # scratch, packed, and parts
    load_operators().tilewise_register(b"parts", None, part, None, *sizes, 0, None, sizes[0])
    torch.ops.tilewise.call(x, x, None, None, "parts")
    assert not both.broken


@pytest.mark.full
def test_a_narrower_kernel_leaves_the_epilogue_to_inductor(stored, monkeypatch) -> None:
    stored.problems = {LINEAR}
    (op,) = check(linear(), torch.randn(6, 20))
    assert op.problem == LINEAR and op.kernel and not stored.searched
    torch.compiler.reset()
    op = check(linear(), torch.randn(6, 20), trials=3)[-1]
    assert stored.searched == [op.problem] != [LINEAR] and op.kernel
    torch.compiler.reset()
    stored.problems, search = {LINEAR}, Mock()
    monkeypatch.setattr(backend_module, "search_in_background", search)
    assert check(linear(), torch.randn(6, 20), trials=3, tune="background")[-1].kernel
    assert search.call_args.args[1] == [WITH_RELU]


def test_what_is_not_stored_is_inductors_unless_searched(stored, caplog, monkeypatch) -> None:
    stored.problems = set()
    model, x = nn.Linear(20, 32), torch.randn(6, 20)
    with monkeypatch.context() as patch:
        patch.setattr(backend_module, "load_operators", None)  # it is not needed
        (op,) = check(model, x)
    assert (op.kernel, op.reason, op.problem) == ("", "no kernel is stored", LINEAR)
    assert not stored.searched and not lines(caplog)
    torch.compiler.reset()
    assert check(model, x, trials=3)[-1].kernel
    assert stored.searched == [LINEAR]


def test_a_search_in_the_background(stored, monkeypatch, caplog) -> None:
    started, stored.problems = [], set()
    go, real = threading.Event(), background.search_in_background
    monkeypatch.setattr(
        backend_module, "search_in_background", lambda *given: started.append(real(*given))
    )

    def tune(_source: object, problem: str) -> None:
        assert go.wait(60)
        if "n=38" in problem:
            raise TilewiseError("no compiler")
        stored.tune(problem, "host", TuneRequest(2, cache="cold"))

    monkeypatch.setattr(background, "tune_apart", tune)
    x = torch.randn(6, 20)
    for columns, is_found in ((37, True), (38, False)):
        go.clear()
        model = nn.Sequential(nn.Linear(20, columns), nn.GELU(), nn.Linear(columns, 16))
        options = {"trials": 2, "tune": "background"}
        compiled = torch.compile(model, backend="tilewise", dynamic=False, options=options)
        for _ in range(2):
            with torch.no_grad():
                assert is_right(compiled(x), exact(model, x))
            first, last = (bool(op.kernel) for op in door.report(model)[-2:])
            assert (first, last) == (is_found and go.is_set(), go.is_set())
            go.set()
            started[-1].join(60)
    assert len(started) == 4 and len(lines(caplog)) == 1 and "no compiler" in lines(caplog)[0]


def test_a_slower_kernel_is_left_out_and_is_timed_once(stored, monkeypatch) -> None:
    slower = Mock(return_value=(2e-6, 1e-6))
    monkeypatch.setattr(verdicts, "in_turns", slower)
    for _ in range(2):
        torch.compiler.reset()
        ops = check(linear(), torch.randn(6, 20))
        assert {op.reason for op in ops} == {"PyTorch is faster"}
    assert slower.call_count == 2  # with and without the epilogue


@pytest.mark.parametrize("content", ["", "[]", '{"a": {"kernel_us": 1}}'])
def test_unreadable_verdicts_are_measured_again(stored, cache, content: str, caplog) -> None:
    cache.mkdir(exist_ok=True)
    (cache / "verdicts.json").write_text(content)
    assert check(nn.Linear(20, 32), torch.randn(6, 20))[0].kernel
    assert len(lines(caplog)) == 1 and "verdicts.json" in lines(caplog)[0]


def test_measured_times_are_those_of_calls(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    sides = [[Mock()], [Mock()]]
    times = list(verdicts.in_turns(*sides, threads=1))
    assert len(times) == 2 and min(times) > 0 and all(call.called for (call,) in sides)


CONV = "conv2d:n=1,h=5,w=6,ci=16,co=16,kh=3,kw=3,pad=1,dtype="


@pytest.mark.parametrize("text", [
    *(f"{CONV}{dtype},bias{end},weights=constant"
      for dtype in ("f32", "bf16,out=bf16", "f64")
      for end in ("", ",epilogue=relu", ",add", ",add,epilogue=relu6")),
    *(f"{CONV}f32,bias,{end},weights=constant"
      for end in ("epilogue=gelu", "epilogue=gelu_tanh", "epilogue=silu", "add,epilogue=silu")),
    f"{CONV}f32,init=accumulate,epilogue=relu,weights=constant",
    f"{CONV}f32,epilogue=relu",
    *(f"matmul:m=5,n=32,k=20,dtype={dtype},bias,epilogue={end},weights=constant"
      for dtype in ("f32", "bf16,out=bf16", "f16,out=f16")
      for end in ("relu", "relu6", "gelu", "gelu_tanh", "silu")),
    *(f"matmul:m=5,n=32,k=20,dtype={dtype},bias,add,epilogue=gelu,weights=constant"
      for dtype in ("f32", "bf16,out=bf16")),
    "matmul:m=5,n=32,k=20,dtype=f32,transpose_b,epilogue=relu",
    "matmul:batch=3,m=5,n=32,k=20,dtype=f32,transpose_b",
])  # fmt: skip
def test_pytorch_own_op_computes_the_same(text: str) -> None:
    problem = parse_problem(text)
    with torch.inference_mode():
        operands = own._operands(problem) | {"B": own._random(problem, "B")}
        got = own._torch_call(problem, operands)().double()
        arrays = {name: one.double().numpy() for name, one in operands.items()}
        if problem.accumulates:
            arrays["C"] = arrays.pop("add")
        dtype = "f32" if problem.function.is_smooth else "f64"
        wide = parse_problem({**problem.to_json(), "dtype": dtype, "out": ""})
        expected = torch.from_numpy(reference(wide, arrays).value)
    assert expected.norm() > 0 and got.shape == expected.shape
    assert (got - expected).norm() <= verdicts.TOLERANCES[problem.dtype] * expected.norm()


def test_two_models_of_one_class_have_their_own_weights(stored: Stored) -> None:
    first, second, x = nn.Linear(20, 32), nn.Linear(20, 32), torch.randn(6, 20)
    for model in (first, second, first):
        check(model, x)


def test_autocast_uses_kernels_of_bf16(stored: Stored) -> None:
    model, x = nn.Linear(20, 39), torch.randn(6, 20)  # of which no other test makes a kernel
    compiled = torch.compile(model, backend="tilewise", dynamic=False)
    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
        got = compiled(x)
    assert got.dtype == torch.bfloat16 and ",dtype=bf16,out=bf16,bias," in stored.made[0]
    assert is_right(got, exact(model, x), 1e-2)


def test_gradients_are_left_to_inductor_with_one_line(stored, caplog, capsys) -> None:
    model, x = nn.Linear(20, 32), torch.randn(6, 20)
    torch.compile(model, backend="tilewise")(x).square().sum().backward()
    got, model.weight.grad = model.weight.grad, None
    model(x).square().sum().backward()
    assert torch.allclose(got, model.weight.grad, rtol=1e-5)
    assert len(lines(caplog)) == 1 and "torch.no_grad()" in lines(caplog)[0]
    assert not door.report(model)
    assert "gradients are enabled" in capsys.readouterr().out


@pytest.mark.parametrize("options", [
    {"trials": -1}, {"threads": 0}, {"store": "sqlite://", "server": "http://x"},
    {"accuracy": "best"}, {"tune": "never"}, {"sizes": ()}, {"sizes": (1, 2, 3)}])  # fmt: skip
def test_options_that_make_no_sense(options: dict[str, object]) -> None:
    model = nn.Linear(3, 3)
    compiled = torch.compile(model, backend="tilewise", options=options)
    with pytest.raises(Exception, match="options: "), torch.no_grad():
        compiled(torch.randn(2, 3))
    with pytest.raises(BadInputError, match="no graph was compiled"):
        door.report(model)


def test_pytorch_finds_the_backend_by_its_entry_point() -> None:
    (point,) = importlib.metadata.entry_points(group="torch_dynamo_backends", name="tilewise")
    assert point.load() is door.backend
