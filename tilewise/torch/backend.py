"""The backend: Inductor with freezing, and kernels in place of ops inside it."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any

import torch
from torch._dynamo import list_backends, register_backend
from torch._dynamo.guards import GuardBuilder
from torch._dynamo.source import GlobalStateSource
from torch._functorch.aot_autograd import make_boxed_func
from torch._guards import TracingContext
from torch._inductor.compile_fx import compile_fx
from torch._inductor.fx_passes import freezing_patterns
from torch.fx.experimental.symbolic_shapes import StrictMinMaxConstraint
from torch.utils.weak import WeakIdKeyDictionary

from tilewise.errors import NoAnswerError
from tilewise.linked.kernels import Kernel, Kernels, Source, line_of, warn_once
from tilewise.torch import ops
from tilewise.torch.background import search_in_background
from tilewise.torch.operators import load_operators
from tilewise.torch.records import Graph, Op, new_graph
from tilewise.torch.verdicts import verdict

_current = threading.local()
_seen = WeakIdKeyDictionary()
"""Of each weight: its version at the last compilation, and how many compilations found another."""


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
                if kernels.found:
                    load_operators()
                for node in nodes:
                    self._decide(node, kernels)
                self.absent += kernels.absent
        except Exception as error:  # a compiler may fail in any way
            more = "more " if self.graph.ops else ""
            self.graph.fallback = f"no {more}kernels are used: {line_of(error)}"
            warn_once(self.graph.fallback)
        return sum(bool(op.kernel) for op in self.graph.ops)

    def _candidates(self, node: Any) -> list[ops.Candidate]:
        return ops.candidates(node, self.source, may_guard=self.may_guard)

    def _decide(self, node: Any, kernels: Kernels) -> None:
        """Replace an op and what follows it by the kernel of its widest problem that has one."""
        # Matched again: operands may be results of ops that were replaced before.
        reasons = list[Op]()
        for one in self._candidates(node):
            try:
                op, kernel = _judged(one.problem, kernels)
            except NoAnswerError:
                raise
            except Exception as error:  # one kernel that fails does not cost the others
                text = line_of(error)
                warn_once(f"{one.problem}: no kernel is used: {text}")
                op, kernel = Op("", one.problem, reason=text), None
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


def _judged(problem: str, kernels: Kernels) -> tuple[Op, Kernel | None]:
    """Return the decision on a problem, and the kernel if it is to be used."""
    kernel = kernels.load(problem)
    if kernel is None:
        return Op("", problem, reason="no kernel is stored"), None
    found = verdict(kernel)
    times = (found.kernel_us, found.own_us)
    if found.wins:
        return Op("", kernel.problem, kernel.name, "", *times), kernel
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
    graph = new_graph(value for value in example_inputs if isinstance(value, torch.Tensor))
    if torch.is_grad_enabled():
        graph.fallback = "left to Inductor: gradients are enabled; use torch.no_grad()"
        warn_once(f"a graph is {graph.fallback}")
        return compile_fx(gm, example_inputs, config_patches=patches)  # type: ignore[no-any-return]
    is_later = source.tune == "background" and source.trials > 0
    searched = replace(source, trials=0) if is_later else source
    compilation = Compilation(searched, graph, may_guard=_may_guard())
    with compiling(compilation):
        run = _frozen(gm, example_inputs, graph, config_patches={**patches, "freezing": True})
    if is_later:
        search_in_background(source, compilation.absent, graph.leave)
    return run


def _may_guard() -> bool:
    """Return whether guards may narrow dynamic sizes; not those whose bounds a program declared."""
    contexts = TracingContext.get().tensor_to_context.values()
    declared = [one for some in contexts for one in getattr(some, "constraint_sizes", None) or ()]
    return not any(isinstance(one, StrictMinMaxConstraint) for one in declared)


def _frozen(
    gm: Any, example_inputs: Sequence[Any], graph: Graph, **options: Any
) -> Callable[..., Any]:
    """Compile a graph with its weights as constants, for as long as nobody writes to them.

    Dynamo's setting `prepare_freezing` has no guards: a second model of one class would get the
    weights of the first, with any backend of the process, and changed weights would have no effect.
    """
    guards = TracingContext.get().guards_context.dynamo_guards
    guards.add(GlobalStateSource().make_guard(graph.guard))
    kept, named = list[int](), dict[str, Any]()
    for index, node in enumerate(gm.graph.find_nodes(op="placeholder")):
        source: Any = getattr(node, "_dynamo_source", None)
        value = example_inputs[index]
        is_own = source is not None and source.guard_source.is_unspecialized_nn_module()
        is_parameter = type(value) is torch.nn.Parameter
        if not (is_own and _is_constant(value)):
            kept.append(index)
            continue
        guards.add(source.make_guard(GuardBuilder.ID_MATCH))
        graph.keep(value)
        name = f"_tilewise_{index}"
        (gm.register_parameter if is_parameter else gm.register_buffer)(name, value)
        named[name] = source
        with gm.graph.inserting_before(node):
            constant = gm.graph.get_attr(name)
        constant.meta = dict(node.meta)
        node.replace_all_uses_with(constant)
        gm.graph.erase_node(node)
    gm._param_name_to_source = getattr(gm, "_param_name_to_source", None) or {}
    gm._param_name_to_source.update(named)  # which Dynamo sets again if it compiles the graph again
    gm.recompile()
    # Dynamo passes what is still an input of its graph.
    return compile_fx(gm, [example_inputs[index] for index in kept], **options)  # type: ignore[no-any-return]


def _is_constant(value: Any) -> bool:
    """Return whether weights may be constants: compilations have hardly found them changed.

    Parameters may change twice, as by `load_state_dict`, and statistics of norms once. What changes
    more often, such as in training or a cache of attention, would be compiled again each time.
    """
    is_parameter = type(value) is torch.nn.Parameter
    if type(value) is not torch.Tensor and not is_parameter:
        return False
    if value.is_inference():  # nobody can see whether it changes
        return is_parameter
    version, changes = _seen.get(value, (value._version, 0))
    changes += version != value._version
    _seen[value] = value._version, changes
    return bool(changes <= (2 if is_parameter else value.dim() == 1))


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
    return Source(**{"threads": torch.get_num_threads(), **given}), others


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
            return _frozen(gm, example_inputs, Graph(), inner_compile=keep, config_patches=patches)

    arguments = (inputs,) if isinstance(inputs, torch.Tensor) else tuple(inputs)
    with torch.no_grad():
        # Models of one class would share a limit, past which nothing is compiled.
        options: Any = {"dynamic": dynamic, "isolate_recompiles": True}
        torch.compile(model, backend=list_problems, **options)(*arguments)
    return list(dict.fromkeys(found))
