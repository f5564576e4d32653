"""The HTTP routes: thin views over `service.jobs`, `service.queries` and `service.results`."""
