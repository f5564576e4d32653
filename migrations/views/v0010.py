"""The views as revision 0010 makes them: those of 0009, and suites over time."""

from tilewise.migrations.views import v0009
from tilewise.migrations.views.spelling import Spelling


def views(sql: Spelling) -> dict[str, str]:
    """The SELECT of each view, by name."""
    return {**v0009.views(sql), "suite_history": suite_history(sql)}


def suite_history(sql: Spelling) -> str:
    """One row for each report of a suite."""
    return f"""SELECT
  r.id AS report,
  r.suite AS suite,
  r.source AS source,
  r.target AS target,
  r.processor AS processor,
  c.identity AS toolchain,
  r.counted AS counted,
  r.left_out AS left_out,
  r.geomean_ratio AS geomean_ratio,
  r.ours_gflops / NULLIF(r.oracle_gflops, 0) AS weighted_ratio,
  r.ours_gflops AS ours_gflops,
  r.oracle_gflops AS oracle_gflops,
  {v0009.moment(sql, "r.created_at")},
  {sql.age("r.created_at")} AS age_s,
  {sql.day("r.created_at")} AS day
FROM suite_reports r
JOIN toolchains c ON c.id = r.toolchain_id"""
