"""The views as revision 0009 makes them; never edited, a later revision has a file of its own."""

from tilewise.migrations.views.spelling import Spelling

DTYPES = ("f32", "f64", "i32", "bf16", "f16", "i8")
LIVE_S = 60  # a worker that has not shown itself for longer is taken for gone
MOST_CRASHES = 3  # a job whose workers died so often has failed of it
DAY_S = 86400
LARGEST = "1.7976931348623157e308"


def views(sql: Spelling) -> dict[str, str]:
    """The SELECT of each view, by name."""
    return {
        "best_schedules": best_schedules(sql),
        "trial_history": trial_history(sql),
        "job_progress": job_progress(sql),
        "failures": failures(sql),
        "machine_activity": machine_activity(sql),
        "proofs": proofs(sql),
    }


def work(sql: Spelling, of: str) -> str:
    """What a row belongs to, where `of` is its job or its schedule."""
    return f"""
  p.canonical AS problem,
  p.key AS key,
  {sql.before("p.canonical", ":")} AS kind,
  {sql.setting("p.canonical", "dtype")} AS dtype,
  {of}.target AS target,
  {of}.cache AS cache,
  c.identity AS toolchain"""


def moment(sql: Spelling, at: str, name: str = "created") -> str:
    """A moment, as the database has it and as a number."""
    return f"{at} AS {name}_at, {sql.unix(at)} AS {name}_unix"


def finite(value: str) -> str:
    """A number, null where it is infinite; PostgreSQL has NaN above all numbers."""
    return f"CASE WHEN abs({value}) <= {LARGEST} THEN {value} END"


def best_schedules(sql: Spelling) -> str:
    """One row for each stored schedule."""
    peer = sql.largest("s.peers", "gflops", name=False)
    proven = """FROM script_proofs r JOIN scripts x ON x.id = r.script_id
    WHERE r.schedule_id = s.id AND r.ok AND x.flavor = 'cpu'"""
    winner = "FROM trials t WHERE t.job_id = s.job_id AND t.hash = s.hash ORDER BY t.number LIMIT 1"
    return f"""SELECT{work(sql, "s")},
  s.toolchain_id AS toolchain_id,
  m.host AS host,
  m.cpu AS cpu,
  s.hash AS hash,
  {sql.text("s.steps")} AS steps,
  s.gflops AS gflops,
  s.low AS low,
  s.high AS high,
  s.time_us AS time_us,
  s.peak_gflops AS peak_gflops,
  s.gflops / NULLIF(s.peak_gflops, 0) AS peak_fraction,
  {sql.largest("s.peers", "gflops", name=True)} AS best_peer,
  {peer} AS best_peer_gflops,
  s.gflops / NULLIF({peer}, 0) AS best_peer_ratio,
  EXISTS (SELECT 1 {proven}) AS proven,
  (SELECT max(r.gflops) {proven}) AS proof_gflops,
  (SELECT t.number {winner}) AS trial,
  (SELECT t.origin {winner}) AS origin,
  s.job_id AS job,
  s.budget AS budget,
  s.complete AS complete,
  s.elapsed_s AS elapsed_s,
  NOT EXISTS (SELECT 1 FROM schedules o
    WHERE o.problem_id = s.problem_id AND o.target = s.target AND o.cache = s.cache
      AND (o.created_at > s.created_at OR o.created_at = s.created_at AND o.id > s.id)
  ) AS is_current,
  {moment(sql, "s.created_at")},
  {sql.age("s.created_at")} AS age_s
FROM schedules s
JOIN problems p ON p.id = s.problem_id
JOIN toolchains c ON c.id = s.toolchain_id
JOIN machines m ON m.id = s.machine_id"""


