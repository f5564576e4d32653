"""A planned network as a folder that runs without Tilewise: code, packed weights, and a loader.

Face: `runner_files`, `RUNNER_SCHEMA`.
"""
