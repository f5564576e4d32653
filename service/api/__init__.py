"""The HTTP API, and the JSON documents that it shares with the command line."""
