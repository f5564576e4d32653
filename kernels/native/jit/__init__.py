"""Functions as object code: compiled once, kept on disk, loaded into a process."""
