"""`tilewise model --as native`: a model as native code; and its alias `tilewise plan`."""

import argparse
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from tilewise.backends.choose import named_server
from tilewise.cli.aliases import note_alias
from tilewise.cli.command import DB, DIM, SERVER, Command, arg, backend_of, flag, of_request
from tilewise.cli.files import json_text, make_folder, read_module_bytes, write_bytes, write_text
from tilewise.cli.tuning import tune_lacking
from tilewise.errors import BadInputError, TilewiseError, bad_input
from tilewise.fetch.folder import file_errors
from tilewise.kernels.errors import ModuleError
from tilewise.kernels.mlir.frontend.dims import exact_dims
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.system.typed_json import to_json
from tilewise.kernels.target import resolve
from tilewise.requirements import BASE, OR_SERVER, require
from tilewise.search.networks.request import ModelRequest, PlanChoices, PlanRequest

if TYPE_CHECKING:
    from tilewise.backends.choose import Backend
    from tilewise.kernels.mlir.frontend.graph import Graph
    from tilewise.kernels.mlir.frontend.program import Outline
    from tilewise.kernels.problem import Accuracy
    from tilewise.model.network import Ran, RunnableModel
    from tilewise.search.networks.costs import LayerTimes
    from tilewise.search.networks.plan import Plan

PLAN = "plan.json"
POLL_S = 1.0


def plan(options: argparse.Namespace) -> None:
    """Choose algorithms and layouts of a whole model; the same as model --as native."""
    with with_sizes(options):
        make_native(options)
    writes = ""
    if options.output and not options.module and not options.executes:
        options.json, writes = True, f" > {shlex.quote(str(Path(options.output) / PLAN))}"
    way = "native --run" if options.executes else "native"
    note_alias(options, options.file, way, options.module, writes)


@contextmanager
def with_sizes(options: argparse.Namespace) -> Iterator[None]:
    """Replace the model of the options by a copy with the sizes of `--dim`."""
    sizes, given = exact_dims(options.dim or ()), Path(options.file)
    if not sizes:
        yield
        return
    require("iree.compiler", "--dim", "kernels")
    from tilewise.kernels.mlir.frontend.read import as_module

    with TemporaryDirectory() as folder, bad_input(given.name, ModuleError):
        static = Path(folder) / f"{given.stem}.mlirbc"
        write_bytes(str(static), as_module(read_module_bytes(options.file), sizes=sizes))
        options.file = str(static)
        yield
    options.file = str(given)


def make_native(options: argparse.Namespace) -> None:
    """Plan a model, run the plan and write its network, as the options request.

    `output` is a folder for the plan alone, `module` one for the network.
    """
    module = read_module_bytes(options.file)
    server = named_server(options.server, options.db)
    if server and not (options.executes or options.module or options.times):
        _plan_at(server, module, options)
        return
    for child_needs in ("iree.compiler", "iree.runtime"):
        require(child_needs, "plan", "service", OR_SERVER)
    from tilewise.model.plan_table import plan_text
    from tilewise.search.networks.pass_times import PassTimes
    from tilewise.search.networks.planning import planned
    from tilewise.search.networks.variants import problems_of
    from tilewise.search.runner.processors import timing_alone

    name = Path(options.file).name
    target = resolve(options.target).canonical  # what a service takes `host` for is elsewhere
    request = replace(PlanRequest.of(options), name=name, target=target)
    runs = bool(options.executes or options.module)
    outline, model = _read(name, module, request.accuracy, runs=runs)
    graph = outline.graph
    folder = make_folder(options.output) if options.output else None
    alone = _folder_alone(options.module) if options.module else None
    problems = list(map(parse_problem, problems_of(graph, request.layouts)))
    with backend_of(options) as backend:
        tune_lacking(backend, problems, target, options)
        costs = _costs(options, backend, target, graph)
        passes = None if outline.refused else PassTimes(outline, resolve(target))
        with timing_alone(target):
            made = planned(graph, costs, request, passes)
            own = made if not options.executes else planned(
                graph, costs, replace(request, layouts="model"), passes
            )  # fmt: skip
    document: dict[str, object] = {}
    texts = []
    if model is not None:
        from tilewise.model.network import allowed, folder_text, run_text

        run, files = _ran(made, own, model)
        made, bound = own if run.kept else made, allowed(made)
        if alone is not None:
            _write_module(files, alone)
            document["module"] = {
                "folder": options.module, "files": list(files), "times": run.times,
                "deviation": run.deviation, "allowed": bound,
            }  # fmt: skip
            texts.append(folder_text(options.module, files, run, bound))
        if options.executes:
            document["run"] = {**to_json(run), "allowed": bound}
            texts.append(run_text(run, bound))
    text = json_text(made.to_json())
    if folder is not None:
        write_text(str(folder / PLAN), text)
    if options.json:
        sys.stdout.write(json_text({"plan": made.to_json(), **document}) if document else text)
    else:
        sys.stdout.write("\n".join((plan_text(made), *texts)))


