"""A micro-kernel and its packs as LLVM IR that stands alone."""

import hashlib
import re
from dataclasses import dataclass

from llvmlite import ir

from tilewise.kernels.native.jit.loading import emit_all
from tilewise.kernels.native.microkernels.microkernel import ANY_USE, MicroKernel, Use


@dataclass(frozen=True)
class KernelText:
    """The functions of a micro-kernel as text.

    Attributes:
        text: LLVM IR.
        functions: the name of each function in `text`, by its name in the macro-kernel.
    """

    text: str
    functions: dict[str, str]


def kernel_text(kernel: MicroKernel, use: Use = ANY_USE) -> KernelText:
    """Return the IR of a micro-kernel for a use, with names unique to its text."""
    module = ir.Module("kernel")
    functions = emit_all(module, kernel, use)
    for function in functions:
        function.linkage = "external"  # other modules have to find it when they are linked
    text = _plain("\n".join(map(str, (*module.globals.values(), *module.metadata))))
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    names = {}
    for function in functions:
        short = function.name.removeprefix("tilewise_").removeprefix("kernel_")
        names[short] = f"{function.name}_{digest}"
        text = re.sub(rf"@{function.name}\b", f"@{names[short]}", text)
    return KernelText(text, names)


def _plain(text: str) -> str:
    """Return llvmlite's text without needless quotes, typed pointers and repeated zeros."""
    text = re.sub(r'([%@])"([-\w$.]+)"', r"\1\2", text)
    text = re.sub(r'^"?([-\w$.]+)"?:$', r"\1:", text, flags=re.MULTILINE)
    text = re.sub(r"(<\d+ x \w+>|\b\w+)\*", "ptr", text)
    text = re.sub(r"<(\w+ (?:0|0\.0|0x0+))(, \1)*>", "zeroinitializer", text)
    text = re.sub(r"<(\w+ undef)(, \1)*>", "undef", text).replace("define external ", "define ")
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"
