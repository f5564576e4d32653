"""A problem as the linalg function that scripts are applied to (`function.payload`)."""
