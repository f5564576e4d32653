"""Tests of `tilewise.kernels.native.passes`."""
