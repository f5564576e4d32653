"""`tilewise predictor`: train and evaluate predictors of schedules."""

import argparse
import sys
from pathlib import Path

from tilewise.cli.command import Command, arg, refuse
from tilewise.cli.files import json_text, require_file, require_folder
from tilewise.kernels.quoting import columns
from tilewise.schema.base import Json

ACTIONS = ("train", "evaluate")
SPACES = "recorded spaces (files or folders); without any and --db: the trials of the default store"


def predictor(options: argparse.Namespace) -> None:
    """Train a predictor, or evaluate it on held-out problems and processors."""
    if options.action != "train":
        refuse(options, ("output",), "{} is for predictor train")
    require_folder(options.output)
    for path in options.spaces:
        require_file(path)
    from tilewise.backends import predictors

    spaces = predictors.read_spaces(options.spaces, options.db)
    if options.action == "train":
        found = predictors.train(spaces, options.output and Path(options.output))
    else:
        found = predictors.evaluate(spaces)[1]
    sys.stdout.write(json_text(found) if options.json else _table(found))


def _table(found: Json) -> str:
    names = list(found["summary"])
    rows = [(row["space"], *(_percent(row[name]) for name in names)) for row in found["spaces"]]
    rows += [
        (label, *(_percent(found["summary"][name][label]) for name in names))
        for label in ("geomean", "p10")
    ]
    lines = columns([("space", *names), *rows], set(range(1, len(names) + 1)))
    return "".join(f"{line}\n" for line in lines)


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}"


COMMANDS = (
    Command(
        "predictor", predictor, (
            arg("action", "train also writes the predictor", choices=ACTIONS),
            arg("spaces", SPACES, nargs="*", metavar="SPACE"),
            arg("--db", "URL of a store whose trials are read", metavar="URL"),
            arg("-o --output", "file of train; default: where predictions here use it",
                metavar="FILE"),
        ),
        examples=(
            "predictor evaluate benchmarks/data/spaces",
            "predictor train --db sqlite:///tilewise.db",
        ),
    ),
)  # fmt: skip
