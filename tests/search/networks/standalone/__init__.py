"""Tests of `tilewise.search.networks.standalone`."""
