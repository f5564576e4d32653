"""The child process of a runner: `python -m tilewise.search.runner.child`."""
