"""Kernels of another layout than their ops have: right, and transposed once for all of a chain."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from examples.models.graph import Graph
from examples.models.graph import Value as Given
from examples.models.spellings import spelled
from tests.kernels.dispatches.matching import TARGET, found_in, module_of, stand_in
from tilewise.kernels.dispatches.compilation import calls_in, moves_in, preprocessed
from tilewise.kernels.dispatches.executable import LibraryEntry, compiled
from tilewise.kernels.dispatches.extraction.extract import cut_module, patterns_of
from tilewise.kernels.dispatches.layouts import CallLines, check_layouts, laid
from tilewise.kernels.dispatches.library import FLAG, text_of
from tilewise.kernels.dispatches.patterns.graph import Value
from tilewise.kernels.errors import UnsupportedError
from tilewise.kernels.mlir.iree.compiler import compile_module
from tilewise.kernels.mlir.iree.runtime import ELEMENTS, LoadedModule, open_device
from tilewise.kernels.oracle.operands import Array
from tilewise.kernels.problem import Conv2d, parse_problem
from tilewise.kernels.schedule import Pack, Register, Schedule
from tilewise.kernels.target import detect

pytest.importorskip("iree.compiler", reason="iree-base-compiler is not installed")
NARROW = "conv2d:n=1,h=9,w=9,ci=8,co=8,kh=3,kw=3,pad=1,dtype=f32"
WIDE = "conv2d:n=1,h=11,w=11,ci=8,co=8,kh=3,kw=3,dtype=f32"
TURNED = {"nchw_fchw": "nhwc_hwcf", "nhwc_hwcf": "nchw_fchw"}


def moved(found: Conv2d) -> Conv2d:
    """The problem in the other order of axes, its zeros in the image."""
    wide = found.h + 2 * found.pad, found.w + 2 * found.pad
    return replace(found, layout=TURNED[found.layout], h=wide[0], w=wide[1], pad=0)


@pytest.mark.full
def test_a_chain_in_another_layout(tmp_path: Path) -> None:
    pytest.importorskip("iree.runtime", reason="iree-base-runtime is not installed")
    pytest.importorskip("torch", reason="the extra `peers` installs torch, which computes it")
    from examples.models.pytorch import reference

    graph = Graph("chain", Given("given", (1, 5, 7, 6)))
    x = graph.conv(graph.given, 10, 3)
    y = graph.add(graph.conv(x, 10, 3, relu=False), x, relu=True)
    graph.conv(y, 9, 1)
    source = spelled(graph, "torch")
    cuts, target = cut_module(source.encode()), detect()
    schedule = Schedule((Pack("B"), Register(2, target.lanes("f32"))))
    kernels = []
    for cut in cuts:
        found = parse_problem(cut.problem)
        assert isinstance(found, Conv2d)
        kernels.append(compiled(LibraryEntry(moved(found), schedule, found), target))
    library = text_of(kernels, target, cuts=patterns_of(cuts))
    after = preprocessed(source, library)
    assert sorted(calls_in(after)) == sorted(kernel.name for kernel in kernels)
    # Of three filters, which IREE transposes when it compiles, of the argument, and of the result.
    # The second convolution adds the image that it pads: its pad stays before the kernel, and is
    # written in the module's own order.
    assert moves_in(after) == (7, 1)
    argument = graph.argument(2)
    (tmp_path / "library.mlir").write_text(library)
    code = compile_module(source, (f"{FLAG}={tmp_path / 'library.mlir'}",))
    got = _result(code, argument)
    expected = reference(graph, argument)
    assert np.sqrt(np.mean((got - expected) ** 2)) < 1e-5 * np.sqrt(np.mean(expected**2))


def _result(code: bytes, argument: Array) -> Array:
    module = LoadedModule(code, open_device(1))
    (name,) = [one for one in module.functions() if not one.startswith("__") and "$" not in one]
    given = np.ascontiguousarray(argument.transpose(0, 3, 1, 2))
    return module.results(name, [(given, ELEMENTS["f32"])])[0]


def test_problems_that_share_a_kernel_are_all_found() -> None:
    """Zeros around an image are a part of the op, or of the image before it."""
    found = [parse_problem(text) for text in (NARROW, WIDE)]
    kernels = []
    for one in found:
        assert isinstance(one, Conv2d)
        kernels.append(replace(stand_in(moved(one).canonical), found=one))
    name = kernels[0].name
    assert kernels[1].name == name
    for order in (kernels, kernels[::-1]):
        library = text_of(order, TARGET)
        assert found_in(module_of(NARROW, WIDE), library) == {"f0": [name], "f1": [name]}
    assert text_of([*kernels, *kernels], TARGET) == library


@pytest.mark.parametrize("layout", sorted(TURNED))
def test_operands_are_laid_as_the_kernel_has_them(layout: str) -> None:
    keys = "n=2,h=9,w=7,ci=4,co=8,kh=3,kw=5,pad=2"
    found = parse_problem(f"conv2d:{keys},layout={layout},dtype=f32")
    assert isinstance(found, Conv2d)
    kernel = moved(found)
    made = {
        name: laid(CallLines(), found, kernel, name, Value(f"%{name}", shape, "f32")).shape
        for name, shape in found.operand_shapes.items()
    }
    assert made == kernel.operand_shapes


def test_another_problem_is_refused() -> None:
    found = parse_problem(NARROW)
    assert isinstance(found, Conv2d)
    for other in (
        "conv2d:n=1,h=9,w=9,ci=8,co=16,kh=3,kw=3,pad=1,dtype=f32",
        "conv2d:n=1,h=9,w=9,ci=8,co=8,kh=3,kw=3,dtype=f32",
        "conv2d:n=1,h=2,w=2,ci=8,co=8,kh=1,kw=1,dtype=f32",
        "matmul:m=1,n=24,k=64,dtype=f32",
    ):
        with pytest.raises(UnsupportedError, match="in no layout of an image"):
            check_layouts(found, parse_problem(other))
    with pytest.raises(UnsupportedError, match="in no layout of an image"):
        check_layouts(parse_problem(WIDE), found)
    check_layouts(found, moved(found))
    check_layouts(found, found)
