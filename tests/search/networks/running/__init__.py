"""Tests of `search.networks.running`."""
