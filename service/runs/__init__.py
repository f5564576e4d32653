"""What one run of a job needs of the place where its job is kept.

Face: `keeper.Keeper`, `keeper.Order`; `sql.SqlKeeper` keeps it in the database, for which
`patience.patiently` waits.
"""
