"""The backend: Inductor with freezing, and kernels in place of ops inside it."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, fields, replace
from functools import cache, partial
from typing import Any

import torch
from torch._dynamo import list_backends, register_backend
from torch._dynamo.convert_frame import compile_lock
from torch._dynamo.guards import GuardBuilder
from torch._functorch.aot_autograd import make_boxed_func
from torch._guards import TracingContext
from torch._inductor.compile_fx import compile_fx
from torch._inductor.fx_passes import freezing_patterns
from torch.fx.experimental.symbolic_shapes import StrictMinMaxConstraint

from tilewise.errors import BadInputError
from tilewise.kernels.problem import Problem
from tilewise.linked.kernels import Kernel, Kernels, Source, line_of, warn_once
from tilewise.torch import ops
from tilewise.torch.background import search_in_background
from tilewise.torch.operators import load_operators
from tilewise.torch.records import Graph, Op, new_graph
from tilewise.torch.verdicts import verdict

_current = threading.local()


@dataclass
class Compilation:
    """What to do with the ops of the graph that this thread compiles.

    Attributes:
        graph: the record of decisions.
        problems: given where they are only listed.
        may_guard: whether the graph may be limited to sizes.
        absent: the widest problems of ops that are not stored.
    """

    source: Source
    graph: Graph
    problems: list[str] | None = None
    may_guard: bool = True
    absent: list[str] = field(default_factory=list)
    _decisions: dict[str, tuple[Op, Kernel | None]] = field(default_factory=dict)

    def run(self, graph: Any) -> int:
        """Replace ops of a frozen graph; return how many."""
        nodes = [node for node in graph.nodes if node.target in ops.TARGETS]
        if self.problems is not None:
            self.problems += [one[0].problem for one in map(self._candidates, nodes) if one]
            return 0
        try:
            choices = [[one.problem for one in self._candidates(node)] for node in nodes]
            if any(choices) and self.source.trials:
                load_operators()  # fails before a search, not after it
            with self.source.open(load_operators, choices) as kernels:
                if kernels.found or kernels.files:
                    load_operators()
                for node in nodes:
                    self._decide(node, kernels)
                self.absent += kernels.absent
        except Exception as error:  # a compiler may fail in any way
            text = line_of(error)
            warn_once(f"no kernels are used: {text}")
            self.graph.fallback = f"left to Inductor: {text}"
        return sum(bool(op.kernel) for op in self.graph.ops)

    def _candidates(self, node: Any) -> list[ops.Candidate]:
        return ops.candidates(node, self.source, may_guard=self.may_guard)

    def _decide(self, node: Any, kernels: Kernels) -> None:
        """Replace an op and what follows it by the kernel of its widest problem that has one."""
        # Matched again: operands may be results of ops that were replaced before.
        reasons = list[Op]()
        for one in self._candidates(node):
            op, kernel = self._judged(one.problem, kernels)
            if kernel and ops.fits(one, kernel, may_guard=self.may_guard):
                self.graph.ops.append(replace(op, name=node.name))
                ops.replace_ops(one, kernel)
                return
            if kernel:
                op = replace(op, kernel="", reason=f"a size is not in {kernel.problem}")
            reasons.append(op)
        unknown = Op("", reason=ops.why_not(node) or "no problem or range of sizes describes it")
        op = next((one for one in reasons if one.torch_us is not None), (*reasons, unknown)[0])
        self.graph.ops.append(replace(op, name=node.name))

    def _judged(self, problem: str, kernels: Kernels) -> tuple[Op, Kernel | None]:
        """Return the decision on a problem, made once, and the kernel if it is to be used."""
        if problem not in self._decisions:
            try:
                self._decisions[problem] = self._judge(problem, kernels)
            except Exception as error:  # one kernel that fails does not cost the others
                text = line_of(error)
                warn_once(f"{problem}: no kernel is used: {text}")
                self._decisions[problem] = Op("", problem, reason=text), None
        return self._decisions[problem]

    def _judge(self, problem: str, kernels: Kernels) -> tuple[Op, Kernel | None]:
        kernel = kernels.load(problem)
        if kernel is None:
            return Op("", problem, reason="no kernel is stored"), None
        found = verdict(kernel)
        times = (found.kernel_us, found.own_us)
        if found.wins:
            return Op("", kernel.problem, kernel.symbol, "", *times), kernel
        reason = "PyTorch is faster" if found.is_right else "its result differs from PyTorch's"
        return Op("", problem, "", reason, *times), None


@cache
def _install() -> None:
    """Have Inductor's freezing call us after it folded constants, before it packs weights.

    A registered pattern would come behind those of oneDNN if another model was frozen before.
    Other backends are not affected: `_current` is set only in a thread that compiles for this one.
    """
    first = freezing_patterns.pass_patterns[0]
    apply: Callable[..., int] = first.apply

    def apply_after_ours(graph: Any, *args: Any, **kwargs: Any) -> int:
        compilation = getattr(_current, "compilation", None)
        taken = 0 if compilation is None else compilation.run(getattr(graph, "graph", graph))
        return taken + apply(graph, *args, **kwargs)

    first.apply = apply_after_ours


@contextmanager
def compiling(compilation: Compilation) -> Iterator[None]:
    """Have the graphs that this thread compiles meanwhile replaced as a compilation says."""
    _install()
    before = getattr(_current, "compilation", None)
    _current.compilation = compilation
    try:
        yield
    finally:
        _current.compilation = before


def backend(
    gm: Any, example_inputs: Sequence[Any], *, mode: str | None = None, options: Any = None
) -> Callable[..., Any]:
    """Compile a graph with Inductor, and tuned kernels for the ops that they are faster for.

    Options are the fields of `Source`; all others are Inductor's.

    Raises:
        BadInputError: an option makes no sense.
    """
    source, others = split_options(options)
    patches = {**(torch._inductor.list_mode_options(mode) if mode else {}), **others}
    weights = [value for value in example_inputs if isinstance(value, torch.Tensor)]
    graph = new_graph(weights)
    if torch.is_grad_enabled():
        graph.fallback = "left to Inductor: gradients are enabled; use torch.no_grad()"
        warn_once(f"a graph is {graph.fallback}")
        return compile_fx(gm, example_inputs, config_patches=patches)  # type: ignore[no-any-return]
    is_later = source.tune == "background" and source.trials > 0
    searched = replace(source, trials=0) if is_later else source
    compilation = Compilation(searched, graph, may_guard=_may_guard())
    with compiling(compilation):
        frozen = _Frozen(gm, example_inputs, config_patches={**patches, "freezing": True})
    # A graph with a number among its inputs has dynamic sizes, which another compilation fixes.
    is_static = len(weights) == len(example_inputs)
    switch = _switch(compilation, frozen)
    if is_later and compilation.absent:
        again = partial(switch, example_inputs) if is_static else lambda: None
        search_in_background(source, compilation.absent, again)

    def run(*given: Any) -> Any:
        if not frozen.written():
            result = frozen.run(*given)
            frozen.keep_own()
            return result
        if is_static:
            with compile_lock:
                if frozen.written():  # no other thread was faster
                    switch(given)
            return frozen.run(*given)
        warn_once("a graph of dynamic sizes runs uncompiled: its buffers are written to")
        return frozen.graph(*given)

    return run


def _may_guard() -> bool:
    """Return whether guards may narrow dynamic sizes; not those whose bounds a program declared."""
    contexts = TracingContext.get().tensor_to_context.values()
    declared = [one for some in contexts for one in getattr(some, "constraint_sizes", None) or ()]
    return not any(isinstance(one, StrictMinMaxConstraint) for one in declared)


def _switch(before: Compilation, frozen: "_Frozen") -> Callable[[Sequence[Any]], None]:
    """Return a function that compiles a graph again, with kernels that were stored since."""
    is_inference = torch.is_inference_mode_enabled()
    cast = "cpu", torch.get_autocast_dtype("cpu"), torch.is_autocast_enabled("cpu")

    def switch(inputs: Sequence[Any]) -> None:
        after = Compilation(before.source, Graph())
        # The mode comes first: without inference it would enable gradients.
        with compile_lock, torch.inference_mode(is_inference), torch.no_grad():
            with torch.autocast(*cast), compiling(after):
                frozen.compile(inputs)
            before.graph.ops, before.graph.fallback = after.graph.ops, after.graph.fallback

    return switch


class _Frozen:
    """A graph with weights as constants, and guards that a call has the same weights.

    Dynamo's setting `prepare_freezing` has no such guards: a second model of one class would get
    the weights of the first, with any backend of the process. Buffers that were written to since a
    compilation, such as caches of attention, are inputs of the next one.
    """

    run: Callable[..., Any]

    def __init__(self, gm: Any, example_inputs: Sequence[Any], **options: Any) -> None:
        self._options = options
        self.graph = torch.fx.GraphModule(gm, deepcopy(gm.graph))  # a compilation changes its own
        self.graph.meta, self._names = gm.meta, getattr(gm, "_param_name_to_source", None) or {}
        nodes = gm.graph.find_nodes(op="placeholder")
        self._sources = [getattr(one, "_dynamo_source", None) for one in nodes]
        self._weights, self._has_run = dict[int, Any](), False
        self._versions = dict[int, tuple[Any, int]]()  # of buffers
        guards = TracingContext.get().guards_context.dynamo_guards
        for index, (source, value) in enumerate(zip(self._sources, example_inputs, strict=True)):
            if source is None or not source.guard_source.is_unspecialized_nn_module():
                continue
            if type(value) is torch.Tensor and not value.is_inference():
                self._versions[index] = value, value._version
            elif type(value) is not torch.nn.Parameter:
                continue  # tensors of inference mode do not say when they are written to
            guards.add(source.make_guard(GuardBuilder.ID_MATCH))
            self._weights[index] = value
        self.compile(example_inputs)
        for node in self.graph.graph.nodes:
            node.meta.pop("example_value", None)  # of this compilation's fake tensors

    def written(self) -> list[int]:
        """Return the buffers that were written to since they became constants."""
        known = tuple(self._versions.items())  # another thread may compile meanwhile
        return [index for index, (value, version) in known if value._version != version]

    def keep_own(self) -> None:
        """Leave out buffers that the graph itself writes to, which are inputs of its code."""
        if not self._has_run:
            self._has_run = True
            for index in self.written():
                self._versions.pop(index, None)  # another thread may have been faster

    def compile(self, inputs: Sequence[Any]) -> None:
        """Compile the graph for inputs like these, and have `run` call the result."""
        written = self.written()
        weights = {at: one for at, one in self._weights.items() if at not in written}
        frozen = torch.fx.GraphModule(self.graph, deepcopy(self.graph.graph))
        frozen.meta, kept, named = self.graph.meta, [], {}
        for index, node in enumerate(frozen.graph.find_nodes(op="placeholder")):
            source = node._dynamo_source = self._sources[index]
            if index not in weights:
                kept.append(index)
                continue
            value, name = weights[index], f"_tilewise_{index}"
            is_parameter = isinstance(value, torch.nn.Parameter)
            (frozen.register_parameter if is_parameter else frozen.register_buffer)(name, value)
            named[name] = source
            with frozen.graph.inserting_before(node):
                constant = frozen.graph.get_attr(name)
            constant.meta = dict(node.meta)
            node.replace_all_uses_with(constant)
            frozen.graph.erase_node(node)
        frozen._param_name_to_source = self._names | named
        frozen.recompile()
        compiled = compile_fx(frozen, [inputs[index] for index in kept], **self._options)
        self.run = lambda *given: compiled(*[given[index] for index in kept])
        self._weights = weights
        for index in written:
            self._versions.pop(index, None)


# An installed package is known by its entry point, and a second registration raises.
if "tilewise" not in list_backends(()):
    register_backend(backend, name="tilewise")


def split_options(options: Mapping[str, Any] | None) -> tuple[Source, dict[str, Any]]:
    """Return the options of kernels, and those of Inductor.

    Raises:
        BadInputError: an option makes no sense.
    """
    others = dict(options or {})
    given = {one.name: others.pop(one.name) for one in fields(Source) if one.name in others}
    source = Source(**{"threads": torch.get_num_threads(), **given})
    sizes = source.sizes
    if not (isinstance(sizes, tuple) and len(sizes) == 2 and 0 < sizes[0] < sizes[1]):
        raise BadInputError(f"options: {sizes=} is not a pair such as (1, 64)")
    for name, least in (("trials", 0), ("threads", 1)):
        value = getattr(source, name)
        if not isinstance(value, int) or value < least:
            raise BadInputError(f"options: {name}={value!r} is not a number from {least} on")
    choices = {"accuracy": Problem.choices["accuracy"], "tune": ("now", "background")}
    for name, allowed in choices.items():
        if (value := getattr(source, name)) not in allowed:
            raise BadInputError(f"options: {name}={value!r} is not one of {', '.join(allowed)}")
    if source.store and source.server:
        raise BadInputError("options: give store or server, not both")
    return source, others


def problems(
    model: Any,
    inputs: Any,
    *,
    accuracy: str = "standard",
    dynamic: bool = False,
    sizes: tuple[int, int] = (1, 64),
) -> list[str]:
    """Return the problems of a model on inputs (a tensor or a tuple), for `tilewise tune`.

    Dynamic sizes have ranges: those that `torch._dynamo.mark_dynamic` names, with `dynamic` all.
    `sizes` are the bounds of those that have none. The model runs once, without kernels.

    Raises:
        BadInputError: there is no such accuracy, or there are no such sizes.
    """
    source, _ = split_options({"accuracy": accuracy, "sizes": sizes})
    found: list[str] = []

    def keep(gm: Any, _example_inputs: Any, **_: Any) -> Any:
        return make_boxed_func(gm.forward)

    def list_problems(gm: Any, example_inputs: Sequence[Any]) -> Any:
        with compiling(Compilation(source, Graph(), found)):
            patches = {"freezing": True}
            return _Frozen(gm, example_inputs, inner_compile=keep, config_patches=patches).run

    arguments = (inputs,) if isinstance(inputs, torch.Tensor) else tuple(inputs)
    with torch.no_grad():
        # Models of one class would share a limit, past which nothing is compiled.
        options: Any = {"dynamic": dynamic, "isolate_recompiles": True}
        torch.compile(model, backend=list_problems, **options)(*arguments)
    return list(dict.fromkeys(found))
