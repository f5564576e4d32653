"""Alembic's migrations: the only source of DDL. Installed with the code that needs them."""
