"""The version of Tilewise; `pyproject.toml` reads it from here, and everything else does too."""

VERSION = "0.2.0"
