"""Tuned kernels in PyTorch: `torch.compile(model, backend="tilewise")`.

Importing this package registers the backend. PyTorch finds it by name without the import, through
the entry point group `torch_dynamo_backends`.
"""

from tilewise.errors import TilewiseError
from tilewise.requirements import is_present, not_installed

if not is_present("torch"):
    raise TilewiseError(not_installed("tilewise.torch", "torch", "torch"))

from tilewise.torch.backend import backend, problems
from tilewise.torch.packages import compile_package, load_package
from tilewise.torch.records import Op, report

__all__ = ["Op", "backend", "compile_package", "load_package", "problems", "report"]
