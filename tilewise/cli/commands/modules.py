"""`tilewise import` and `verify`: problems of MLIR modules, and scripts on real MLIR."""

import argparse
import re
import sys
from collections.abc import Callable
from pathlib import Path

from tilewise.backends.choose import named_server
from tilewise.cli import files
from tilewise.cli.command import DIM, SERVER, Command, arg, of_request, refuse, time_limit
from tilewise.errors import BadInputError, TilewiseError, bad_input
from tilewise.kernels.footprint import check_memory
from tilewise.kernels.mlir.frontend.dims import Sizes, problems_over
from tilewise.kernels.problem import Problem, ProblemRange, parse_any, parse_problem
from tilewise.kernels.problem.base import LARGEST_DIM
from tilewise.kernels.problem.parse import with_accuracy
from tilewise.kernels.quoting import columns, duration
from tilewise.requirements import BASE, OR_SERVER, require
from tilewise.schema.base import Json
from tilewise.search.networks.request import ModelRequest

GGUF = b"GGUF"
MOST_PLACES = 3
MOST_LINES, MOST_CHARACTERS = 12, 200
_PROBLEM = re.compile(r"^// problem:\s*(\S+)", re.MULTILINE)
_OF_PAYLOAD = re.compile(r"line \d+ of the payload:|payload:")
_FUNCTION = re.compile(r"^\s*func\.func\b", re.MULTILINE)


def import_module(options: argparse.Namespace) -> None:
    """List the matmuls and convolutions of an MLIR module, and what is skipped and why."""
    module = (
        None if files.begins_with(options.module, GGUF) else files.read_module_bytes(options.module)
    )
    if module is None or module.startswith(GGUF):
        found = _of_gguf(options, module)
    else:
        refuse(options, ("rows",), "{} is for GGUF files; a module has its own")
        if server := named_server(options.server):
            refuse(options, ("seconds",), "{} works only without --server")
        read = _at_service(server, module, options) if server else _here(module, options)
        found = problems_over(options.dim or (), read)
    sys.stdout.write(files.json_text(found) if options.json else problems_text(found))


def _of_gguf(options: argparse.Namespace, data: bytes | None) -> Json:
    """Return the products of a file's matrices by `--rows` rows, in the form of a module's.

    `data` is the file's content; None to map the file into memory.
    """
    refuse(options, ("dim", "seconds"), "{} is for modules; a GGUF file takes --rows")
    rows = 1 if options.rows is None else options.rows
    if not 1 <= rows <= LARGEST_DIM:
        raise BadInputError(f"--rows {rows} is out of range; give 1 to {LARGEST_DIM}")
    from tilewise.formats.gguf import GgufFile

    with bad_input(Path(options.module).name, BadInputError):
        file = GgufFile.open(options.module) if data is None else GgufFile(data)
    places: dict[str, list[str]] = {}
    skipped = []
    for tensor, found in file.problems(rows):
        if isinstance(found, Problem):
            where = f"{tensor.name} {tensor.kind_name}"
            text = with_accuracy(found.canonical, options.accuracy)
            places.setdefault(text, []).append(where)
        else:
            skipped.append({"op": tensor.kind_name, "reason": found,
                            "where": f"{tensor.name} {tensor.kind_name}"})  # fmt: skip
    problems = [{"problem": problem, "count": len(where), "where": where}
                for problem, where in places.items()]  # fmt: skip
    return {"problems": problems, "skipped": skipped}


def _here(module: bytes, options: argparse.Namespace) -> Callable[[Sizes], Json]:
    """Return what reads the module at some sizes of its dynamic dims."""
    require("iree.compiler", "import", "kernels", OR_SERVER)
    from tilewise.kernels.mlir.frontend.read import ReadLimits, read_module

    limits = ReadLimits() if options.seconds is None else ReadLimits(options.seconds)
    return lambda sizes: (
        read_module(module, limits, sizes).with_accuracy(options.accuracy).to_json()
    )


def _at_service(server: str, module: bytes, options: argparse.Namespace) -> Callable[[Sizes], Json]:
    """Return the same for a service that reads."""
    from tilewise.client import Client

    def read(sizes: Sizes) -> Json:
        with Client(server) as client:
            dim = [f"{name}={size}" for name, size in sizes.items()]
            return client.import_module(module, accuracy=options.accuracy, dim=dim).document

    return read


def problems_text(found: Json) -> str:
    """Format a row per problem, then what is skipped."""
    rows = [("count", "problem", "where")]
    rows += [
        (str(one["count"]), one["problem"], _places(one["where"])) for one in found["problems"]
    ]
    lines = columns(rows) if found["problems"] else ["no matmul and no convolution was found"]
    if found["skipped"]:
        lines += ["", *columns([("skipped", "because it", "where"),
                               *((one["op"], one["reason"], one["where"].rpartition(" ")[0])
                                 for one in found["skipped"])])]  # fmt: skip
    return "\n".join(lines) + "\n"


def _places(where: list[str]) -> str:
    shown = ", ".join(one.rpartition(" ")[0] for one in where[:MOST_PLACES])
    return f"{shown}, ..." if len(where) > MOST_PLACES else shown


class NotVerifiedError(TilewiseError):
    """The script failed; the verdict has been printed."""


