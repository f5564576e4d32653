"""Scripts of users' own ops: normalised inside the script, and proven on the op as it stands.

Face: `script_for`, `OwnScript`, `normal_form`.
"""
