"""The views that dashboards query: their columns and what these mean, for docs and tests.

Migrations make the views; their SQL is in `migrations/views`, a file for each revision that changes
them. A column that is there stays, with its kind and its meaning. A new one goes where it reads
best. A migration that changes a table runs under `tilewise.migrations.views.replacing.replaced`,
since neither database changes a table that a view reads.
"""

from dataclasses import dataclass
from typing import Literal, get_args

Kind = Literal["text", "integer", "number", "boolean", "moment"]


@dataclass(frozen=True)
class Column:
    """A column of a view.

    `kind` `moment` is a timestamp with time zone on PostgreSQL and a text in UTC on SQLite,
    `2026-01-31 12:00:00.123456`. `meaning` names the unit, and what null means.
    """

    name: str
    kind: Kind
    meaning: str


@dataclass(frozen=True)
class View:
    """A view; `rows` says what one row is."""

    name: str
    rows: str
    columns: tuple[Column, ...]


def _columns(text: str) -> tuple[Column, ...]:
    """Columns of lines `name | kind | meaning`."""
    found = []
    for line in text.strip().splitlines():
        name, kind, meaning = (part.strip() for part in line.split("|"))
        found.append(Column(name, _KINDS[kind], meaning))
    return tuple(found)


def _moment(name: str, of: str) -> tuple[Column, ...]:
    return (
        Column(f"{name}_at", "moment", of),
        Column(f"{name}_unix", "number", "the same, s since 1970-01-01 UTC"),
    )


_KINDS: dict[str, Kind] = {kind: kind for kind in get_args(Kind)}

_WORK = _columns("""
problem   | text | canonical string of the problem
key       | text | SHA-256 of `problem`, hex
kind      | text | operation: `matmul`, `conv2d`
dtype     | text | type of the operands
target    | text | canonical string of the target
cache     | text | `hot` or `cold`
toolchain | text | identity of compilers and generator
""")
_HASH = Column("hash", "text", "names the schedule")
_SPEED = _columns("""
gflops  | number | GFLOP/s of the median time
low     | number | lower end of the 95% interval of `gflops`; of one sample `gflops`
high    | number | upper end of the 95% interval of `gflops`; of one sample `gflops`
time_us | number | median time of one run, us
""")
_QUALITY = Column(
    "quality", "text", "`good`, or `noisy`: the interval is so wide that the speed says little"
)
_AGE = Column("age_s", "number", "s from `created_at` until the query")
_DAY = Column("day", "text", "day of `created_at` in UTC, `2026-01-31`")
_RUN_BY = Column("host", "text", "machine of the job's last run; null before the first run")

BEST_SCHEDULES = View(
    "best_schedules",
    "the best schedule of a problem on a target, under a toolchain, for hot or cold caches",
    (
        *_WORK,
        *_columns("""
toolchain_id | integer | grows in the order in which toolchains were first seen
host         | text    | machine that timed the schedule
cpu          | text    | LLVM's name of its processor
"""),
        _HASH,
        Column("steps", "text", "steps of the schedule, as JSON"),
        *_SPEED,
        _QUALITY,
        *_columns("""
peak_gflops      | number  | multiply-add peak measured in the same run, GFLOP/s
peak_fraction    | number  | `gflops` over `peak_gflops`
best_peer        | text    | fastest other library of the same rounds; null where none was asked for
best_peer_gflops | number  | its speed, GFLOP/s
best_peer_ratio  | number  | `gflops` over `best_peer_gflops`; below 1 the peer is faster
proven           | boolean | whether a script of flavor `cpu` is proven
proof_gflops     | number  | speed of the fastest proven script of that flavor, GFLOP/s
trial            | integer | number of the trial that tried the schedule first in `job`
origin           | text    | who proposed that trial
job              | integer | job that found the schedule
budget           | integer | most trials that any search for the row has spent
complete         | boolean | whether `job` spent its whole budget
elapsed_s        | number  | s that `job` took
is_current       | boolean | whether no newer row has the same problem, target and cache
"""),
        *_moment("created", "when the schedule was stored"),
        _AGE,
    ),
)

