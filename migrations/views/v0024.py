"""The views as revision 0024 makes them: tuned ranges, and all searches among a machine's jobs."""

from tilewise.migrations.views import v0009, v0022
from tilewise.migrations.views.spelling import Spelling


def views(sql: Spelling) -> dict[str, str]:
    """The SELECT of each view, by name."""
    return {
        **v0022.views(sql),
        "machine_activity": machine_activity(sql),
        "best_ranges": best_ranges(sql),
    }


def machine_activity(sql: Spelling) -> str:
    """That of 0022, over all jobs but those of models: searches, ranges and rechecks."""
    before, after = v0022.machine_activity(sql).split("WHERE kind = 'tune'")
    return f"{before}WHERE kind <> 'model'{after}"


def best_ranges(sql: Spelling) -> str:
    """One row for each stored range."""
    return f"""SELECT{v0009.work(sql, "r")},
  r.toolchain_id AS toolchain_id,
  m.host AS host,
  m.cpu AS cpu,
  {sql.length("r.result", "variants")} AS variants,
  {sql.numbers("r.result", "spans")} AS spans,
  {sql.length("r.result", "samples")} AS samples,
  r.loss_mean AS loss_mean,
  r.loss_worst AS loss_worst,
  r.job_id AS job,
  r.budget AS budget,
  r.elapsed_s AS elapsed_s,
  NOT EXISTS (SELECT 1 FROM tuned_ranges o
    WHERE o.problem_id = r.problem_id AND o.target = r.target AND o.cache = r.cache
      AND (o.created_at > r.created_at OR o.created_at = r.created_at AND o.id > r.id)
  ) AS is_current,
  {v0009.moment(sql, "r.created_at")},
  {sql.age("r.created_at")} AS age_s
FROM tuned_ranges r
JOIN problems p ON p.id = r.problem_id
JOIN toolchains c ON c.id = r.toolchain_id
JOIN machines m ON m.id = r.machine_id"""
