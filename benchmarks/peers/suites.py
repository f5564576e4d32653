"""Every suite beside OpenBLAS, oneDNN and IREE.

    python -m benchmarks.peers.suites [NAME ...] [--trials 64] [--weights constant] [--cache cold]
        [--db URL]

Tunes what the database does not hold, writes `NAME.json` and the table `NAME.txt`
(`NAME_constant` with `--weights constant`, `_cold` with `--cache cold`) to this machine's folder of
`benchmarks/data/results`, and draws all its problems in one roofline, `docs/roofline.svg`.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.places import DOCS, SUITES, results_of
from tilewise.kernels.target import detect
from tilewise.plots import roofline_of_report

PICTURE = DOCS / "roofline.svg"


def main() -> None:
    names = sorted(path.stem for path in SUITES.glob("*.json"))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names)}")
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--target", default="host")
    parser.add_argument("--weights", choices=("variable", "constant"), default="variable")
    parser.add_argument("--cache", choices=("hot", "cold"), default="hot")
    parser.add_argument("--db", help="default: TILEWISE_DB")
    options = parser.parse_args()
    results_of(detect()).mkdir(parents=True, exist_ok=True)
    for name in options.names or names:
        measure(name, options)
    roofline_of_report(together(names)).save(PICTURE)


def measure(name: str, options: argparse.Namespace) -> None:
    """One suite through `tilewise bench`, as a user runs it."""
    suite = json.loads((SUITES / f"{name}.json").read_text())
    if options.weights == "constant":
        suite, name = with_constant_weights(suite), f"{name}_constant"
    if options.cache == "cold":
        name += "_cold"
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.json"
        path.write_text(json.dumps(suite))
        command = [sys.executable, "-m", "tilewise", "bench", str(path)]
        command += ["--trials", str(options.trials), "--target", options.target]
        command += ["--cache", options.cache, "--out", str(results_of(detect()) / f"{name}.json")]
        command += ["--db", options.db] if options.db else []
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:  # it has said why
        sys.exit(done.returncode)
    (results_of(detect()) / f"{name}.txt").write_text(done.stdout)
    print(f"# {name}\n{done.stdout}", flush=True)


def with_constant_weights(suite: dict[str, Any]) -> dict[str, Any]:
    """The suite under a name of its own, with B known ahead in all of its problems."""
    problems = [problem | {"weights": "constant"} for problem in suite["problems"]]
    return suite | {"name": f"{suite['name']}, constant weights", "problems": problems}


def together(names: list[str]) -> dict[str, Any]:
    """Return this machine's results as one report, with the highest peaks and bandwidth seen."""
    paths = [results_of(detect()) / f"{name}.json" for name in names]
    reports = [json.loads(path.read_text()) for path in paths if path.exists()]
    machine = dict(reports[-1]["machine"])
    machine["bandwidth_gbs"] = max(one["machine"]["bandwidth_gbs"] for one in reports)
    machine["peak_gflops"] = {}
    for one in reports:
        for dtype, peak in one["machine"]["peak_gflops"].items():
            known = machine["peak_gflops"].get(dtype, 0.0)
            machine["peak_gflops"][dtype] = max(known, peak)
    problems = [row for one in reports for row in one["problems"]]
    return {
        "suite": "all suites", "machine": machine, "problems": problems, "geomean_ratio": None,
    }  # fmt: skip


if __name__ == "__main__":
    main()
