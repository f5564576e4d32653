"""`tilewise kernel` and `tilewise asm`: the best schedule's code, to run, to link and to read."""

import argparse
import json
import sys
from pathlib import Path

from tilewise.cli.command import Command
from tilewise.cli.files import require_folder, write_bytes, write_text
from tilewise.cli.options import add_output, add_stored, backend_of
from tilewise.cli.output import named
from tilewise.errors import BadInputError
from tilewise.kernels.problem import parse_problem, stem
from tilewise.requirements import BASE

MODULE, OBJECT, BITCODE, HEADER = "module", "object", "bitcode", "c-header"
ENDINGS = {OBJECT: ".o", BITCODE: ".bc"}


def kernel(options: argparse.Namespace) -> None:
    """Give the best schedule's kernel: a Python module, or machine code for C."""
    require_folder(options.output)
    if options.format in ENDINGS:
        _machine_code(options)
        return
    with backend_of(options) as backend:
        if options.format == HEADER:
            text, part = backend.object_files(options.problem, options.target).header, "header"
        else:
            text, part = backend.kernel(options.problem, options.target), "kernel"
    told = named(options.problem, **{part: text}) if options.json else text
    write_text(options.output, told)


def _machine_code(options: argparse.Namespace) -> None:
    """Write the object or the bitcode, and the header beside it."""
    place = Path(options.output or stem(parse_problem(options.problem)) + ENDINGS[options.format])
    header = place.with_suffix(".h")
    if header == place:
        raise BadInputError(f"{place} would be the header's name; end it with another")
    for path in (place, header):
        require_folder(str(path))
    with backend_of(options) as backend:
        found = backend.object_files(options.problem, options.target)
    is_object = options.format == OBJECT
    write_bytes(str(place), found.object_bytes if is_object else found.bitcode_bytes)
    write_text(str(header), found.header)
    about: dict[str, object] = {
        "problem": found.problem,
        "target": found.target,
        "schedule": found.schedule,
        "symbol": found.symbol,
        "features": list(found.features),
        options.format: str(place),
        "header": str(header),
        "proof": found.proof,
    }
    text = json.dumps(about, indent=2) + "\n" if options.json else _told(about, options.format)
    sys.stdout.write(text)


def _told(about: dict[str, object], what: str) -> str:
    """Where the files are and what was proven, for people."""
    proof = about["proof"]
    assert isinstance(proof, dict)
    speed = f", {proof['gflops']:.1f} GFLOP/s" if proof.get("gflops") else ""
    ratio = f", {proof['ratio']:.2f} of our own call" if proof.get("ratio") else ""
    rows = {
        what: about[what],
        "header": about["header"],
        "symbol": about["symbol"],
        "proven": f"linked, run between guard pages, error {proof['max_error']:.3g} within "
        f"{proof['tolerance']:.3g}{speed}{ratio}",
    }
    return "".join(f"{name:<9} {value}\n" for name, value in rows.items())


def asm(options: argparse.Namespace) -> None:
    """Print the inner loop's assembly, its counts, and the bound that they imply."""
    with backend_of(options) as backend:
        found = backend.show(options.problem, options.target)
    from tilewise.kernels.native.assembly import inspect_result, render

    loop = inspect_result(found)
    about = {"problem": found["problem"], "hash": found["best"]["hash"]}
    text = json.dumps(about | loop.to_json(), indent=2) + "\n" if options.json else render(loop)
    sys.stdout.write(text)


def add_kernel_options(parser: argparse.ArgumentParser) -> None:
    """What can be typed after `tilewise kernel`."""
    add_stored(parser)
    parser.add_argument(
        "--format",
        choices=(MODULE, OBJECT, BITCODE, HEADER),
        default=MODULE,
        help="of the kernel; object and bitcode come with a C header beside them; default: module",
    )
    add_output(parser)


COMMANDS = (
    Command(
        "kernel",
        kernel,
        add_kernel_options,
        at_service=BASE,
        examples=(
            "kernel matmul:m=1024,n=512,k=2048,dtype=f32 -o matmul.py",
            "kernel matmul:m=1024,n=512,k=2048,dtype=f32 --format object -o matmul.o",
        ),
    ),
    Command(
        "asm",
        asm,
        add_stored,
        at_service="kernels",
        examples=("asm matmul:m=1024,n=512,k=2048,dtype=f32",),
    ),
)
