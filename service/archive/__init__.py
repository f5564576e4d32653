"""Export and import of the store as one file."""
