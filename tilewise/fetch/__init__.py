"""A folder of scripts and kernels for a list of problems, held to a lock file."""
