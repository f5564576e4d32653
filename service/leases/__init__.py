"""Leases of rows: which process runs a job or makes a plan, and how that outlives the process.

Face: `LeasedTable`, `LEASE`, `GRACE`, `MOST_CRASHES`; `retire`, `note_unserved`, `is_to_call_off`.
"""
