"""What can be typed: commands, options, and one line for what cannot."""

import argparse
from collections.abc import Callable
from typing import NoReturn

from kernels.quoting import one_line
from search.records import CACHE_MODES, DEFAULT_SAMPLER, SAMPLERS
from tilewise.cli.commands import air, bench, tune, verify

FLAVORS = ("cpu", "air", "iree")
FORMATS = ("table", "json", "csv", "t4")


class OneLineParser(argparse.ArgumentParser):
    """A parser whose complaints are one line, exit code 2."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and leave."""
        self.exit(2, f"{self.prog}: {one_line(message)}; see {self.prog} --help\n")


def make_parser() -> argparse.ArgumentParser:
    """The parser of every command; each sets `run`."""
    parser = OneLineParser(prog="tilewise", description="Tiling and packing schedules, tuned.")
    parser.add_argument("--version", action="version", version=tune.version())
    kinds = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def command(name: str, run: Callable[[argparse.Namespace], None]) -> argparse.ArgumentParser:
        doc = (run.__doc__ or "").strip().splitlines()[0]
        made = kinds.add_parser(name, help=doc, description=doc)
        made.add_argument("--json", action="store_true", help="machine-readable result on stdout")
        made.set_defaults(run=run)
        return made

    _add_tune(command("tune", tune.tune))
    show = command("show", tune.show)
    _add_stored(show)
    show.add_argument("--cache", choices=CACHE_MODES, help="default: hot if there are both")
    script = command("script", tune.script)
    _add_stored(script)
    script.add_argument("--flavor", choices=FLAVORS, default="cpu")
    script.add_argument(
        "--with-payload", action="store_true", help="the computation in the same module"
    )
    script.add_argument("-o", "--output", metavar="FILE", help="default: stdout")
    air.add_options(script)
    kernel = command("kernel", tune.kernel)
    _add_stored(kernel)
    kernel.add_argument("-o", "--output", metavar="FILE", help="default: stdout")
    _add_stored(command("asm", tune.asm))
    verify.add_options(command("verify", verify.verify))
    trials = command("trials", tune.trials)
    _add_stored(trials)
    trials.add_argument("--format", choices=FORMATS, default="table")
    _add_cache_filter(trials, "all; of t4: hot")
    study = command("export-study", tune.export_study)
    _add_stored(study)
    study.add_argument(
        "--storage", required=True, metavar="URL", help="of Optuna's, as sqlite:///study.db"
    )
    study.add_argument("--name", help="of the study; default: the problem and the target")
    _add_cache_filter(study, "hot")
    suite = command("bench", bench.bench)
    bench.add_options(suite)
    _add_db(suite)
    _add_serve(command("serve", tune.serve))
    database = command("db", tune.database)
    database.add_argument("action", choices=("upgrade", "check"))
    _add_db(database)
    command("doctor", tune.doctor)
    return parser


def _add_tune(parser: argparse.ArgumentParser) -> None:
    _add_stored(parser)
    parser.add_argument("--trials", type=int, default=64, metavar="N", help="default: 64")
    parser.add_argument("--seconds", type=float, metavar="S", help="for everything")
    parser.add_argument("--seed", type=int, default=0, metavar="I", help="default: 0")
    parser.add_argument(
        "--sampler", choices=SAMPLERS, default=DEFAULT_SAMPLER, help=f"default: {DEFAULT_SAMPLER}"
    )
    parser.add_argument(
        "--cache",
        choices=CACHE_MODES,
        default="hot",
        help="cold: operands are evicted before every sample; default: hot",
    )
    parser.add_argument("--peers", action="store_true", help="time OpenBLAS in the same rounds")


def _add_cache_filter(parser: argparse.ArgumentParser, default: str) -> None:
    text = f"only trials that were timed so; default: {default}"
    parser.add_argument("--cache", choices=CACHE_MODES, help=text)


def _add_stored(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("problem", metavar="PROBLEM", help="as matmul:m=64,n=64,k=64,dtype=f32")
    parser.add_argument("--target", default="host", metavar="T", help="default: host")
    _add_db(parser)
    parser.add_argument("--server", metavar="URL", help="a service; default: TILEWISE_SERVER")


def _add_serve(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", default="127.0.0.1", help="default: 127.0.0.1")
    parser.add_argument("--port", type=int, default=8000, help="default: 8000")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="default: 1")
    _add_db(parser)


def _add_db(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--db", metavar="URL", help="database; default: TILEWISE_DB")
