"""The views as revision 0018 makes them: quality, history, and failures without known limits."""

from tilewise.migrations.views import v0009, v0010
from tilewise.migrations.views.spelling import Spelling

WIDEST = 0.25  # width of the interval over the speed from which a result is noisy
LEAST_SAMPLES = 6
LEASE_S = 60  # a run writes its seconds more often; what is later than that has not been computed


def views(sql: Spelling) -> dict[str, str]:
    """The SELECT of each view, by name."""
    return {
        **v0010.views(sql),
        "best_schedules": best_schedules(sql),
        "job_progress": job_progress(sql),
        "failures": failures(sql),
        "schedule_history": schedule_history(sql),
    }


def quality(sql: Spelling, of: str) -> str:
    """The quality of a result, as `tilewise.search.finals.quality` has it."""
    samples = sql.number(f"{of}.measured", "samples")
    return f"""CASE WHEN {of}.high - {of}.low <= {WIDEST} * {of}.gflops
    AND NOT COALESCE({samples} > 0 AND {samples} < {LEAST_SAMPLES}, false)
    THEN 'good' ELSE 'noisy' END"""


def best_schedules(sql: Spelling) -> str:
    """Those of 0009, with the quality."""
    before, after = v0009.best_schedules(sql).split("  s.peak_gflops AS peak_gflops,\n")
    return f"{before}  {quality(sql, 's')} AS quality,\n  s.peak_gflops AS peak_gflops,\n{after}"


def job_progress(sql: Spelling) -> str:
    """Those of 0009, where a run whose owner is gone adds no more than its lease, as in the API."""
    age = sql.age("j.claimed_at")
    within = f"CASE WHEN {age} < 0 THEN 0 WHEN {age} > {LEASE_S} THEN {LEASE_S} ELSE {age} END"
    before, after = v0009.job_progress(sql).split(f"THEN {age} ELSE 0 END AS elapsed_s")
    return f"{before}THEN {within} ELSE 0 END AS elapsed_s{after}"


def failures(sql: Spelling) -> str:
    """Those of 0009, without the scripts that are known not to exist.

    Before this revision those had the class of every attempt that the prover did not finish.
    """
    known = """r.script_id IS NULL AND (r.failure = 'unsupported'
    OR r.failure = 'prover' AND r.message LIKE '%has no script%')"""
    return f"{v0009.failures(sql)} AND NOT COALESCE({known}, false)"


def schedule_history(sql: Spelling) -> str:
    """One row for each result that is no longer the best, or never was."""
    return f"""SELECT
  s.id AS entry,{v0009.work(sql, "s")},
  m.host AS host,
  CASE WHEN s.was_best THEN 'superseded' ELSE 'not_kept' END AS state,
  s.hash AS hash,
  {sql.text("s.steps")} AS steps,
  s.gflops AS gflops,
  s.low AS low,
  s.high AS high,
  s.time_us AS time_us,
  {quality(sql, "s")} AS quality,
  s.peak_gflops AS peak_gflops,
  s.gflops / NULLIF(s.peak_gflops, 0) AS peak_fraction,
  s.job_id AS job,
  {v0009.moment(sql, "s.created_at")},
  {v0009.moment(sql, "s.ended_at", "ended")},
  {sql.age("s.created_at")} AS age_s,
  {sql.day("s.created_at")} AS day
FROM past_schedules s
JOIN problems p ON p.id = s.problem_id
JOIN toolchains c ON c.id = s.toolchain_id
JOIN machines m ON m.id = s.machine_id"""
