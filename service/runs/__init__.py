"""The interface between a run and the store of its job."""