def verify(options: argparse.Namespace) -> None:
    """Apply, run and time a script on real MLIR, and print the result."""
    files.require_folder(options.output)
    script = files.read_text(options.script)
    problem, payload = _subject(script, options)
    if problem is not None:
        check_memory(problem)
    require("iree.compiler", "verify", "kernels")
    from tilewise.kernels.mlir.proof.prove import verify as put_to_the_proof

    verdict = put_to_the_proof(
        script, problem=problem, payload=payload, seed=options.seed, seconds=options.seconds
    )
    found = {"problem": problem.canonical if problem else None, **verdict.to_json()}
    sys.stdout.write(files.json_text(found) if options.json else verdict_text(found))
    if options.output and found["applied"]:
        files.write_text(options.output, verdict.found.transformed)
    if not found["ok"]:
        gist = _gist(found["message"])
        file = options.payload if options.payload and _OF_PAYLOAD.match(gist) else options.script
        raise NotVerifiedError(f"{file}: {found['failure']}: {gist}")


def verdict_text(found: Json) -> str:
    """Format the structure, then the stages."""
    lines = [*found["structure"], ""] if found["structure"] else []
    rows = [("problem", found["problem"]), ("mlir", found["mlir"]),
            ("applied", _yes(found["applied"])), ("vectors", _yes(found["vectorised"])),
            ("executed", _yes(found["executed"])),
            *(("warning", text) for text in found["warnings"])]  # fmt: skip
    if found["max_error"] is not None and found["tolerance"] is not None:
        inputs = f" ({found['inputs']} inputs)" if found["inputs"] else ""
        error = f"{found['max_error']:.3g}, allowed {found['tolerance']:.3g}{inputs}"
        rows.append(("error", error))
    if found["time_us"] is not None:
        rows.append(("time", _time(found)))
    if found["failure"]:
        message = found["message"].splitlines()
        shown = message[:MOST_LINES] + ([f"... {len(message) - MOST_LINES} more lines; see --json"]
                                     if len(message) > MOST_LINES else [])  # fmt: skip
        rows.append((found["failure"], "\n          ".join(shown)))
    lines += [f"{name:<10}{text}" for name, text in rows if text is not None]
    return "\n".join(lines) + "\n"


def _gist(message: str) -> str:
    """Return the decisive line: that of the script, or MLIR's first error."""
    lines = message.splitlines() or [""]
    starts = ("line ", "payload: ")
    gist = next((line for line in lines if line.startswith(starts) or "error:" in line), lines[0])
    return gist.strip()[:MOST_CHARACTERS]


def _yes(is_so: bool) -> str:
    return "yes" if is_so else "no"


def _time(found: Json) -> str:
    text = duration(found["time_us"])
    if found["gflops"] is not None:
        text += f", {found['gflops']:.1f} GFLOP/s"
    if found["unscripted_us"] is not None:
        faster = found["unscripted_us"] / found["time_us"]
        text += f"; {duration(found['unscripted_us'])} without the script, {faster:.1f}x"
    return text


def _subject(script: str, options: argparse.Namespace) -> tuple[Problem | None, str | None]:
    """Return the problem or payload to transform; neither if the script has its own."""
    if options.payload and options.problem:
        raise BadInputError("give --payload or --problem, not both")
    if options.payload:
        return None, files.read_text(options.payload)
    if options.problem:
        return parse_problem(options.problem), None
    named = _PROBLEM.search(script)
    holds_payload = _FUNCTION.search(script) is not None
    if named and not holds_payload:
        if isinstance(parse_any(named.group(1)), ProblemRange):
            raise BadInputError(
                f"{options.script} is of a range, and verify runs single sizes; "
                "tilewise script proves ranges, and the header lists the sizes"
            )
        return parse_problem(named.group(1)), None
    if not holds_payload:
        raise BadInputError(
            f"{options.script} has no payload and names no problem; give --payload or --problem"
        )
    return None, None


FILE = "MLIR's text or bytecode: linalg, torch, StableHLO, TOSA; ONNX; GGUF; - reads stdin"
PAYLOAD = "a module with one function, which runs as native code with your permissions"

COMMANDS = (
    Command(
        "import",
        import_module,
        (
            arg("module", FILE, metavar="FILE"),
            arg("--rows", "GGUF: rows of A; default: 1", type=int, metavar="M"),
            DIM,
            time_limit(default=None),
            *of_request(ModelRequest, "accuracy"),
            SERVER,
        ),
        extra="kernels",
        at_service=BASE,
        examples=(
            "import model.mlir",
            "import model.onnx --json",
            "import model.onnx --dim batch=1..32",
            "import model.gguf --rows 16",
        ),
    ),
    Command(
        "verify",
        verify,
        (
            arg("script", "a module with @__transform_main", metavar="SCRIPT.mlir"),
            arg("--payload", PAYLOAD, metavar="FILE"),
            arg("--problem", "problem; default: the one in its header", metavar="PROBLEM"),
            arg("--seed", "seed of the inputs; default: 0", type=int, default=0, metavar="I"),
            arg("-o --output", "write the transformed module to this file", metavar="FILE"),
            time_limit(),
        ),
        extra="kernels",
        examples=(
            "verify script.mlir --payload payload.mlir",
            "verify script.mlir --problem matmul:m=64,n=64,k=64,dtype=f32",
        ),
    ),
)
