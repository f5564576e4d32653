"""From a script to machine code: apply, inspect, lower, compile.

Face: `apply_script`, `lower`, `compile_ir`.
"""
