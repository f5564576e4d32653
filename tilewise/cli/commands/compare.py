"""`tilewise compare`: verdicts on the results of two stores."""

import argparse
import sys
from collections import Counter

from tilewise.cli.command import Command, arg, flag, only_if
from tilewise.cli.files import json_text, require_folder, write_text
from tilewise.errors import BadInputError, TilewiseError
from tilewise.kernels.quoting import columns
from tilewise.search.verdicts import TOLERANCE

RETIME_S = 300.0
UNCHANGED = f"relative change that counts as unchanged; default: {TOLERANCE}"
STORE = "URL of a database, or an archive; may end in #toolchain=TEXT, #machine=HOST, #before=DAY"


def compare(options: argparse.Namespace) -> None:
    """Report for each problem of two stores whether it became faster or slower."""
    if not 0 <= options.tolerance < 1:
        raise BadInputError(f"tolerance={options.tolerance:g} is not at least 0 and less than 1")
    only_if(options.retime, options, {"seconds": RETIME_S}, "{} is for --retime")
    if not options.seconds > 0:
        raise BadInputError(f"seconds={options.seconds:g} is not above 0")
    require_folder(options.junit)
    from tilewise.backends import comparison

    retime_s = options.seconds if options.retime else None
    found = comparison.compare_stores(options.base, options.new, options.tolerance, retime_s)
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
        counts += [f"{found[f'only_in_{store}']} only in {store}" for store in ("base", "new")]
        sys.stdout.write(f"{', '.join(counts)}; speeds in GFLOP/s\n")
        timed = sum(row["timed_again"] is not None for row in found["problems"])
        if options.retime:
            sys.stdout.write(f"{timed} timed again\n")
        reasons = Counter(row["reason"] for row in found["problems"] if row["reason"])
        sys.stdout.write("".join(f"{number}: {why}\n" for why, number in reasons.items()))
    if slower := found["counts"]["slower"]:
        total = len(found["problems"])
        raise TilewiseError(f"{slower} of {total} problems became slower than in {found['base']}")


COMMANDS = (
    Command(
        "compare", compare, (
            arg("base", STORE, metavar="BASE"),
            arg("new", "the other store, likewise", metavar="NEW"),
            arg("--tolerance", UNCHANGED, type=float, default=TOLERANCE, metavar="R"),
            flag("--retime", "time doubtful pairs again, in turn, on this machine"),
            arg("--seconds", f"for all pairs of --retime; default: {RETIME_S:g}", type=float,
                metavar="S"),
            arg("--junit", "also write JUnit XML", metavar="FILE"),
        ),
        examples=(
            "compare base.zip new.zip --junit compare.xml",
            "compare 'sqlite:///tilewise.db#before=2026-11-01' sqlite:///tilewise.db --retime",
        ),
    ),
)  # fmt: skip
