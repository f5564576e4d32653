"""Backends of commands: this machine or a service."""
