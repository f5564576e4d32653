"""`tilewise plot`: draw a search or a schedule."""

import argparse
from typing import TYPE_CHECKING

from tilewise.backends.choose import Backend
from tilewise.cli.command import STORED, Command, arg, backend_of, cache_filter
from tilewise.cli.files import require_folder, write_bytes
from tilewise.cli.render import print_mapping
from tilewise.errors import BadInputError, MissingError
from tilewise.kernels.problem import ProblemRange, parse_any
from tilewise.schema.base import Json

if TYPE_CHECKING:
    from tilewise.plots import Picture

SIZES = "sizes"
KINDS = ("convergence", "roofline", "nest", SIZES)
THEMES = ("light", "dark")
LARGEST_JOB = 2**31 - 1


def plot(options: argparse.Namespace) -> None:
    """Draw a search or a schedule into a file."""
    from tilewise.plots import format_of

    kind = format_of(options.output)
    require_folder(options.output)
    job = _job_number(options.problem)
    if job is not None and (options.cache or options.target != "host"):
        given = "cache" if options.cache else "target"
        raise BadInputError(f"--{given} is for problems; a job has one")
    is_range = job is None and isinstance(parse_any(options.problem), ProblemRange)
    options.kind = options.kind or (SIZES if is_range else KINDS[0])
    if is_range != (options.kind == SIZES):
        raise BadInputError(
            f"--kind {options.kind} does not draw {options.problem}; --kind {SIZES} draws ranges"
        )
    with backend_of(options) as backend:
        picture = _picture(backend, options, job)
    write_bytes(options.output, picture.draw(kind, options.theme))
    if options.json:
        print_mapping({"file": options.output, "kind": options.kind}, as_json=True)


def _picture(backend: Backend, options: argparse.Namespace, job: int | None) -> "Picture":
    from tilewise import plots

    if options.kind == SIZES:
        found = backend.show(options.problem, options.target, options.cache)
        return plots.speed_over_sizes(found, _results_at_samples(backend, found))
    if options.kind == "nest":
        return plots.loop_nest(_result(backend, options, job))
    if options.kind == "roofline":
        result = _result(backend, options, job)
        return plots.roofline_of(result, _trials(backend, options, job), _measured(result))
    return plots.convergence(_trials(backend, options, job), peak=_peak(backend, options, job))


def _results_at_samples(backend: Backend, found: Json) -> list[Json | None]:
    """Return what is stored of each sample of a range."""
    from tilewise.service.plots.ranges import sampled

    texts = [problem.canonical for problem in sampled(found)]
    answers = backend.look_up(texts, found["target"], (), {}, cache=found["cache"])
    return [answer.document["schedule"] for answer in answers]


def _peak(backend: Backend, options: argparse.Namespace, job: int | None) -> float | None:
    """Return the peak that the stored result was compared with, if there is one."""
    try:
        best = _result(backend, options, job)["best"]
    except MissingError:
        return None
    return best["gflops"] / best["peak_fraction"] if best["peak_fraction"] else None


def _result(backend: Backend, options: argparse.Namespace, job: int | None) -> Json:
    """Return the stored result of a problem, or the best so far of a job in the same shape."""
    if job is None:
        return backend.show(options.problem, options.target, options.cache)
    found = backend.job(job)
    if found["best"] is None:
        raise MissingError(f"job {job} has no schedule yet; it is {found['state']}")
    shown = {name: found[name] for name in ("problem", "target", "best")}
    return {**shown, "peers": {}, "proof": None}


def _measured(result: Json) -> float | None:
    """Return this machine's memory bandwidth where only that is missing for a roofline."""
    from tilewise.kernels.target import parse_target
    from tilewise.service.host.machine import examine_here

    machine = result.get("machine")
    if machine is None or machine["bandwidth_gbs"] or machine["host"] != examine_here().host:
        return None
    threads = parse_target(result["target"]).threads
    if threads > 1:
        return None
    from tilewise.kernels.native.microbench import bandwidth_gbs
    from tilewise.kernels.target import detect

    return bandwidth_gbs(detect())


def _trials(backend: Backend, options: argparse.Namespace, job: int | None) -> list[Json]:
    """Return trials of one cache mode: a job's, or all of a problem, renumbered."""
    if job is not None:
        problem = backend.job(job)["problem"]
        return [{**trial, "problem": problem} for trial in backend.job_trials(job)]
    wanted = options.cache or "hot"
    rows = backend.trials(options.problem, options.target)
    found = [row for row in rows if row["cache"] == wanted]
    if not found:
        raise MissingError(f"no {wanted} trials of {options.problem} are stored; see --cache")
    return [{**row, "number": number} for number, row in enumerate(found)]


def _job_number(text: str) -> int | None:
    """Return the number of a job; None for a problem."""
    if not text.isdecimal() or not text.isascii():
        return None
    number = int(text) if len(text) <= len(str(LARGEST_JOB)) else LARGEST_JOB + 1
    if not 1 <= number <= LARGEST_JOB:
        raise BadInputError(f"job {text} is not from 1 to {LARGEST_JOB}")
    return number


COMMANDS = (
    Command(
        "plot",
        plot,
        (
            *STORED,
            arg("-o --output", "file to write: .svg, .png or .html", required=True, metavar="FILE"),
            arg("--kind", f"what to draw (default: {KINDS[0]}; of a range {SIZES})", choices=KINDS),
            arg("--theme", f"colours (default: {THEMES[0]})", choices=THEMES, default=THEMES[0]),
            cache_filter("hot"),
        ),
        at_service="service",
        examples=(
            "plot matmul:m=1024,n=512,k=2048,dtype=f32 -o search.svg",
            "plot 17 --kind roofline -o job.html",
            "plot matmul:m=1..256,n=512,k=2048,dtype=f32 -o sizes.svg",
        ),
    ),
)
