"""Networks as a whole."""
