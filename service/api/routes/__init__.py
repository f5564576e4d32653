"""The HTTP routes: thin views over `service.jobs.queue`, `service.results.schedules` and
`service.api.documents`.
"""
