"""Commands about a store as a whole: its archives."""
