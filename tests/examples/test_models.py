from pathlib import Path

import pytest

from examples.models import MODELS
from examples.models.spellings import SPELLINGS, spelled
from tests.kernels.mlir import in_process
from tilewise.kernels.mlir.frontend.read import read_module
from tilewise.kernels.mlir.iree.compiler import compile_module
from tilewise.model.measuring import measure

CONTRACTIONS = {"resnet50": 10, "mobilenet_v2": 11, "bert": 16, "bert_bf16": 16, "mixer": 8,
                "mlp": 3}  # fmt: skip
read_here = in_process.read_here


def test_limits_and_residuals_of_mobilenet_are_read_in_every_spelling() -> None:
    for spelling in SPELLINGS:
        found = read_module(spelled(MODELS["mobilenet_v2"](True), spelling).encode())
        problems = [one.problem for one in found.occurrences]
        assert sum("epilogue=relu6" in one for one in problems) == 7, spelling
        assert sum("groups=" in one for one in problems) == 3
        assert sum("init=accumulate" in one for one in problems) == 1


@pytest.mark.full
@pytest.mark.parametrize("name", MODELS)
def test_every_contraction_is_read_in_every_spelling(name: str) -> None:
    for spelling in SPELLINGS:
        found = read_module(spelled(MODELS[name](True), spelling).encode())
        assert len(found.occurrences) == CONTRACTIONS[name], spelling
        fused = [one.problem for one in found.occurrences if ",bias" in one.problem]
        assert len(fused) == len([one for one in found.occurrences if "batch=" not in one.problem])


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "spellings"),
    # Images of torch-mlir's are nchw.
    [("bert", tuple(SPELLINGS)), ("mobilenet_v2", ("linalg", "stablehlo"))],
)
def test_spellings_give_the_same(name: str, spellings: tuple[str, ...], tmp_path: Path) -> None:
    pytest.importorskip("iree.runtime", reason="IREE's runtime is absent")
    codes = {}
    for spelling in spellings:
        codes[spelling] = tmp_path / spelling
        codes[spelling].write_bytes(compile_module(spelled(MODELS[name](True), spelling)))
    forms = measure(codes, None, 1, rounds=2).forms
    assert all(form.deviation < 1e-5 for form in forms.values())


@pytest.mark.full
@pytest.mark.parametrize("name", ["resnet50", "mobilenet_v2"])
def test_pytorch_computes_the_model(name: str) -> None:
    pytest.importorskip("torch", reason="the extra `peers` installs torch, which computes it")
    import numpy as np

    from examples.models.pytorch import Model, reference

    graph = MODELS[name](True)
    given = graph.argument()
    model = Model(graph)
    found = model(model.argument(given)).numpy()
    expected = reference(graph, given)
    assert 0.1 < np.sqrt(np.mean(expected**2)) < 10
    assert np.abs(found - expected).max() < 1e-4
