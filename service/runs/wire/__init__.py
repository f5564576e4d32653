"""The JSON messages between a remote worker and the service about one run."""
