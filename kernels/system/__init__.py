"""What the code asks of the operating system: child processes, the cache folder, installed
compilers.

Face: `child_command`, `child_environment`, `die_with_parent`, `resident_bytes`, `private_output`,
`run_limited`, `cache_dir`, `identity`.
"""