def trial_history(sql: Spelling) -> str:
    """One row for each trial of each job, the copies that a job begins with included."""
    # Found from the fastest down in an index: a window would be computed for all trials of the
    # database wherever a query names anything but a job.
    best = """SELECT b.gflops FROM trials b
    WHERE b.job_id = t.job_id AND b.state = 'timed' AND b.number <= t.number
      AND b.gflops IS NOT NULL
    ORDER BY b.gflops DESC LIMIT 1"""
    is_copy = "t.created_at < j.created_at"
    since = sql.between("j.started_at", "t.created_at")
    return f"""SELECT
  t.job_id AS job,
  t.number AS number,{work(sql, "j")},
  j.host AS host,
  t.state AS state,
  t.origin AS origin,
  t.failure AS failure,
  t.message AS message,
  t.hash AS hash,
  {sql.text("t.steps")} AS steps,
  t.gflops AS gflops,
  t.low AS low,
  t.high AS high,
  t.time_us AS time_us,
  ({best}) AS best_so_far,
  t.pace AS pace,
  t.rejected AS rejected,
  t.compile_s AS compile_s,
  {finite("t.max_error")} AS max_error,
  {is_copy} AS is_copy,
  CASE WHEN NOT {is_copy} THEN {since} END AS since_start_s,
  {moment(sql, "t.created_at")},
  {sql.age("t.created_at")} AS age_s,
  {sql.day("t.created_at")} AS day,
  {sql.hour("t.created_at")} AS hour,
  {sql.hour_unix("t.created_at")} AS hour_unix
FROM trials t
JOIN jobs j ON j.id = t.job_id
JOIN problems p ON p.id = j.problem_id
JOIN toolchains c ON c.id = j.toolchain_id"""


def job_progress(sql: Spelling) -> str:
    """One row for each job."""
    ended = "SELECT count(*) FROM trials t WHERE t.job_id = j.id"
    running = "j.state = 'running'"
    stored = """SELECT s.gflops FROM schedules s
    WHERE s.problem_id = j.problem_id AND s.target = j.target
      AND s.toolchain_id = j.toolchain_id AND s.cache = j.cache AND s.job_id = j.id"""
    fastest = "SELECT max(t.gflops) FROM trials t WHERE t.job_id = j.id AND t.state = 'timed'"
    waited = sql.between("j.created_at", "j.started_at")
    return f"""SELECT
  j.id AS job,{work(sql, "j")},
  j.host AS host,
  j.state AS state,
  j.phase AS phase,
  CASE WHEN j.phase = 'search' THEN ({ended}) ELSE j.phase_done END AS phase_done,
  CASE WHEN j.phase = 'search' THEN j.trials ELSE j.phase_total END AS phase_total,
  j.sampler AS sampler,
  j.peers AS peers,
  j.seconds AS seconds,
  j.trials AS trials_asked,
  ({ended} AND t.state = 'timed') AS trials_timed,
  ({ended} AND t.state = 'pruned') AS trials_pruned,
  ({ended} AND t.state = 'failed') AS trials_failed,
  CAST(({ended}) AS double precision) / NULLIF(j.trials, 0) AS done_fraction,
  COALESCE(({stored}), ({fastest})) AS best_gflops,
  j.elapsed_s + CASE WHEN {running} AND j.claimed_at IS NOT NULL
    THEN {sql.age("j.claimed_at")} ELSE 0 END AS elapsed_s,
  CASE WHEN j.started_at IS NOT NULL THEN {waited}
    WHEN j.state = 'queued' THEN {sql.age("j.created_at")} END AS waited_s,
  CASE WHEN {running} THEN {sql.age("j.heartbeat_at")} END AS heartbeat_age_s,
  j.crashes AS crashes,
  j.complete AS complete,
  j.error AS error,
  {moment(sql, "j.created_at")},
  {moment(sql, "j.started_at", "started")},
  {moment(sql, "j.finished_at", "finished")},
  {sql.age("j.created_at")} AS age_s
FROM jobs j
JOIN problems p ON p.id = j.problem_id
JOIN toolchains c ON c.id = j.toolchain_id"""


def failures(sql: Spelling) -> str:
    """One row for each failed trial, job and proof; copies of trials are left out."""
    job_class = f"CASE WHEN j.crashes >= {MOST_CRASHES} THEN 'crash' ELSE 'error' END"
    job_end = "COALESCE(j.finished_at, j.created_at)"
    of_job = "JOIN problems p ON p.id = j.problem_id JOIN toolchains c ON c.id = j.toolchain_id"
    return f"""SELECT {_failure(sql, "trial", "t.failure", "t.message", "t.created_at", "j")},
  t.number AS trial, t.hash AS hash, t.origin AS origin, j.host AS host, j.id AS job
FROM trials t JOIN jobs j ON j.id = t.job_id {of_job}
WHERE t.state = 'failed' AND t.created_at >= j.created_at
UNION ALL
SELECT {_failure(sql, "job", job_class, "j.error", job_end, "j")},
  NULL, NULL, NULL, j.host, j.id
FROM jobs j {of_job}
WHERE j.state = 'failed'
UNION ALL
SELECT {_failure(sql, "proof", "r.failure", "r.message", "r.created_at", "s")},
  NULL, x.hash, NULL, m.host, s.job_id
FROM script_proofs r JOIN schedules s ON s.id = r.schedule_id
LEFT JOIN scripts x ON x.id = r.script_id
JOIN machines m ON m.id = s.machine_id
JOIN problems p ON p.id = s.problem_id JOIN toolchains c ON c.id = s.toolchain_id
WHERE NOT r.ok"""


