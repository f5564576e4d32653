"""`tilewise import`: the problems of an MLIR module."""

import argparse
import json
import sys
from typing import Any

from tilewise.backends.choose import named_server
from tilewise.cli.command import Command
from tilewise.cli.files import read_module_bytes
from tilewise.cli.options import add_accuracy, add_server
from tilewise.kernels.problem import Accuracy
from tilewise.requirements import BASE, OR_SERVER, require

Json = dict[str, Any]
MOST_PLACES = 3


def import_module(options: argparse.Namespace) -> None:
    """Find the matmuls and convolutions of an MLIR module, and say what is skipped and why."""
    module = read_module_bytes(options.module)
    server = named_server(options.server)
    found = _at_service(server, module, options.accuracy) if server else _here(module, options)
    sys.stdout.write(json.dumps(found, indent=2) + "\n" if options.json else render(found))


def _here(module: bytes, options: argparse.Namespace) -> Json:
    require("iree.compiler", "import", "kernels", OR_SERVER)
    from tilewise.kernels.mlir.frontend.read import Limits, read_module

    found = read_module(module, Limits(seconds=options.seconds))
    return found.with_accuracy(options.accuracy).to_json()


def _at_service(server: str, module: bytes, accuracy: Accuracy) -> Json:
    from tilewise.client import Client

    with Client(server) as client:
        return client.import_module(module, accuracy=accuracy).document


def render(found: Json) -> str:
    """What was found, for people: a row for each problem, then what is skipped."""
    rows = [("count", "problem", "where")]
    rows += [
        (str(one["count"]), one["problem"], _places(one["where"])) for one in found["problems"]
    ]
    lines = _table(rows) if found["problems"] else ["no matmul and no convolution was found"]
    if found["skipped"]:
        lines += ["", *_table([("skipped", "because it", "where"),
                               *((one["op"], one["reason"], one["where"].rpartition(" ")[0])
                                 for one in found["skipped"])])]  # fmt: skip
    return "\n".join(lines) + "\n"


def _places(where: list[str]) -> str:
    shown = ", ".join(one.rpartition(" ")[0] for one in where[:MOST_PLACES])
    return f"{shown}, ..." if len(where) > MOST_PLACES else shown


def _table(rows: list[tuple[str, str, str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    return [f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c}".rstrip() for a, b, c in rows]


def add_options(parser: argparse.ArgumentParser) -> None:
    """What can be typed after `tilewise import`."""
    parser.add_argument(
        "module",
        metavar="FILE",
        help="MLIR's text or bytecode: linalg, torch, StableHLO, TOSA; or ONNX; - reads stdin",
    )
    parser.add_argument(
        "--seconds", type=float, default=60.0, metavar="S", help="time limit; default: 60"
    )
    add_accuracy(parser)
    add_server(parser)


COMMANDS = (
    Command(
        "import",
        import_module,
        add_options,
        extra="kernels",
        at_service=BASE,
        examples=(
            "import model.mlir",
            "import model.onnx --json",
        ),
    ),
)
