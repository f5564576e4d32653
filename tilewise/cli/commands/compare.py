"""`tilewise compare`: verdicts on the results of two stores."""

import argparse
import sys

from tilewise.cli.command import Command, arg
from tilewise.cli.files import json_text, write_text
from tilewise.errors import BadInputError, TilewiseError
from tilewise.formats.columns import columns
from tilewise.search.verdicts import TOLERANCE

STORE = "URL of a database, or an archive of `store export`"


def compare(options: argparse.Namespace) -> None:
    """Tell for each problem of two stores whether it became faster or slower."""
    if not 0 <= options.tolerance < 1:
        raise BadInputError(f"tolerance={options.tolerance:g} is not at least 0 and less than 1")
    from tilewise.backends import comparison

    found = comparison.compare_stores(options.base, options.new, options.tolerance)
    if options.junit:
        write_text(options.junit, comparison.junit(found))
    if options.json:
        sys.stdout.write(json_text(found))
    else:
        head = ("problem", "target", "cache", "base", "new", "ratio", "verdict")
        rows = [
            (row["problem"], row["target"], row["cache"], f"{row['base']['gflops']:.1f}",
             f"{row['new']['gflops']:.1f}", f"{row['ratio']:.3f}", row["verdict"])
            for row in found["problems"]
        ]  # fmt: skip
        sys.stdout.write("".join(f"{line}\n" for line in columns([head, *rows], {3, 4, 5})))
        counts = [f"{number} {name}" for name, number in found["counts"].items()]
        sys.stdout.write(f"{', '.join(counts)}; speeds in GFLOP/s\n")
    if slower := found["counts"]["slower"]:
        total = len(found["problems"])
        raise TilewiseError(f"{slower} of {total} problems became slower than in {found['base']}")


COMMANDS = (
    Command(
        "compare",
        compare,
        (
            arg("base", STORE, metavar="BASE"),
            arg("new", "the other store, likewise", metavar="NEW"),
            arg("--tolerance", f"a change that is none; default: {TOLERANCE}", type=float,
                default=TOLERANCE, metavar="R"),
            arg("--junit", "also write JUnit XML", metavar="FILE"),
        ),
        examples=("compare base.zip new.zip --junit compare.xml",),
    ),
)  # fmt: skip
