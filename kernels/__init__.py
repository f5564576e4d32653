"""What is computed, how it is scheduled, and how a schedule becomes code."""
