"""Packages of AOTInductor whose kernels are in a folder next to them."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from tilewise.linked.kernels import load_folder, paths
from tilewise.torch.backend import Compilation, compiling, split_options
from tilewise.torch.operators import load_operators
from tilewise.torch.records import new_graph


def compile_package(
    program: Any, path: str | Path, *, options: Mapping[str, Any] | None = None
) -> None:
    """Compile a program of `torch.export.export` into a package, and `path.kernels` next to it.

    Options are those of the backend.

    Raises:
        BadInputError: an option makes no sense.
    """
    source, others = split_options(options)
    graph, folder = new_graph(()), Path(f"{path}.kernels")
    with torch.no_grad(), compiling(Compilation(source, graph, may_guard=False)):
        torch._inductor.aoti_compile_and_package(
            program, package_path=str(path), inductor_configs={**others, "freezing": True}
        )
    shutil.rmtree(folder, ignore_errors=True)  # kernels of an earlier package
    folder.mkdir()
    for name in {op.kernel for op in graph.ops if op.kernel}:
        shutil.copy(paths[name], folder)
        shutil.copy(paths[name].with_suffix(".json"), folder)


def load_package(path: str | Path) -> Any:
    """Load a package of `compile_package` with its kernels.

    Raises:
        TilewiseError: a kernel is damaged, or cannot run on this processor.
    """
    load_operators()
    load_folder(Path(f"{path}.kernels"), load_operators)
    return torch._inductor.aoti_load_package(str(path))
