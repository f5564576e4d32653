"""Tests of the service and its database."""
