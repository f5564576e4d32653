"""The operating system: child processes, the cache folder, installed compilers."""
