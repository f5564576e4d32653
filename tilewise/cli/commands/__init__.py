"""One module per command: its options (`add_options`) and what it does."""
