"""Tests of `tilewise.search.networks.lowering`."""
