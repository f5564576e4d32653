"""A schedule as native code: explicit vector micro-kernels that a macro-kernel calls."""

from tilewise.kernels.native.executable import Executable, compile_ahead, lower

__all__ = ["Executable", "compile_ahead", "lower"]
