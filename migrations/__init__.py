"""Alembic's migrations: the only source of DDL. Installed with the code that needs them."""

from pathlib import Path

HEAD = max(file.name[:4] for file in (Path(__file__).parent / "versions").glob("[0-9]*.py"))
"""The newest revision, which the code needs; the database's own is compared with it."""
