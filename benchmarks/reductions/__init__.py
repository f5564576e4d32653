"""How deep reductions of small results are best read and divided."""