TRIAL_HISTORY = View(
    "trial_history",
    "a trial of a job",
    (
        Column("job", "integer", "job that the trial belongs to"),
        Column("number", "integer", "number of the trial in its job, from 0"),
        *_WORK,
        _RUN_BY,
        *_columns("""
state   | text | `timed`, `pruned` or `failed`
origin  | text | who proposed the trial: `prior`, `transfer`, or a sampler
failure | text | class of the failure; null unless the trial failed
message | text | what happened, for failures
"""),
        _HASH,
        Column("steps", "text", "steps of the schedule, as JSON"),
        *_SPEED,
        *_columns("""
best_so_far   | number  | fastest timed trial of the job up to this one, GFLOP/s
pace          | number  | how many times longer everything took meanwhile; null where unknown
rejected      | integer | samples that were preempted; their thread time counts
compile_s     | number  | s until the candidate could run
max_error     | number  | deviation from the reference; null where infinite or not computed
is_copy       | boolean | whether the job took the trial over from an earlier job
since_start_s | number  | s from the job's first start to the end of the trial; null for copies
"""),
        *_moment("created", "when the trial ended"),
        _AGE,
        _DAY,
        Column("hour", "text", "hour of `created_at` in UTC, `2026-01-31 12:00`"),
        Column("hour_unix", "integer", "beginning of that hour, s since 1970-01-01 UTC"),
    ),
)

JOB_PROGRESS = View(
    "job_progress",
    "a job",
    (
        Column("job", "integer", "number of the job"),
        *_WORK,
        _RUN_BY,
        *_columns("""
state           | text    | `queued`, `running`, `done`, `failed` or `cancelled`
phase           | text    | what the last run does or did last; null before the first run
phase_done      | integer | how much of the phase is done
phase_total     | integer | how much there is of it at most; 0 where nobody can say
sampler         | text    | who proposes trials
peers           | boolean | whether other libraries are timed too
seconds         | number  | bound on the search, s; null for none
trials_asked    | integer | trials that were asked for
trials_timed    | integer | trials that were timed to the end
trials_pruned   | integer | trials that were given up early
trials_failed   | integer | trials that failed
done_fraction   | number  | trials that have ended over those asked for
best_gflops     | number  | GFLOP/s of the stored schedule that it found, else of its fastest trial
elapsed_s       | number  | s of all runs, the present one included
waited_s        | number  | s from `created_at` to the first start, or until now in the queue
heartbeat_age_s | number  | s since the run last showed itself; null unless running
crashes         | integer | runs that ended with the death of their process
complete        | boolean | whether the whole budget was spent; null until the job has ended
error           | text    | why the job failed
"""),
        *_moment("created", "when the job was asked for"),
        *_moment("started", "when its first run began"),
        *_moment("finished", "when it ended"),
        _AGE,
    ),
)

FAILURES = View(
    "failures",
    "a failed trial, a failed job, or a script that did not prove; copies of trials are left out, "
    "and so are schedules that are known to have no script",
    (
        Column("source", "text", "`trial`, `job` or `proof`"),
        Column(
            "class",
            "text",
            "class of the failure; of a job `crash` after three crashes, else `error`",
        ),
        Column("message", "text", "what happened"),
        *_WORK,
        *_moment("created", "when it failed"),
        _AGE,
        _DAY,
        *_columns("""
trial  | integer | number of the trial; null for jobs and proofs
hash   | text    | names the schedule; null where none is known
origin | text    | who proposed the trial; null for jobs and proofs
host   | text    | machine of the job's last run, or of the proof's schedule
job    | integer | job that failed, or that the trial or the schedule belongs to
"""),
    ),
)

MACHINE_ACTIVITY = View(
    "machine_activity",
    "a machine that has timed something, or has workers that could",
    (
        *_columns("""
host             | text    | name of the machine
cpu              | text    | LLVM's name of its processor
cores            | integer | processors that a job may run on
memory_bytes     | integer | memory, bytes
workers_alive    | integer | worker processes that showed themselves within 60 s
capacity         | integer | jobs that these take at once
jobs_running     | integer | running jobs whose last run began here
jobs_done        | integer | jobs that ended with a result here
jobs_failed      | integer | jobs that failed here
trials_hour      | integer | trials of the last hour, without copies
trials_day       | integer | trials of the last 24 h, without copies
schedules        | integer | stored schedules that were timed here
peak_f32_gflops  | number  | measured multiply-add peak of one thread, GFLOP/s; null until measured
peak_f64_gflops  | number  | the same for f64
peak_i32_gflops  | number  | the same for i32
peak_bf16_gflops | number  | the same for bf16
peak_f16_gflops  | number  | the same for f16
peak_i8_gflops   | number  | the same for i8
"""),
        *_moment("peaks", "when the peaks were measured"),
        *_moment("seen", "when the machine last showed itself"),
        Column("seen_age_s", "number", "s from `seen_at` until the query"),
    ),
)

