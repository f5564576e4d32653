"""The version of Tilewise; `pyproject.toml` reads it from here."""

VERSION = "0.2.0"
