"""The driver around the micro-kernel: Python source printed from the loop nest, one per structure.

Which loops there are, in which order, and where the packs happen decide the source;
every size is a run-time parameter. So a new size costs no compilation, and a new
structure costs one, once, kept on disk. Everything in a driver is an i64, and its one
argument is the address of its parameters. The threads of a parallel nest run the same
driver on parameters of their own, and meet at its end.

The source is a module that Numba compiles; what the search calls is compiled without it
(`tilewise.kernels.native.language.to_ir`).
"""

from dataclasses import dataclass

from tilewise.kernels.arithmetic import Arithmetic
from tilewise.kernels.native.macrokernel.kernel_printer import KernelPrinter
from tilewise.kernels.native.macrokernel.pack_printer import PackPrinter, print_prepare
from tilewise.kernels.native.macrokernel.parameters import BARRIER, PARTS
from tilewise.kernels.native.macrokernel.prefetch_printer import PrefetchPrinter
from tilewise.kernels.native.macrokernel.scope import Scope
from tilewise.kernels.native.macrokernel.transform_printer import TransformPrinter
from tilewise.kernels.native.macrokernel.walk_printers import SweepPrinter, WindowPrinter
from tilewise.kernels.native.microkernels.abi import FUNCTIONS
from tilewise.kernels.nest import Compute, Fetch, Fetched, Loop, LoopKind, Nest, Stage

# Exported modules have definitions in the order of these imports: what packs call goes first.
_HEADER = '''"""Driver printed by Tilewise; see kernels/native/driver/printer.py."""
from numba import njit

from tilewise.kernels.native.language.barrier import wait_for_all
from tilewise.kernels.native.language.words import add_word, call_address, word
from tilewise.kernels.native.language.packs import (
    pack_b, pack_image, pack_patches, pack_transposed_a,
)
'''
_TRANSFORMS_HEADER = """from tilewise.kernels.native.language.transforms import (
    transform_products, transform_strided_rows, transform_tiles, transform_turned_quadrants,
    transform_turned_weights, transform_weights,
)
"""
_STORES_HEADER = "from tilewise.kernels.native.language.words import wait_for_stores\n"
_FUNCTION = """

@njit("void(int64)", nogil=True)
def {name}(p):
"""


@dataclass(frozen=True)
class DriverSource:
    """A driver's source.

    Attributes:
        text: of a module.
        parameters: their names, in order.
        prepares: whether B is packed ahead by a function `prepare` beside it.
        functions: which of `FUNCTIONS` it may call.
    """

    text: str
    parameters: tuple[str, ...]
    prepares: bool
    functions: tuple[str, ...]


def print_driver(nest: Nest, how: Arithmetic) -> DriverSource:
    """Return the driver of a nest's structure, which has no size in it."""
    scope = Scope(nest, how)
    transforms = TransformPrinter(scope) if nest.algorithm else None
    bodies = {"driver": _body(scope, transforms)}
    if scope.is_ahead:
        bodies["prepare"] = transforms.prepare() if transforms else print_prepare(scope)
    reads = {name: scope.read_in(body) for name, body in bodies.items()}
    functions = (_function(name, reads[name], body) for name, body in bodies.items())
    headers = (
        _HEADER,
        _TRANSFORMS_HEADER if transforms else "",
        _STORES_HEADER if transforms and nest.store.is_nontemporal else "",
    )
    return DriverSource(
        "".join((*headers, *functions)),
        tuple(scope.parameters),
        scope.is_ahead,
        tuple(name for name in FUNCTIONS if any(name in read for read in reads.values())),
    )


def _function(name: str, reads: dict[str, int], body: str) -> str:
    """A function that reads its parameters first."""
    lines = (f"    {parameter} = word(p, {place})\n" for parameter, place in reads.items())
    return _FUNCTION.format(name=name) + "".join(lines) + body


def _body(scope: Scope, transforms: TransformPrinter | None) -> str:
    """The nest, which several threads leave together."""
    if transforms:
        transforms.nest()
    elif scope.nest.is_macro:
        _print_walks(scope)
    else:
        _print_nest(scope)
    if len(scope.nest.parts) > 1:
        scope.indent = 2
        scope.put(f"wait_for_all({BARRIER}, {PARTS})")
    return "\n".join(scope.lines) + "\n"


def _print_nest(scope: Scope) -> None:
    """Loops, packs, and a call of the micro-kernel for each of its tiles."""
    prefetch = PrefetchPrinter(scope)
    packs = PackPrinter(scope, prefetch)
    kernel = KernelPrinter(scope, packs, prefetch)
    if scope.fetches(Fetched.NEXT_PANEL):
        prefetch.begin_panels()
    if scope.fetches(Fetched.NEXT_BLOCK):
        prefetch.begin_blocks()
    fetches_in_place = scope.fetches(Fetched.NEXT_BLOCK) and not scope.nest.stage("B")
    for here in scope.nest.visit():
        node = here.node
        if isinstance(node, Loop):
            scope.loop(node)
        elif isinstance(node, Stage):
            packs.pack(node.operand)
        elif isinstance(node, Compute):
            kernel.kernel()
        elif isinstance(node, Fetch) and fetches_in_place:
            prefetch.find_next_block()


def _print_walks(scope: Scope) -> None:
    """Loops over blocks, and a call of the micro-kernel for each of them."""
    walk = WindowPrinter(scope) if scope.nest.group else SweepPrinter(scope)
    for loop in scope.nest.loops:
        if loop.kind is LoopKind.MICRO:
            walk.walked(loop)
        else:
            walk.enter(loop)
    walk.kernel()
