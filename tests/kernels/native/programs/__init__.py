"""Tests of `kernels.native.programs`."""
