"""Scripts for ops of a user's module: normalised by the script, and proven on the op itself."""
