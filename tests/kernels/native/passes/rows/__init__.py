"""Tests of `tilewise.kernels.native.passes.rows`."""
