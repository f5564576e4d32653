"""The team-facing part: a database of results, jobs with leases, and the HTTP API over both."""
