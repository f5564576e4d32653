"""How the lines of an archive become rows of a store that may have some of them.

Face: `checks.Checks` looks at lines before one is taken in; `taking.Taking` takes them in, a piece
at a time; `merged.Merged` is what was done.
"""
