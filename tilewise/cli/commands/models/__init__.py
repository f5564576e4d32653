"""Commands on whole models."""
