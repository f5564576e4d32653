"""`tilewise kernel` and `tilewise asm`: the best schedule's code, to run and to read."""

import argparse
import json
import sys

from tilewise.cli.command import Command
from tilewise.cli.files import require_folder, write_text
from tilewise.cli.options import add_output, add_stored, backend_of
from tilewise.cli.output import named
from tilewise.requirements import needed


def kernel(options: argparse.Namespace) -> None:
    """Print the best schedule's kernel as a Python module that runs on its own."""
    require_folder(options.output)
    with backend_of(options) as backend:
        text = backend.kernel(options.problem, options.target)
    write_text(options.output, named(options.problem, kernel=text) if options.json else text)


def asm(options: argparse.Namespace) -> None:
    """Print the inner loop's assembly, its counts, and the bound that they imply."""
    with backend_of(options) as backend:
        found = backend.show(options.problem, options.target)
    with needed("asm here", "kernels"):
        from kernels.native.assembly.inner_loop import inspect_result, render
    loop = inspect_result(found)
    about = {"problem": found["problem"], "hash": found["best"]["hash"]}
    text = json.dumps(about | loop.to_json(), indent=2) + "\n" if options.json else render(loop)
    sys.stdout.write(text)


def add_kernel_options(parser: argparse.ArgumentParser) -> None:
    """What can be typed after `tilewise kernel`."""
    add_stored(parser)
    add_output(parser)


COMMANDS = (Command("kernel", kernel, add_kernel_options), Command("asm", asm, add_stored))
