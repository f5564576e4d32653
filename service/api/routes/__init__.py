"""The HTTP routes: thin views over `jobs.queue`, `results.schedules` and `api.documents`."""
