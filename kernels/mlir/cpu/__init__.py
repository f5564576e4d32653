"""Flavor `cpu`: the loop nest of a schedule as transform operations (`script.emit_script`)."""