def _failure(sql: Spelling, source: str, kind: str, message: str, at: str, of: str) -> str:
    return f"""'{source}' AS source,
  {kind} AS class,
  {message} AS message,{work(sql, of)},
  {moment(sql, at)},
  {sql.age(at)} AS age_s,
  {sql.day(at)} AS day"""


def machine_activity(sql: Spelling) -> str:
    """One row for each machine."""

    def count(condition: str) -> str:
        return f"sum(CASE WHEN {condition} THEN 1 ELSE 0 END)"

    def or_0(*names: str) -> str:
        return ",\n  ".join(f"COALESCE({name}, 0) AS {name.partition('.')[2]}" for name in names)

    peaks = ",\n  ".join(f"{sql.number('m.peaks', of)} AS peak_{of}_gflops" for of in DTYPES)
    return f"""SELECT
  m.host AS host,
  m.cpu AS cpu,
  m.cores AS cores,
  m.memory_bytes AS memory_bytes,
  {or_0("w.workers_alive", "w.capacity")},
  {or_0("j.jobs_running", "j.jobs_done", "j.jobs_failed")},
  {or_0("t.trials_hour", "t.trials_day", "s.schedules")},
  {peaks},
  {moment(sql, "m.peaks_at", "peaks")},
  {moment(sql, "m.seen_at", "seen")},
  {sql.age("m.seen_at")} AS seen_age_s
FROM machines m
LEFT JOIN (SELECT machine_id, count(*) AS workers_alive, sum(capacity) AS capacity
  FROM workers WHERE {sql.is_within("seen_at", LIVE_S)} GROUP BY machine_id
) w ON w.machine_id = m.id
LEFT JOIN (SELECT host, {count("state = 'running'")} AS jobs_running,
    {count("state = 'done'")} AS jobs_done, {count("state = 'failed'")} AS jobs_failed
  FROM jobs GROUP BY host
) j ON j.host = m.host
LEFT JOIN (SELECT r.host, count(*) AS trials_day,
    {count(sql.is_within("n.created_at", 3600))} AS trials_hour
  FROM trials n JOIN jobs r ON r.id = n.job_id
  WHERE {sql.is_within("n.created_at", DAY_S)} AND n.created_at >= r.created_at GROUP BY r.host
) t ON t.host = m.host
LEFT JOIN (SELECT machine_id, count(*) AS schedules FROM schedules GROUP BY machine_id
) s ON s.machine_id = m.id"""


def proofs(sql: Spelling) -> str:
    """One row for each script that was put to the proof."""
    flavor = "COALESCE(x.flavor, 'cpu')"
    return f"""SELECT
  r.id AS proof,{work(sql, "s")},
  {flavor} AS flavor,
  r.ok AS ok,
  r.ok AND NOT EXISTS (SELECT 1 FROM script_proofs o JOIN scripts y ON y.id = o.script_id
    WHERE o.schedule_id = r.schedule_id AND o.ok AND y.flavor = {flavor}
      AND (COALESCE(o.gflops, -1) > COALESCE(r.gflops, -1)
        OR COALESCE(o.gflops, -1) = COALESCE(r.gflops, -1) AND o.id < r.id)
  ) AS is_served,
  r.applied AS applied,
  r.executed AS executed,
  {finite("r.max_error")} AS max_error,
  r.tolerance AS tolerance,
  r.gflops AS gflops,
  r.low AS low,
  r.high AS high,
  r.time_us AS time_us,
  s.gflops AS native_gflops,
  r.gflops / NULLIF(s.gflops, 0) AS native_fraction,
  r.mlir AS mlir,
  r.failure AS failure,
  r.message AS message,
  x.hash AS hash,
  x.sha256 AS sha256,
  s.hash AS native_hash,
  s.job_id AS job,
  m.host AS host,
  {moment(sql, "r.created_at")},
  {sql.age("r.created_at")} AS age_s,
  {sql.day("r.created_at")} AS day
FROM script_proofs r
JOIN schedules s ON s.id = r.schedule_id
LEFT JOIN scripts x ON x.id = r.script_id
JOIN machines m ON m.id = s.machine_id
JOIN problems p ON p.id = s.problem_id
JOIN toolchains c ON c.id = s.toolchain_id"""
