"""The processes of a cluster."""
