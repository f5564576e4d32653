"""`tilewise verify`: a transform script, ours or not, applied, run and timed on real MLIR."""

import argparse
import json
import re
import sys
from typing import Any

from tilewise.cli.command import Command
from tilewise.cli.files import read_text, write_text
from tilewise.cli.options import add_server
from tilewise.errors import BadInputError, TilewiseError
from tilewise.kernels.footprint import check_memory
from tilewise.kernels.problem import Problem, parse_problem
from tilewise.kernels.quoting import duration
from tilewise.requirements import require

Json = dict[str, Any]
MOST_LINES, MOST_CHARACTERS = 12, 200
_PROBLEM = re.compile(r"^// problem:\s*(\S+)", re.MULTILINE)
_OF_PAYLOAD = re.compile(r"line \d+ of the payload:|payload:")
_FUNCTION = re.compile(r"^\s*func\.func\b", re.MULTILINE)


class NotVerifiedError(TilewiseError):
    """The script does not hold; the verdict has been printed."""


def verify(options: argparse.Namespace) -> None:
    """Apply, run and time a script on real MLIR, and print what it made."""
    if options.server:
        raise BadInputError(
            "verify compiles and runs what it is given, which no service does for a client; "
            "leave out --server"
        )
    script = read_text(options.script)
    problem, payload = _subject(script, options)
    if problem is not None:
        check_memory(problem)
    require("iree.compiler", "verify", "kernels")
    from tilewise.kernels.mlir.proof.prove import verify as put_to_the_proof

    verdict = put_to_the_proof(
        script, problem=problem, payload=payload, seed=options.seed, seconds=options.seconds
    )
    if options.output:
        write_text(options.output, verdict.found.transformed)
    told = {"problem": problem.canonical if problem else None, **verdict.to_json()}
    sys.stdout.write(json.dumps(told, indent=2) + "\n" if options.json else render(told))
    if not told["ok"]:
        gist = _gist(told["message"])
        file = options.payload if options.payload and _OF_PAYLOAD.match(gist) else options.script
        raise NotVerifiedError(f"{file}: {told['failure']}: {gist}")


def render(told: Json) -> str:
    """The verdict for people: the structure, then the stages."""
    lines = [*told["structure"], ""] if told["structure"] else []
    rows = [("problem", told["problem"]), ("mlir", told["mlir"]),
            ("applied", _yes(told["applied"])), ("vectors", _yes(told["vectorised"])),
            ("executed", _yes(told["executed"])),
            *(("warning", text) for text in told["warnings"])]  # fmt: skip
    if told["max_error"] is not None and told["tolerance"] is not None:
        inputs = f" ({told['inputs']} inputs)" if told["inputs"] else ""
        error = f"{told['max_error']:.3g}, allowed {told['tolerance']:.3g}{inputs}"
        rows.append(("error", error))
    if told["time_us"] is not None:
        rows.append(("time", _time(told)))
    if told["failure"]:
        said = told["message"].splitlines()
        shown = said[:MOST_LINES] + ([f"... {len(said) - MOST_LINES} more lines; see --json"]
                                     if len(said) > MOST_LINES else [])  # fmt: skip
        rows.append((told["failure"], "\n          ".join(shown)))
    lines += [f"{name:<10}{text}" for name, text in rows if text is not None]
    return "\n".join(lines) + "\n"


def _gist(message: str) -> str:
    """The line that says what is wrong: that of the script, or MLIR's first error."""
    lines = message.splitlines() or [""]
    starts = ("line ", "payload: ")
    told = next((line for line in lines if line.startswith(starts) or "error:" in line), lines[0])
    return told.strip()[:MOST_CHARACTERS]


def _yes(is_so: bool) -> str:
    return "yes" if is_so else "no"


def _time(told: Json) -> str:
    text = duration(told["time_us"])
    if told["gflops"] is not None:
        text += f", {told['gflops']:.1f} GFLOP/s"
    if told["unscripted_us"] is not None:
        faster = told["unscripted_us"] / told["time_us"]
        text += f"; {duration(told['unscripted_us'])} without the script, {faster:.1f}x"
    return text


def _subject(script: str, options: argparse.Namespace) -> tuple[Problem | None, str | None]:
    """What is transformed: a problem's payload, a file's, or what the script has itself."""
    if options.payload and options.problem:
        raise BadInputError("give --payload or --problem, not both")
    if options.payload:
        return None, read_text(options.payload)
    if options.problem:
        return parse_problem(options.problem), None
    named = _PROBLEM.search(script)
    holds_payload = _FUNCTION.search(script) is not None
    if named and not holds_payload:
        return parse_problem(named.group(1)), None
    if not holds_payload:
        raise BadInputError(
            f"{options.script} has no payload and names no problem; give --payload or --problem"
        )
    return None, None


def add_options(parser: argparse.ArgumentParser) -> None:
    """What can be typed after `tilewise verify`."""
    parser.add_argument("script", metavar="SCRIPT.mlir", help="a module with @__transform_main")
    parser.add_argument(
        "--payload",
        metavar="FILE",
        help="a module with one function; it is compiled, and runs as native code with your rights",
    )
    parser.add_argument(
        "--problem", metavar="PROBLEM", help="what it computes; default: what its header names"
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="I", help="of the inputs; default: 0"
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="write the transformed module there")
    parser.add_argument(
        "--seconds", type=float, default=60.0, metavar="S", help="time limit; default: 60"
    )
    add_server(parser)


COMMANDS = (
    Command(
        "verify",
        verify,
        add_options,
        extra="kernels",
        examples=(
            "verify script.mlir --payload payload.mlir",
            "verify script.mlir --problem matmul:m=64,n=64,k=64,dtype=f32",
        ),
    ),
)
