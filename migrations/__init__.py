"""Alembic's migrations: the only source of DDL. Installed with the code that needs them."""

HEAD = "0021"
"""The newest revision, which the code needs; the database's own is compared with it."""