PROOFS = View(
    "proofs",
    "a script that was put to the proof",
    (
        Column("proof", "integer", "number of the proof"),
        *_WORK,
        *_columns("""
flavor    | text    | flavor of the script: `cpu`, `air`
ok        | boolean | whether the script is proven
is_served | boolean | whether it is the one that is served: the fastest proven of its schedule
applied   | boolean | whether MLIR took the script
executed  | boolean | whether the compiled code ran
max_error | number  | deviation from the reference; null where infinite or not computed
tolerance | number  | deviation that is allowed
"""),
        *_SPEED,
        *_columns("""
native_gflops   | number  | speed of the schedule's native kernel, GFLOP/s
native_fraction | number  | `gflops` over `native_gflops`
mlir            | text    | the MLIR that it was proven with
failure         | text    | class of the failure; null for a proven script
message         | text    | what happened, for failures
hash            | text    | names the schedule that the script spells; null for no script
sha256          | text    | SHA-256 of the script's text, hex; the `ETag`
native_hash     | text    | names the schedule of the native kernel
job             | integer | job that found that schedule
host            | text    | machine that timed it
"""),
        *_moment("created", "when the proof was stored"),
        _AGE,
        _DAY,
    ),
)

SCHEDULE_HISTORY = View(
    "schedule_history",
    "a result that was replaced by a later one, or that was measured and not kept",
    (
        Column("entry", "integer", "number of the entry"),
        *_WORK,
        Column("host", "text", "machine that timed the schedule"),
        Column("state", "text", "`superseded`: it was the best until `ended_at`; or `not_kept`"),
        _HASH,
        Column("steps", "text", "steps of the schedule, as JSON"),
        *_SPEED,
        _QUALITY,
        *_columns("""
peak_gflops   | number  | multiply-add peak measured in the same run, GFLOP/s
peak_fraction | number  | `gflops` over `peak_gflops`
job           | integer | job that measured it
"""),
        *_moment("created", "when it was measured"),
        *_moment("ended", "when it was replaced, or not kept"),
        _AGE,
        _DAY,
    ),
)

SUITE_HISTORY = View(
    "suite_history",
    "a run of `tilewise bench`",
    (
        *_columns("""
report         | integer | number of the report; `/v1/suite-reports/NUMBER` has all of it
suite          | text    | name of the suite
source         | text    | where its problems come from
target         | text    | what it was measured on
processor      | text    | the processor's name as the system gives it
toolchain      | text    | compilers and generator
counted        | integer | problems that have both our schedule and a peer
left_out       | integer | problems that lack either; no ratio is over them
geomean_ratio  | number  | geometric mean of ours over the fastest peer of each; null for none
weighted_ratio | number  | the peers' time over ours for the whole suite, by count; null for none
ours_gflops    | number  | the suite's work over its time with our schedules, GFLOP/s
oracle_gflops  | number  | the same with the fastest peer of each problem
"""),
        *_moment("created", "when the report was stored"),
        _AGE,
        _DAY,
    ),
)

VIEWS = (
    BEST_SCHEDULES, SCHEDULE_HISTORY, TRIAL_HISTORY, JOB_PROGRESS, FAILURES, MACHINE_ACTIVITY,
    PROOFS, SUITE_HISTORY,
)  # fmt: skip


def reference() -> str:
    """The views as docs show them: a heading and a table for each, in Markdown."""
    parts = []
    for view in VIEWS:
        lines = [f"| `{c.name}` | {c.kind} | {c.meaning} |" for c in view.columns]
        head = ["| column | type | meaning |", "|---|---|---|"]
        parts.append(
            "\n".join([f"## `{view.name}`", "", f"A row is {view.rows}.", "", *head, *lines])
        )
    return "\n\n".join(parts) + "\n"
