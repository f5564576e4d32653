"""The views as revision 0022 makes them: a machine's peaks have that of u8."""

from tilewise.migrations.views import v0021
from tilewise.migrations.views.spelling import Spelling

DTYPES = ("f32", "f64", "i32", "bf16", "f16", "i8", "u8")


def views(sql: Spelling) -> dict[str, str]:
    """The SELECT of each view, by name."""
    return {**v0021.views(sql), "machine_activity": machine_activity(sql)}


def machine_activity(sql: Spelling) -> str:
    """That of 0021, with a column behind the other peaks."""
    before, after = v0021.machine_activity(sql).split("AS peak_i8_gflops")
    own = f"{sql.number('m.peaks', 'u8')} AS peak_u8_gflops"
    return f"{before}AS peak_i8_gflops,\n  {own}{after}"
