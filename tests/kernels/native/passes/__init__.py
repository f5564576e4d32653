"""Tests of `kernels.native.passes`."""
