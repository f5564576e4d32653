"""Child processes that compile, check and time candidates."""
