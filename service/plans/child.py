"""Make a plan where there is no database: `python -m tilewise.service.plans.child FOLDER`.

The folder has the order as `order.json` and the module as `module.mlir`; `made.json` comes to it.
"""

import argparse
import json
from pathlib import Path

from tilewise.kernels.errors import KernelsError
from tilewise.kernels.system.typed_json import from_json, to_json
from tilewise.search.errors import SearchError
from tilewise.service.errors import PlanError
from tilewise.service.plans.making import make
from tilewise.service.plans.orders import Order
from tilewise.service.plans.rows import Json

ORDER, MODULE, MADE = "order.json", "module.mlir", "made.json"


def make_in(folder: Path) -> None:
    """Make the plan of a folder's order; `refused` says in its place why there can be none."""
    order = from_json(Order, json.loads((folder / ORDER).read_text(encoding="utf-8")))
    try:
        made = to_json(make(order, (folder / MODULE).read_bytes(), _untold))
    except (KernelsError, SearchError, PlanError) as error:
        made = {"refused": str(error)}
    (folder / MADE).write_text(json.dumps(made), encoding="utf-8")


def _untold(_phase: str, _plan: Json | None) -> None:
    """Nobody here can be told of phases."""


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m tilewise.service.plans.child", description=__doc__
    )
    parser.add_argument("folder", type=Path)
    make_in(parser.parse_args().folder)
