"""The database of results: models, sessions, the schema's version and the SQL TrialStore."""

from tilewise.service.db.session import Sessions, make_engine, make_sessions, reading, writing

__all__ = ["Sessions", "make_engine", "make_sessions", "reading", "writing"]
