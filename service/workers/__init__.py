"""The processes that run jobs."""
