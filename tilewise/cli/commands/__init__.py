"""One module per command: its options, what it does, and its name in `COMMANDS`."""
