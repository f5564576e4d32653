"""What runs inside the child that proves scripts (`python -m` of `prove`)."""
