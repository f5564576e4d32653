"""Tests of `tilewise.search.networks.running`."""
