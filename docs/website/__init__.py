"""The static site: pages of docs/ as they are, and a reference made from the code.

Face: `build`, `stage`. `python -m docs.website -o site` is what `make docs` runs.
"""
