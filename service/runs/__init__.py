"""What one run of a job needs of the place where its job is kept.

Public: `keeper.Keeper`, `keeper.Order`; `keeper.SqlKeeper` keeps it in the database,
`http.HttpKeeper` at a service.
"""
