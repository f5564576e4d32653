"""Tests of `kernels.native.passes.rows`."""
