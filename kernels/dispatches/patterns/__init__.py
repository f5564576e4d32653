"""The ops of a problem, in every spelling in which IREE sees them (`patterns`)."""
