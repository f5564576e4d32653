"""Tests of calls from JAX."""
