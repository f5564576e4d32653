"""Export and import of the store: what was found, in one file that another store takes in.

Face: `export`, `restore`, `Selection`.
"""
