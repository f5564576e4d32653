"""The macro-kernel around the micro-kernel: Python source printed from the loop nest.

Loops, their order and the places of packs decide the source; every size is a run-time parameter. A
new size needs no compilation, and a new structure one, which is kept on disk. Every value in the
source is an i64, and its one argument is the address of its parameters. The threads of a parallel
nest run the same function on parameters of their own, and wait for each other at its end.

The source is a module that Numba compiles; for a search it is compiled without Numba
(`tilewise.kernels.native.language`).
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from itertools import chain

from tilewise.kernels.arithmetic import Arithmetic
from tilewise.kernels.native.macrokernel.block_printers import DepthwisePrinter, SkinnyPrinter
from tilewise.kernels.native.macrokernel.nest_printer import NestPrinter
from tilewise.kernels.native.macrokernel.parameters import (
    BARRIER,
    COUNTERS,
    PARTS,
    Addresses,
    bounds,
    names_of,
)
from tilewise.kernels.native.macrokernel.tile_printer import TilePrinter, WeightOnlyPrinter
from tilewise.kernels.native.macrokernel.transform_printer import TransformPrinter
from tilewise.kernels.native.microkernels.abi import FUNCTIONS
from tilewise.kernels.nest import Nest

_WORD = re.compile(r"[^\W\d]\w*")
_HEADER = '''"""Macro-kernel printed by Tilewise; see kernels/native/macrokernel/printer.py."""
from numba import njit

from tilewise.kernels.native.language.functions import (
    pack_b, pack_image, pack_patches, pack_transposed_a, transform_products,
    transform_strided_rows, transform_tiles, transform_transposed_weights, transform_weights,
    wait_for_all,
)
from tilewise.kernels.native.language.intrinsics import (
    add_word, call_address, wait_for_stores, word,
)
'''
_FUNCTION = """

@njit("void(int64)", nogil=True)
def {name}(p):
"""


@dataclass(frozen=True)
class MacroKernelSource:
    """A macro-kernel's source.

    Attributes:
        text: of a module with the function `macro_kernel`, and `prepare` where B is packed ahead.
        parameters: their names, in order.
        prepares: whether there is a function `prepare`.
        functions: which of `FUNCTIONS` it may call.
    """

    text: str
    parameters: tuple[str, ...]
    prepares: bool
    functions: tuple[str, ...]


def print_macro_kernel(nest: Nest, how: Arithmetic, sizes: Collection[str]) -> MacroKernelSource:
    """Return the macro-kernel of a nest's structure.

    Args:
        nest: the loop nest; no size of it is in the source.
        how: the arithmetic of the micro-kernel.
        sizes: the names of the parameters that are sizes.
    """
    printer = _printer_of(nest)(nest, how)
    bodies = {"macro_kernel": printer.nest_text()}
    if printer.is_ahead:
        bodies["prepare"] = printer.prepare_text()
    edges = (edge for dim in nest.parts[0] for edge in bounds(dim))
    known = {*names_of(Addresses), *FUNCTIONS, *sizes, *edges, BARRIER, PARTS}
    read = {
        name: dict.fromkeys(word for word in _WORD.findall(body) if word in known)
        for name, body in bodies.items()
    }
    parameters = tuple(dict.fromkeys([*COUNTERS.values(), *chain.from_iterable(read.values())]))
    text = _HEADER
    for name, body in bodies.items():
        places = ((one, parameters.index(one)) for one in read[name])
        text += _FUNCTION.format(name=name)
        text += "".join(f"    {one} = word(p, {place})\n" for one, place in places) + body
    functions = tuple(name for name in FUNCTIONS if name in parameters)
    return MacroKernelSource(text, parameters, printer.is_ahead, functions)


def _printer_of(nest: Nest) -> type[NestPrinter]:
    if nest.algorithm:
        return TransformPrinter
    if nest.group:
        return DepthwisePrinter
    if nest.problem.quantised_weights:
        return WeightOnlyPrinter
    return SkinnyPrinter if nest.is_macro else TilePrinter
