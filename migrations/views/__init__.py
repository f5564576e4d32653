"""The views' SQL, a file for each revision that changes them, and what every such revision needs.

Face: `replaced`, under which a migration changes views, or tables that views read.
"""
