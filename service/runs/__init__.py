"""What one run of a job needs of the place where its job is kept."""
