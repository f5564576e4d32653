"""Tests of `search.networks.standalone`."""
