"""A job's progress as server-sent events, read once for all who watch it."""
