"""Where a command runs: on this machine, or at a service."""