def _plan_at(server: str, module: bytes, options: argparse.Namespace) -> None:
    """Have a service tune and plan a model, and print its plan."""
    from tilewise.client import Client
    from tilewise.client.events import BrokenStreamError, PartEnded

    folder = make_folder(options.output) if options.output else None
    name = "model.mlir" if options.file == "-" else Path(options.file).name
    request = replace(PlanRequest.of(options), name=name)
    with Client(server) as client:
        submitted = client.submit_plan(module, **vars(request))
        sys.stderr.write(f"tilewise: plan {submitted.id} at {server}\n")
        with suppress(BrokenStreamError):  # as behind a proxy that lets no stream through
            for event in client.plan_events(submitted.id):
                if isinstance(event, PartEnded):
                    sys.stderr.write(f"tilewise: {event.done}/{event.total} problems have ended\n")
        while not (made := client.plan(submitted.id)).has_ended:
            time.sleep(POLL_S)
    if made.state != "done" or made.plan is None:
        raise TilewiseError(f"plan {made.id} is {made.state}: {made.error or 'no reason is known'}")
    text = json_text(made.plan)
    if folder is not None:
        write_text(str(folder / PLAN), text)
    if options.json:
        sys.stdout.write(text)
        return
    from tilewise.model.plan_table import plan_text
    from tilewise.search.networks.plan import Plan

    sys.stdout.write(plan_text(Plan.from_json(made.plan)))


def _folder_alone(path: str) -> Path:
    """Create the folder of a network; refuse another package's."""
    folder = make_folder(path)
    if (folder / "__init__.py").exists() and not (folder / "network.json").exists():
        raise BadInputError(f"{path} is a package of another kind; give a folder of its own")
    return folder


def _costs(
    options: argparse.Namespace, backend: "Backend", target: str, graph: "Graph"
) -> "LayerTimes":
    """Return stored times of layers, or times measured here with cold weights."""
    from tilewise.backends.costs import stored_costs
    from tilewise.search.networks.cold_weights import timed_cold, weights_bytes
    from tilewise.search.networks.costs import MOST_TIMED_COLD

    if options.times == "stored":
        return stored_costs(backend, target, options.cache)
    stored = stored_costs(backend, target, options.cache, most=MOST_TIMED_COLD)
    return timed_cold(stored, resolve(target), weights_bytes(graph))


def _ran(made: "Plan", own: "Plan", model: "RunnableModel") -> "tuple[Ran, dict[str, bytes]]":
    """Run a plan, IREE, and the plan of the model's own layouts if they differ.

    Raises TilewiseError if a result is wrong or the run fails.
    """
    from tilewise.model.network import allowed, ran

    is_own = (made.nodes, made.conversions) == (own.nodes, own.conversions)
    run, files = ran([made] if is_own else [made, own], model)
    if not run.deviation <= allowed(made):
        raise TilewiseError(
            f"the results of the network are {run.deviation:.1e} from the model's, and "
            f"{allowed(made):.1e} is allowed; nothing is written"
        )
    return run, files


def _write_module(files: "dict[str, bytes]", folder: Path) -> None:
    """Write the files of a network, each of which appears whole."""
    with file_errors("write", str(folder)), TemporaryDirectory(dir=folder) as beneath:
        for name, data in files.items():
            write_bytes(str(Path(beneath) / name), data)
        for name in files:
            (Path(beneath) / name).replace(folder / name)


def _read(
    name: str, module: bytes, accuracy: "Accuracy", *, runs: bool
) -> "tuple[Outline, RunnableModel | None]":
    """Return a model's graph with what its nodes do, and all of it if it is to run."""
    model = None
    if runs:
        from tilewise.model.network import runnable

        model = runnable(name, module)
        outline = model.program.outline
    else:
        from tilewise.kernels.mlir.frontend.read import read_outline

        with bad_input(name, ModuleError):
            outline = read_outline(module)
    if not outline.graph.layers:
        why = outline.graph.why_no_layer
        raise BadInputError(f"{name}: it has no matmul or convolution that can be tuned{why}")
    return outline.with_accuracy(accuracy), model


TIMES = (
    "times of layers: measured on this machine with cold weights, or stored ones; "
    "default: here, or with --server, by a worker of the service"
)
RUN = "run the planned network, compare it with IREE's code of the model, and time both"
MODULE = (
    "write and prove the network as a Python package with code and packed weights, which "
    "needs NumPy alone"
)
PLANNING = (*of_request(PlanChoices, unset=True), arg("--times", TIMES, choices=("here", "stored")))
"""Options that say what a plan is chosen from."""

COMMANDS = (
    Command(
        "plan",
        plan,
        (
            arg("file", "linalg, torch, StableHLO, TOSA or ONNX", metavar="FILE.mlir"),
            DIM,
            arg("-o --output", f"folder for {PLAN}; default: none", metavar="DIR"),
            *PLANNING,
            flag("--run", RUN, dest="executes"),
            arg("--module", MODULE, metavar="DIR"),
            *of_request(ModelRequest),
            DB,
            SERVER,
        ),
        at_service=BASE,
        examples=("plan model.mlir -o results", "plan model.mlir --run"),
    ),
)
