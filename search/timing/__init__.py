"""Timing: samples, a control run, and cold caches."""
