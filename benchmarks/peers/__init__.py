"""Beside other libraries and tuners."""
