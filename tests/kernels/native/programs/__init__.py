"""Tests of `tilewise.kernels.native.programs`."""
