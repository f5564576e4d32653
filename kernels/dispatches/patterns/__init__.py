"""The ops that mean a problem, in every spelling in which IREE sees them (`patterns`)."""
