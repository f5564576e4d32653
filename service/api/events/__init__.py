"""Progress as server-sent events, read once for all watchers."""
