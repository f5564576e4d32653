"""Python looks for garbage seldom in tests and in what they start: most of it ends soon."""
